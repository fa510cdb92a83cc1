/* A small network for tests of the tape: conv2d, batchnorm2d + relu; conv2d with stride 2, batchnorm2d +
 * relu with maxpool2d as its residual; flatten, dropout, linear, softmax cross-entropy. */
#ifndef LT_TESTS_NET_H
#define LT_TESTS_NET_H

#include "lather/ops.h"
#include "lather/param.h"

typedef struct net {
    lt_device *device;
    lt_tape *tape;
    lt_param conv1, gamma1, beta1, conv2, gamma2, beta2, fc, bias;
    lt_param mean1, var1, mean2, var2;
    lt_params params; /* the first eight */
    lt_tensor *x, *labels;

    /* Results of the last forward pass. */
    lt_tensor *hidden, *logits, *loss;
} net;

/* Opens a device and makes everything; net_close() also frees an incomplete network. */
lt_status net_open(net *n, const char *device, const lt_device_config *config);
void net_close(net *n);

/* Runs a forward pass; n->loss is NULL if it failed. */
void net_forward(net *n, lt_pass pass);
/* Resets gradients; runs forward and backward. */
lt_status net_step(net *n, lt_pass pass);

#endif
