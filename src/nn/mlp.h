/* The mlp, as its block runs it. */
#ifndef LT_NN_MLP_H
#define LT_NN_MLP_H

#include "lather/transformer.h"

/* rows: of all ranks, where it is divided. */
lt_tensor *lt_mlp_forward_rows(lt_module *mlp, lt_tape *tape, lt_tensor *x, lt_token_rows rows);

#endif
