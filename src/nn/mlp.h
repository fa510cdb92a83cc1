/* The MLP's interface to its block. */
#ifndef LT_NN_MLP_H
#define LT_NN_MLP_H

#include "lather/transformer.h"

/* Runs the MLP. rows: the rows of all ranks, if the MLP is sharded. */
lt_tensor *lt_mlp_forward_rows(lt_module *self, lt_tape *tape, lt_tensor *x, lt_token_rows rows);

#endif
