/* The linear layer's interface to layers that contain several. */
#ifndef LT_NN_LINEAR_H
#define LT_NN_LINEAR_H

#include "lather/detail/transformer_layers.h"

/* Runs the layer on rows that are all on this rank, without communication. */
lt_tensor *lt_linear_forward_local(lt_module *self, lt_tape *tape, lt_tensor *x);

#endif
