/* The convolutions of a residual network, for its constructor, its cost and its ONNX nodes. */
#ifndef RESNET_ARCH_H
#define RESNET_ARCH_H

#include "resnet.h"

enum { PLAN_MAX_CONVS = 4 };

/* One convolution and its batch norm. */
typedef struct plan_conv {
    const char *conv, *bn; /* "conv1", "bn1"; "downsample.0", "downsample.1" */
    int in, out;           /* channels */
    int kernel, stride, pad;
    int groups;
} plan_conv;

typedef struct plan_block {
    plan_conv conv[PLAN_MAX_CONVS]; /* the main path, then the shortcut if there is one */
    int count;                      /* convolutions of the main path: 2 or 3 */
    bool shortcut;                  /* conv[count] is a projection of the input */
    bool pooled;                    /* the projection is of means of 2x2 pixels */
} plan_block;

/* Return the convolutions of the stem (1, or 3 of a deep one) and of a residual block; config must be resolved. */
plan_block plan_stem(const lt_resnet_config *config);
plan_block plan_residual(const lt_resnet_config *config, int stage, int index);
/* Returns the output channels of the last stage. */
int plan_out_channels(const lt_resnet_config *config);
/* Returns the arch that differs from a resolved config in its depths at most, or NULL. */
const char *plan_kind(const lt_resnet_config *config);
/* Returns the side of a convolution's output. */
int64_t plan_output_side(const plan_conv *conv, int64_t side);

/* Adds the ONNX nodes from "images" to "logits"; defined in onnx.c. */
void put_resnet_nodes(lt_onnx *graph, const lt_resnet_config *config);

#endif
