/* The linear layer, as layers made of several run it. */
#ifndef LT_NN_LINEAR_H
#define LT_NN_LINEAR_H

#include "lather/detail/transformer_layers.h"

/* Of rows that are all here already: no exchange. */
lt_tensor *lt_linear_forward_here(lt_module *linear, lt_tape *tape, lt_tensor *x);

#endif
