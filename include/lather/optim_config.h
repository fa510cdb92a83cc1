/** Optimizers by name, and as JSON describes them. */
#ifndef LATHER_OPTIM_CONFIG_H
#define LATHER_OPTIM_CONFIG_H

#include "lather/averaging.h"

/** An optimizer with its usual settings: "sgd", "adagrad", "adam", "adamw", "shampoo", "soap", one
 *  that lt_optim_register() got, or one with another of its presets, as in "shampoo-paper".
 *  Errors: LT_E_ARG, naming the nearest; those of its constructor. */
LT_API LT_MUST_CHECK lt_status lt_optim_open(lt_optim **out, const char *name,
                                             const lt_params *params);
/** Name number index of those into text of size bytes, and text; NULL past the end. A preset that is an
 *  optimizer too has the latter's name alone. */
LT_API const char *lt_optim_name_at(size_t index, char *text, size_t size);

/** What a JSON object says. */
typedef struct lt_optim_config {
    const struct lt_optim_family *family;
    lt_dtype dtype; /**< of parameters and state: open the device with f64 for LT_F64 */
    double lr;
    double *schedule; /**< owned; NULL: lr in every step */
    size_t schedule_count;
    lt_averaging_config averaging;
    void *settings; /**< owned: the family's config struct */
} lt_optim_config;

/** One JSON object. Keys: "optim", a name of lt_optim_open() without a preset, and "lr" are needed;
 *  "dtype" ("float64", "float32"), "lr_schedule" ([lr of step 1, ...]); "iterate_averaging" ("off",
 *  "schedule-free", "primal") and the coefficients of lt_averaging_config; all others are the fields of
 *  the optimizer's config under the names in tests/oracle/optim_model.py, with its defaults. Every
 *  parameter decays.
 *  Errors: LT_E_FORMAT (no JSON), LT_E_ARG (an unknown key or value, with the nearest known one; a
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
