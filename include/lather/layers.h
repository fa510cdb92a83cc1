/** Constructors of the built-in layers. `name` is the layer's path in the model. */
#ifndef LATHER_LAYERS_H
#define LATHER_LAYERS_H

#include "lather/module.h"
#include "lather/ops.h"

typedef struct lt_conv2d_layer {
    int in, out;     /**< input and output channels */
    int kernel;      /**< height and width of the filter */
    int stride, pad; /**< a zero stride means 1 */
    int dilation;    /**< spacing of filter taps; 0: 1 */
    int groups;      /**< groups of channels; 0: 1 */
    bool bias;
} lt_conv2d_layer;

/** Creates y = conv2d(x). Parameters: weight [out,in/groups,kernel,kernel], bias [out]; zeros
 *  until lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_conv2d(lt_module **out, lt_device *device, const char *name,
                                               lt_conv2d_layer config);

typedef struct lt_conv_transpose2d_layer {
    int in, out;     /**< input and output channels */
    int kernel;      /**< height and width of the filter */
    int stride, pad; /**< a zero stride means 1 */
    int output_pad;  /**< output rows and columns added at the end; less than the stride */
    int dilation;    /**< spacing of filter taps; 0: 1 */
    int groups;      /**< groups of channels; 0: 1 */
    bool bias;
} lt_conv_transpose2d_layer;

/** Creates y = conv_transpose2d(x). Parameters: weight [in,out/groups,kernel,kernel], bias
 *  [out]; zeros until lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_conv_transpose2d(lt_module **out, lt_device *device,
                                                         const char *name,
                                                         lt_conv_transpose2d_layer config);

/** Creates y = x w^T + b. Parameters: weight [out,in], bias [out]; zeros until lt_init_*() fills
 *  them. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_linear(lt_module **out, lt_device *device, const char *name,
                                               int in, int features, bool bias);

/** Creates y = batchnorm2d(x), followed by relu if config.relu. Uses the running statistics in
 *  every pass if config.frozen, or if the parameter running_mean is frozen. Parameters: weight
 *  (ones), bias (zeros), running_mean, running_var [channels], num_batches_tracked i64 [].
 *  config.eps 0: 1e-5; config.momentum 0: 0.1. Errors: LT_E_ARG, LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_batchnorm2d(lt_module **out, lt_device *device,
                                                    const char *name, int channels,
                                                    lt_batchnorm2d_config config);
/** Creates y = batchnorm1d(x), for x [N,C] or [N,C,L]; the rest as lt_layer_batchnorm2d(). */
LT_API LT_MUST_CHECK lt_status lt_layer_batchnorm1d(lt_module **out, lt_device *device,
                                                    const char *name, int channels,
                                                    lt_batchnorm2d_config config);
/** Creates y = group_norm(x). Parameters: weight (ones), bias (zeros) [channels]. config.eps 0:
 *  1e-5. Errors: LT_E_ARG (groups does not divide the channels), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_layer_group_norm(lt_module **out, lt_device *device,
                                                   const char *name, int channels,
                                                   lt_group_norm_config config);
/** Runs a batchnorm2d layer with a residual: y = act(batchnorm2d(x) + residual). */
LT_API lt_tensor *lt_batchnorm2d_forward(lt_module *module, lt_tape *tape, lt_tensor *x,
                                         lt_tensor *residual);

/** Folds norm into conv: see lt_module_fold(). norm must be the only reader of conv's output.
 *  Only norm's residual and relu remain; without them it returns its input. Errors: LT_E_ARG
 *  (other kinds of layers), LT_E_SHAPE (channels differ), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_batchnorm2d_fold(lt_module *norm, lt_module *conv);

LT_API LT_MUST_CHECK lt_status lt_layer_relu(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_sigmoid(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_tanh(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_silu(lt_module **out);
LT_API LT_MUST_CHECK lt_status lt_layer_maxpool2d(lt_module **out, lt_pool2d_config config);
/** Creates average pooling. config.kernel 0: global pooling. */
LT_API LT_MUST_CHECK lt_status lt_layer_avgpool2d(lt_module **out, lt_pool2d_config config);
/** Creates dropout with probability p. Errors: LT_E_ARG (p not in [0,1)). */
LT_API LT_MUST_CHECK lt_status lt_layer_dropout(lt_module **out, double p);
/** Creates a layer that maps [N,C,H,W] to [N,C*H*W]. */
LT_API LT_MUST_CHECK lt_status lt_layer_flatten(lt_module **out);

/** Creates an empty chain of layers. */
LT_API LT_MUST_CHECK lt_status lt_layer_sequential(lt_module **out);
/** Appends *child, which the chain then owns, and sets *child to NULL. Errors: LT_E_NOMEM (the
 *  child remains yours). */
LT_API LT_MUST_CHECK lt_status lt_sequential_add(lt_module *sequential, lt_module **child);

#endif
