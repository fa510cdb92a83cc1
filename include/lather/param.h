/** Parameters, and lists of them, as shared by layers, optimizers and ranks. */
#ifndef LATHER_PARAM_H
#define LATHER_PARAM_H

#include "lather/detail/shard_spec.h"
#include "lather/tape.h"

/** Kind of a parameter: decides whether it is trained and decays. */
typedef enum lt_param_kind {
    LT_PARAM_WEIGHT, /**< trained, with weight decay */
    LT_PARAM_BIAS,   /**< trained; decays only with LT_DECAY_ALL */
    LT_PARAM_NORM, /**< trained; weight (gamma) or bias (beta) of a norm: decays as LT_PARAM_BIAS */
    LT_PARAM_STAT, /**< not trained, but saved: running mean and variance; grad is NULL */
    LT_PARAM_COUNT /**< not trained, saved as i64 []: num_batches_tracked; grad is NULL */
} lt_param_kind;

/** One parameter. Owned by its layer, borrowed by everyone else. */
typedef struct lt_param {
    const char *name; /**< path in the model: "layer3.0.conv2.weight"; owned */
    lt_tensor *value; /**< the parameter's tensor, in the device's master dtype; owned */
    /** Gradient, of the same shape, accumulated; f32 unless lt_optim_allow_rounded_grads(); owned. */
    lt_tensor *grad;
    lt_param_kind role;
    /** True: no gradient, no update; on a running mean: freezes its layer's statistics. */
    bool frozen;
    bool has_grad;       /**< a gradient was added since lt_params_zero_grad() */
    int fan_in;          /**< number of inputs of one output; 0 if undefined */
    int fan_out;         /**< number of outputs that one input reaches */
    lt_shard_spec *spec; /**< which part of the tensor this rank holds; NULL: all; owned */
} lt_param;

/** Borrowed parameters in a fixed order, the same on every rank. Initialise with {0}. */
typedef struct lt_params {
    lt_param **item;
    size_t count;
} lt_params;

/** Appends a parameter. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_params_add(lt_params *list, lt_param *param);
/** Empties the list; the parameters remain with their layers. */
LT_API void lt_params_clear(lt_params *list);
/** Returns the parameter with that name, or NULL if absent. */
LT_API lt_param *lt_params_find(const lt_params *list, const char *name);
/** Marks all gradients as absent, so that the next contribution overwrites them. Touches no
 *  memory. */
LT_API void lt_params_zero_grad(const lt_params *list);

/** Returns true if an optimizer updates it: a weight, bias or norm parameter that is not frozen. */
LT_API bool lt_param_is_trained(const lt_param *param);

/** Returns the parameter as an input on this tape; backward adds to param->grad. Owns: the tape. */
LT_API lt_tensor *lt_tape_param(lt_tape *tape, lt_param *param);

/** Initialises a parameter called "path.leaf" ("leaf" if path is "") with every element set to
 *  fill, and its gradient. Dtype: the device's master dtype; i64 for LT_PARAM_COUNT. Errors:
 *  LT_E_NOMEM, LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_param_init(lt_param *param, lt_device *device, const char *path,
                                             const char *leaf, lt_shape shape, double fill);
/** Does the same as lt_param_init(), for a parameter of any role. */
LT_API LT_MUST_CHECK lt_status lt_param_init_kind(lt_param *param, lt_device *device,
                                                  const char *path, const char *leaf,
                                                  lt_shape shape, double fill, lt_param_kind role);
/** Initialises the weight of a convolution, [K,C,R,S], with zeros, stored channels-last as its
 *  kernels need it. Errors: LT_E_SHAPE (not 4 dimensions), LT_E_NOMEM, LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_param_init_filter(lt_param *param, lt_device *device,
                                                    const char *path, const char *leaf,
                                                    lt_shape shape);
/** Declares that value and grad are a shard of a larger parameter; call it before they get
 *  initial values. Copies spec. Sets the fans to those of the logical shape, [out,in,...]; a
 *  layer with another order sets its own afterwards. Errors: LT_E_SHAPE as lt_shard_spec_check(),
 *  LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_param_set_shard_spec(lt_param *param, const lt_shard_spec *spec);
/** Returns which part this rank holds: all of it for a parameter without a shard spec. */
LT_API lt_shard_spec lt_param_shard_spec(const lt_param *param);
/** Frees the parameter's tensors and name; a zeroed parameter is fine. */
LT_API void lt_param_clear(lt_param *param);

#endif
