/** Optimizers described in JSON, as optim_replay reads them. */
#ifndef LATHER_OPTIM_CONFIG_H
#define LATHER_OPTIM_CONFIG_H

#include "lather/optim.h"
#include "lather/shampoo.h"

typedef enum lt_optim_kind {
    LT_OPTIM_SGD,
    LT_OPTIM_ADAGRAD,
    LT_OPTIM_ADAM,
    LT_OPTIM_ADAMW,
    LT_OPTIM_SHAMPOO
} lt_optim_kind;

/** One JSON object. Keys: "optim" ("sgd", "adagrad", "adam", "adamw", "shampoo") and "lr" are
 *  needed; "dtype" ("float64", "float32"), "lr_schedule" ([lr of step 1, ...]); all others are the
 *  fields of the optimizer's config under the names in tests/oracle/optim_model.py, with its
 *  defaults. Every parameter decays. */
typedef struct lt_optim_config {
    lt_optim_kind kind;
    lt_dtype dtype; /**< of parameters and state: open the device with f64 for LT_F64 */
    double lr;
    double *schedule; /**< owned; NULL: lr in every step */
    size_t schedule_count;
    lt_sgd_config sgd; /**< the one of kind is filled */
    lt_adagrad_config adagrad;
    lt_adam_config adam;
    lt_shampoo_config shampoo;
} lt_optim_config;

/** Errors: LT_E_FORMAT (no JSON), LT_E_ARG (an unknown key or value, with the nearest known one; a
 *  value of the wrong type; a missing key). Free with lt_optim_config_clear(). */
LT_API LT_MUST_CHECK lt_status lt_optim_config_parse(lt_optim_config *out, const char *json,
                                                     size_t bytes);
LT_API void lt_optim_config_clear(lt_optim_config *config);

/** The optimizer; as its own constructor. */
LT_API LT_MUST_CHECK lt_status lt_optim_config_make(lt_optim **out, const lt_optim_config *config,
                                                    const lt_params *params);
/** lr of step 1, 2, ... Errors: LT_E_ARG (the schedule is shorter). */
LT_API LT_MUST_CHECK lt_status lt_optim_config_lr(const lt_optim_config *config, int64_t step,
                                                  double *lr);

#endif
