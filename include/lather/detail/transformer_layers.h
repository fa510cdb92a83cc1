/** Constructors of transformer layers. `name` is the layer's path in the model. */
#ifndef LATHER_DETAIL_TRANSFORMER_LAYERS_H
#define LATHER_DETAIL_TRANSFORMER_LAYERS_H

/* Not a stable interface: may change in any release. */

#include "lather/module.h"
#include "lather/ops.h"
#include "lather/tensor_parallel.h"

/** Creates y = layernorm(x) over the last dimension. Parameters: weight (ones), bias (zeros) [width]. Errors:
 *  LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_layernorm(lt_module **out, lt_device *device,
                                                  const char *name, int width,
                                                  lt_layernorm_config config);
/** Creates y = rmsnorm(x) over the last dimension. Parameter: weight (ones) [width]. Errors: LT_E_ARG,
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_rmsnorm(lt_module **out, lt_device *device,
                                                const char *name, int width,
                                                lt_layernorm_config config);
/** Creates layer norm or, with config.rms, RMS norm, for ranks that share a model. On a grid weight and bias
 *  are sharded and x is [rows,this rank's features]; else they are whole, and x has this rank's rows. Errors:
 *  LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_norm_parallel(lt_module **out, lt_device *device,
                                                      const char *name, int width,
                                                      lt_layernorm_config config,
                                                      const lt_tensor_parallel *parallel);

/** Creates gelu. Errors: LT_E_ARG (unknown kind), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_gelu(lt_module **out, lt_gelu_kind kind);
/** Creates drop path with probability p. Errors: LT_E_ARG (p not in [0,1)), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_drop_path(lt_module **out, double p);

/** Creates y = embedding(x), x: ids, i32 [..], y [..,width]. Parameter: weight [count,width], zeros until
 *  lt_init_*() fills it. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_embedding(lt_module **out, lt_device *device,
                                                  const char *name, int count, int width);

typedef struct lt_linear_layer {
    int in, features;
    bool bias;
    bool in_out;                        /**< weight is [in,features], as in GPT-2's Conv1D */
    const lt_tensor_parallel *parallel; /**< ranks that shard the layer; NULL: one rank */
    lt_parallel_style division;
} lt_linear_layer;

/** Creates lt_layer_linear() with options. Parameters: weight [features,in] or [in,features], bias [features].
 *  Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_linear_as(lt_module **out, lt_device *device,
                                                  const char *name, lt_linear_layer config);
/** Runs a sharded linear layer. rows: the rows of all ranks, of which x has some. */
LT_API lt_tensor *lt_linear_forward_rows(lt_module *linear, lt_tape *tape, lt_tensor *x,
                                         int64_t rows);

#endif
