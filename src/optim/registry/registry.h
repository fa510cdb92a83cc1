/* Private declarations of the registry of optimizers, and its built-in rows. */
#ifndef LT_OPTIM_REGISTRY_H
#define LT_OPTIM_REGISTRY_H

#include "lather/ext/optim_family.h"

/* Built-in optimizers in the order of --optim's choices: NAME stands for the row lt_optim_family_NAME, defined in
 * the optimizer's source. */
#define LT_OPTIM_FAMILIES(X) \
    X(sgd)                   \
    X(adagrad)               \
    X(adam) X(adamw) X(shampoo) X(soap) X(muon) X(lars) X(lamb) X(lion) X(adafactor) X(prodigy)

#define LT_OPTIM_DECLARE(name) extern const lt_optim_family lt_optim_family_##name;
LT_OPTIM_FAMILIES(LT_OPTIM_DECLARE)
#undef LT_OPTIM_DECLARE

/* For built-in rows: the members of a row whose options are `fields`, with one preset and make() of this file. */
#define LT_OPTIM_ROW(title, config, defaults)                         \
    .name = (title), .config_bytes = sizeof(config), .field = fields, \
    .fields = sizeof fields / sizeof *fields, .preset = &(defaults), .presets = 1, .make = make
/* Defines a row's make() by a constructor that needs no learning rate. */
#define LT_OPTIM_MAKE(constructor)                                                                \
    static lt_status make(lt_optim **out, const lt_params *params, const void *config, double lr) \
    {                                                                                             \
        (void)lr;                                                                                 \
        return constructor(out, params, config);                                                  \
    }
/* Defines a condition on a config c, for the is_read entry of an option. */
#define LT_OPTIM_CONDITION(function, config_type, condition) \
    static bool function(const void *config)                 \
    {                                                        \
        const config_type *c = config;                       \
        return condition;                                    \
    }

/* Checks a row: names are unique, defaults are in range, and fields that it shares with one of count other rows
 * have the same type. Errors: LT_E_ARG, naming optimizer and field. */
lt_status lt_optim_check_family(const lt_optim_family *family, const lt_optim_family *const *known,
                                size_t count);

/* Returns the preset of that name (NULL: the first), or NULL if absent. */
const lt_optim_preset *lt_optim_find_preset(const lt_optim_family *family, const char *name);
/* Returns a copy of a config, to be freed by lt_free(), or NULL if out of memory. */
void *lt_optim_copy_config(const lt_optim_family *family, const void *config);
/* Returns the config with the defaults of JSON keys. */
const void *lt_optim_json_defaults(const lt_optim_family *family);

#endif
