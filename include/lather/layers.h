/** The layers of the library: constructors. `name` is the layer's path in the model. */
#ifndef LATHER_LAYERS_H
#define LATHER_LAYERS_H

#include "lather/module.h"
#include "lather/ops.h"

typedef struct lt_conv2d_layer {
    int in, out;     /**< channels */
    int kernel;      /**< side of the square filter */
    int stride, pad; /**< 0 stride: 1 */
    int dilation;    /**< 0: 1 */
    int groups;      /**< 0: 1 */
    bool bias;
} lt_conv2d_layer;

/** y = conv2d(x). Parameters: weight [out,in/groups,kernel,kernel], bias [out]; zeros until
 *  lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_conv2d(lt_module **out, lt_device *device, const char *name,
                                               lt_conv2d_layer config);

typedef struct lt_conv_transpose2d_layer {
    int in, out;     /**< channels */
    int kernel;      /**< side of the square filter */
    int stride, pad; /**< 0 stride: 1 */
    int output_pad;  /**< rows and columns more, at the end; below the stride */
    int dilation;    /**< 0: 1 */
    int groups;      /**< 0: 1 */
    bool bias;
} lt_conv_transpose2d_layer;

/** y = conv_transpose2d(x). Parameters: weight [in,out/groups,kernel,kernel], bias [out]; zeros until
 *  lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_conv_transpose2d(lt_module **out, lt_device *device,
                                                         const char *name,
                                                         lt_conv_transpose2d_layer config);

/** y = x w^T + b. Parameters: weight [out,in], bias [out]. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_linear(lt_module **out, lt_device *device, const char *name,
                                               int in, int features, bool bias);

/** y = batchnorm2d(x), with a relu at the end if config says so; frozen if config or the parameter
 *  running_mean is. Parameters: weight (ones), bias (zeros), running_mean, running_var [channels],
 *  num_batches_tracked i64 []. config.eps 0: 1e-5; config.momentum 0: 0.1. Errors: LT_E_ARG,
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_batchnorm2d(lt_module **out, lt_device *device,
                                                    const char *name, int channels,
                                                    lt_batchnorm2d_config config);
/** The same for [N,C] and [N,C,L]: y = batchnorm1d(x). */
LT_API LT_MUST_CHECK lt_status lt_layer_batchnorm1d(lt_module **out, lt_device *device,
                                                    const char *name, int channels,
                                                    lt_batchnorm2d_config config);
/** y = group_norm(x). Parameters: weight (ones), bias (zeros) [channels]. config.eps 0: 1e-5.
 *  Errors: LT_E_ARG (groups do not divide the channels), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_group_norm(lt_module **out, lt_device *device,
                                                   const char *name, int channels,
                                                   lt_group_norm_config config);
/** The batch norm with a residual: y = act(batchnorm2d(x) + residual). module: a batchnorm2d layer. */
LT_API lt_tensor *lt_batchnorm2d_forward(lt_module *module, lt_tape *tape, lt_tensor *x,
                                         lt_tensor *residual);

/** Merges the batch norm that reads the output of conv, and alone does, into conv: see
 *  lt_module_fold(). Only residual and relu remain of norm, which may then return its input.
 *  Errors: LT_E_ARG (other kinds of layers), LT_E_SHAPE (channels differ), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_batchnorm2d_fold(lt_module *norm, lt_module *conv);

LT_API LT_MUST_CHECK lt_status lt_layer_relu(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_sigmoid(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_tanh(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_silu(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_maxpool2d(lt_module **out, lt_pool2d_config config);
/** config.kernel 0: global. */
LT_API LT_MUST_CHECK lt_status lt_layer_avgpool2d(lt_module **out, lt_pool2d_config config);
/** Errors: LT_E_ARG (p not in [0,1)). */
LT_API LT_MUST_CHECK lt_status lt_layer_dropout(lt_module **out, double p);
/** [N,C,H,W] -> [N,C*H*W]. */
LT_API LT_MUST_CHECK lt_status lt_layer_flatten(lt_module **out);

/** A chain; starts empty. */
LT_API LT_MUST_CHECK lt_status lt_layer_sequential(lt_module **out);
/** Appends *child, which the chain then owns; sets *child to NULL. Errors: LT_E_NOMEM (the child
 *  stays yours). */
LT_API LT_MUST_CHECK lt_status lt_sequential_add(lt_module *sequential, lt_module **child);

#endif
