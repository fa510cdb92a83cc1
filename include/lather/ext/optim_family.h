/** Optimizers by name: one row per optimizer, from which come its flags and their help, its keys in
 *  JSON, its presets and its ranges. Start from src/optim/methods/adagrad.c. */
#ifndef LATHER_EXT_OPTIM_FAMILY_H
#define LATHER_EXT_OPTIM_FAMILY_H

#include "lather/detail/json.h"
#include "lather/ext/optim.h"

/** What a setting is in the optimizer's config struct. */
typedef enum lt_field_type {
    LT_FIELD_REAL,   /**< double; JSON's null is unset */
    LT_FIELD_COUNT,  /**< int64_t; JSON's Infinity is the largest */
    LT_FIELD_LIMIT,  /**< int64_t; 0: no limit, which is Infinity in JSON */
    LT_FIELD_SMALL,  /**< int */
    LT_FIELD_FLAG,   /**< bool */
    LT_FIELD_CHOICE, /**< an enumeration of int's size: 0 is the first of choices */
    LT_FIELD_SCOPE,  /**< lt_decay_scope; as a flag, true is LT_DECAY_ALL and false the default */
    LT_FIELD_LIST    /**< anything; set and read fill it, a flag may be repeated */
} lt_field_type;

/** One setting of an optimizer. Families may have fields of the same name: they are one flag, and
 *  must be of the same type and choices. */
typedef struct lt_optim_field {
    const char *name; /**< key in JSON; the flag has '-' for '_' */
    lt_field_type type;
    size_t offset;           /**< in the config struct: offsetof(...) */
    double low, high;        /**< range of numbers, low included; HUGE_VAL: no limit */
    bool below;              /**< high itself is outside */
    double unset;            /**< a value that may lie outside, if unset_means is there */
    const char *unset_means; /**< "beta1"; NULL: there is no such value */
    const char *choices;     /**< "none|sgd|adam" */
    bool shared;             /**< listed under "Optimizer", whatever the family's group */
    bool flag_only;          /**< no key in JSON, and no preset sets it */
    const char *meta;        /**< what a list's value is called in --help: "ORDER:DIM,..." */
    bool common;             /**< its flag is listed by --help alone */
    bool rare;               /**< no flag of its own: --opt-kwargs NAME=VALUE */
    const char *also;        /**< other names of the flag; NULL: none */
    const char *help;        /**< one sentence; NULL: that of the same field in another family */
    /** Optional: whether the other settings let this one count. Where not, it is neutral, and a flag
     *  that says otherwise is an error: "--beta3: needs --beta1 above 0". */
    bool (*is_read)(const void *config);
    const char *needs; /**< "--beta1 above 0" */
    double neutral;
    /** Optional: replaces a preset's value that does not fit the user's flags. */
    void (*derive)(void *config);
    /** Of LT_FIELD_LIST: one value of the flag, and JSON's; read also instead of another type's own.
     *  Errors: LT_E_ARG, naming the flag, the key. */
    lt_status (*set)(void *config, const char *text);
    lt_status (*read)(void *config, const lt_json_value *value);
    /** Of LT_FIELD_LIST, optional: the value of the flag that says what a preset has, for --print-config and
     *  config.yaml; an empty text: it has nothing. */
    void (*write)(const void *config, char *text, size_t size);
} lt_optim_field;

/** Settings under a name, with the learning rate that belongs to them. */
typedef struct lt_optim_preset {
    const char *name; /**< NULL: the family has one preset, and --preset is not for it */
    double lr;
    const void *config; /**< the config struct */
} lt_optim_preset;

/** An optimizer's row. */
typedef struct lt_optim_family {
    const char *name;  /**< of --optim and of "optim" in JSON */
    const char *group; /**< heading of its own flags in --help; NULL: "Optimizer" */
    size_t config_bytes;
    const lt_optim_field *field; /**< in the order of --help */
    size_t fields;
    const lt_optim_preset *preset; /**< the first one has the defaults of flags; at least one */
    size_t presets;
    const char *preset_help; /**< what they are; NULL with one that has no name */
    const void *published;   /**< defaults of JSON's keys; NULL: those of flags */
    bool divided;            /**< several ranks always divide its state */
    /** The constructor. lr: the largest of the run. */
    lt_status (*make)(lt_optim **out, const lt_params *params, const void *config, double lr);
} lt_optim_family;

/** From now on the optimizer is known by its name: to --optim of this program, with its fields as
 *  flags, to JSON and to lt_optim_open(). Borrows the row, for ever. Before other threads use the
 *  library. Errors: LT_E_ARG (the name is taken; the row contradicts itself or another one: the
 *  message names the field), LT_E_NOMEM (more than LT_MAX_OPTIM_FAMILIES). */
LT_API LT_MUST_CHECK lt_status lt_optim_register(const lt_optim_family *family);
enum { LT_MAX_OPTIM_FAMILIES = 64 };

/** Family number index, in the order of registration; NULL past the end. */
LT_API const lt_optim_family *lt_optim_family_at(size_t index);
/** NULL: there is none of that name. */
LT_API const lt_optim_family *lt_optim_family_named(const char *name);

/** For make: whether every field of config is in its range. Errors: LT_E_ARG, "sgd: momentum 1 is not
 *  in [0,1)". */
LT_API LT_MUST_CHECK lt_status lt_optim_check(const lt_optim_family *family, const void *config);

#endif
