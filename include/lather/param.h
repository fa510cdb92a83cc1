/** Trained tensors, and lists of them: what layers, optimizers and ranks share. */
#ifndef LATHER_PARAM_H
#define LATHER_PARAM_H

#include "lather/detail/place.h"
#include "lather/tape.h"

typedef enum lt_role {
    LT_ROLE_WEIGHT, /**< trained, decays */
    LT_ROLE_BIAS,   /**< trained; left out of decay when the optimizer's config says so */
    LT_ROLE_NORM,   /**< trained; gain or shift of a normalisation: as LT_ROLE_BIAS */
    LT_ROLE_STAT,   /**< not trained, but saved: running mean and variance; grad is NULL */
    LT_ROLE_COUNT   /**< not trained, saved as i64 0-D: num_batches_tracked; grad is NULL */
} lt_role;

/** Lives inside its layer. Everyone else borrows it. */
typedef struct lt_param {
    const char *name; /**< path in the model: "layer3.0.conv2.weight"; owned */
    lt_tensor *value; /**< of the device's master dtype; owned */
    lt_tensor *grad;  /**< same shape; f32 unless lt_optim_read_rounded(); summed; owned */
    lt_role role;
    bool frozen;     /**< no gradient, no update; a running mean: its layer's statistics stay */
    bool has_grad;   /**< something was added since lt_params_zero_grad() */
    int fan_in;      /**< inputs of one output: 0 if it makes no sense */
    int fan_out;     /**< outputs that one input reaches */
    lt_place *place; /**< what of it this rank holds; NULL: all; owned */
} lt_param;

/** Borrowed parameters in a fixed order, the same on every rank. Starts as {0}. */
typedef struct lt_params {
    lt_param **item;
    size_t count;
} lt_params;

LT_API LT_MUST_CHECK lt_status lt_params_add(lt_params *list, lt_param *param);
LT_API void lt_params_clear(lt_params *list);
/** The parameter of that name, or NULL. */
LT_API lt_param *lt_params_find(const lt_params *list, const char *name);
/** Marks all gradients as absent: the next contribution overwrites. Moves no memory. */
LT_API void lt_params_zero_grad(const lt_params *list);

/** True for what an optimizer updates: a weight, bias or norm parameter that is not frozen. */
LT_API bool lt_param_is_trained(const lt_param *param);

/** The parameter as an input on this tape: backward adds to param->grad. Owns: the tape. */
LT_API lt_tensor *lt_tape_param(lt_tape *tape, lt_param *param);

/** A parameter called "path.leaf" (or "leaf" if path is ""), its value filled, its gradient made.
 *  dtype: the device's master; LT_ROLE_COUNT: i64. Errors: LT_E_NOMEM, LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_param_init(lt_param *param, lt_device *device, const char *path,
                                             const char *leaf, lt_shape shape, double fill);
/** The same with a role. */
LT_API LT_MUST_CHECK lt_status lt_param_init_role(lt_param *param, lt_device *device,
                                                  const char *path, const char *leaf,
                                                  lt_shape shape, double fill, lt_role role);
/** The weight of a convolution, [K,C,R,S], of zeros and stored channels-last: what its kernels read.
 *  Errors: LT_E_SHAPE (not 4 dimensions), LT_E_NOMEM, LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_param_init_filter(lt_param *param, lt_device *device,
                                                    const char *path, const char *leaf,
                                                    lt_shape shape);
/** Says that value and grad are a box of a larger parameter, before it gets initial values. Copies place.
 *  The fans become those of the logical shape, [out,in,...]: a layer that keeps another order sets its own
 *  after this. Errors: LT_E_SHAPE as lt_place_check(), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_param_set_place(lt_param *param, const lt_place *place);
/** What this rank holds; of a parameter without a place: all. */
LT_API lt_place lt_param_place(const lt_param *param);
LT_API void lt_param_clear(lt_param *param); /**< a zeroed one is fine */

#endif
