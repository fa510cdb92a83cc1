/** Optimizers by name and from JSON. */
#ifndef LATHER_OPTIM_CONFIG_H
#define LATHER_OPTIM_CONFIG_H

#include "lather/averaging.h"
#include "lather/cautious.h"

/** Makes an optimizer with default settings by name: "sgd", "adagrad", "adam", "adamw", "shampoo", "soap",
 *  "muon", "lars", "lamb", "lion", "adafactor", "prodigy", one registered by lt_optim_register(), or one with another of its
 *  presets, as in "shampoo-paper".
 *  Errors: LT_E_ARG, naming the nearest; those of its constructor. */
LT_API LT_MUST_CHECK lt_status lt_optim_open(lt_optim **out, const char *name,
                                             const lt_params *params);
/** Writes name number index of lt_optim_open() to text of size bytes; returns text, or NULL past the end. A
 *  preset that is also an optimizer has the latter's name only. */
LT_API const char *lt_optim_name_at(size_t index, char *text, size_t size);

/** An optimizer's configuration from JSON. */
typedef struct lt_optim_config {
    const struct lt_optim_family *family;
    lt_dtype dtype; /**< dtype of parameters and state: LT_F64 needs a device opened with f64 */
    double lr;
    double *schedule; /**< [steps] learning rate of each step; owned; NULL: lr in every step */
    size_t schedule_count;
    lt_averaging_config averaging;
    lt_cautious_config cautious;
    void *settings; /**< owned: config struct of the optimizer's family */
} lt_optim_config;

/** Parses a JSON object. Required keys: "optim", a name of lt_optim_open() without a preset, and "lr".
 *  Optional: "dtype" ("float64", "float32"), "lr_schedule" ([lr of step 1, ...]), "iterate_averaging" ("off",
 *  "schedule-free", "primal") and the coefficients of lt_averaging_config, "cautious_mask", "cautious_weight_decay", and the fields of the optimizer's
 *  config under the names and with the defaults in tests/oracle/optim_model.py. Every parameter has weight
 *  decay.
 *  Errors: LT_E_FORMAT (not JSON), LT_E_ARG (an unknown key or value, with the nearest known one; a value of
 *  the wrong type; a missing key). Free with lt_optim_config_clear(). */
LT_API LT_MUST_CHECK lt_status lt_optim_config_parse(lt_optim_config *out, const char *json,
                                                     size_t bytes);
LT_API void lt_optim_config_clear(lt_optim_config *config);

/** Makes the optimizer; errors are those of its constructor. */
LT_API LT_MUST_CHECK lt_status lt_optim_config_make(lt_optim **out, const lt_optim_config *config,
                                                    const lt_params *params);
/** Sets lr of step 1, 2, ... Errors: LT_E_ARG (the schedule is shorter). */
LT_API LT_MUST_CHECK lt_status lt_optim_config_lr(const lt_optim_config *config, int64_t step,
                                                  double *lr);

#endif
