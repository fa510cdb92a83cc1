/** The layers of transformers: constructors. `name` is the layer's path in the model. */
#ifndef LATHER_DETAIL_TRANSFORMER_LAYERS_H
#define LATHER_DETAIL_TRANSFORMER_LAYERS_H

/* Not a stable interface: may change in any release. */

#include "lather/module.h"
#include "lather/ops.h"
#include "lather/tensor_parallel.h"

/** y = layernorm(x) over the last dimension. Parameters: weight (ones), bias (zeros) [width].
 *  Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_layernorm(lt_module **out, lt_device *device,
                                                  const char *name, int width,
                                                  lt_layernorm_config config);
/** y = rmsnorm(x) over the last dimension. Parameter: weight (ones) [width]. Errors: LT_E_ARG,
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_rmsnorm(lt_module **out, lt_device *device,
                                                const char *name, int width,
                                                lt_layernorm_config config);
/** Either, by config.rms, divided over ranks: on a grid weight and bias are cut, and x is
 *  [rows,own features]; else they are whole, and x is of this rank's rows. Errors: as theirs. */
LT_API LT_MUST_CHECK lt_status lt_layer_norm_parallel(lt_module **out, lt_device *device,
                                                      const char *name, int width,
                                                      lt_layernorm_config config,
                                                      const lt_tensor_parallel *parallel);

/** Errors: LT_E_ARG (another kind), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_gelu(lt_module **out, lt_gelu_kind kind);
/** Errors: LT_E_ARG (p not in [0,1)), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_drop_path(lt_module **out, double p);

/** y = embedding(x): x holds ids, i32 [..], and y is [..,width]. Parameters: weight [count,width];
 *  zeros until lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_embedding(lt_module **out, lt_device *device,
                                                  const char *name, int count, int width);

typedef struct lt_linear_layer {
    int in, features;
    bool bias;
    bool in_out;                        /**< weight is [in,features], as GPT-2's Conv1D stores it */
    const lt_tensor_parallel *parallel; /**< ranks that it is divided over; NULL: none */
    lt_division division;
} lt_linear_layer;

/** lt_layer_linear() with a choice of how the weight is stored. Parameters: weight [features,in] or
 *  [in,features], bias [features]. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_linear_as(lt_module **out, lt_device *device,
                                                  const char *name, lt_linear_layer config);
/** Of a divided layer: rows are those of all ranks, of which x has some. */
LT_API lt_tensor *lt_linear_forward_rows(lt_module *linear, lt_tape *tape, lt_tensor *x,
                                         int64_t rows);

#endif
