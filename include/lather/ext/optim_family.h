/** Registry of optimizers: one row per optimizer defines its flags and their help, its JSON keys, its presets
 *  and its ranges. Start from src/optim/methods/adagrad.c. */
#ifndef LATHER_EXT_OPTIM_FAMILY_H
#define LATHER_EXT_OPTIM_FAMILY_H

#include "lather/detail/json.h"
#include "lather/ext/optim.h"

/** Type of an option in the optimizer's config struct. */
typedef enum lt_field_type {
    LT_FIELD_REAL,   /**< double; JSON null is unset */
    LT_FIELD_COUNT,  /**< int64_t; JSON Infinity is the largest */
    LT_FIELD_LIMIT,  /**< int64_t; 0: no limit, Infinity in JSON */
    LT_FIELD_SMALL,  /**< a C int */
    LT_FIELD_FLAG,   /**< a C bool */
    LT_FIELD_CHOICE, /**< enumeration of int's size; 0 is the first of choices */
    LT_FIELD_SCOPE,  /**< lt_decay_scope; as a flag, true is LT_DECAY_ALL and false the default */
    LT_FIELD_LIST    /**< any type; set and read fill it, a flag may be repeated */
} lt_field_type;

/** An option of an optimizer. Options of several optimizers with the same name are one flag, and must have
 *  the same type and choices. */
typedef struct lt_optim_field {
    const char *name; /**< key in JSON; the flag has '-' for '_' */
    lt_field_type type;
    size_t offset;    /**< offsetof(...) in the config struct */
    double low, high; /**< range of numbers, including low; HUGE_VAL: no limit */
    bool below;       /**< the range excludes high itself */
    double unset;     /**< value for "unset", which may be out of range, if unset_means is set */
    const char *unset_means; /**< meaning of that value, such as "beta1"; NULL: no such value */
    const char *choices;     /**< names of the choices: "none|sgd|adam" */
    bool shared;             /**< listed under "Optimizer" whatever the optimizer's group */
    bool flag_only;          /**< no JSON key, and no preset sets it */
    const char *meta;        /**< placeholder of a list's value in --help: "ORDER:DIM,..." */
    bool common;             /**< the option is listed by plain --help */
    bool rare;               /**< no own flag: --opt-kwargs NAME=VALUE */
    bool in_state;           /**< the meaning or layout of saved state depends on it */
    const char *also;        /**< other names of the flag, or NULL */
    const char *help;        /**< one sentence; NULL: that of another optimizer's option */
    /** Optional: returns true if the other settings let this option be read. If not, it gets the value
     *  neutral, and a flag with another value is an error: "--beta3: needs --beta1 above 0". */
    bool (*is_read)(const void *config);
    const char *needs; /**< condition of is_read, for the message: "--beta1 above 0" */
    double neutral;
    /** Optional: replaces a preset's value that does not fit the user's flags. */
    void (*derive)(void *config);
    /** For LT_FIELD_LIST: set parses one value of the flag, read the JSON
     *  value; other types may also have a read, which replaces the JSON
     *  parser of their type. Errors: LT_E_ARG, naming flag or key. */
    lt_status (*set)(void *config, const char *text);
    lt_status (*read)(void *config, const lt_json_value *value);
    /** For LT_FIELD_LIST, optional: writes the flag's value of a preset for --print-config and config.yaml,
     *  or "" if unset. */
    void (*write)(const void *config, char *text, size_t size);
} lt_optim_field;

/** A named config with its learning rate. */
typedef struct lt_optim_preset {
    const char *name; /**< name for --preset; NULL: the only preset, without --preset */
    double lr;
    const void *config; /**< config struct with the preset's values */
} lt_optim_preset;

/** Row of an optimizer. */
typedef struct lt_optim_family {
    const char *name;  /**< value of --optim and of "optim" in JSON */
    const char *group; /**< heading of its flags in --help; NULL: "Optimizer" */
    size_t config_bytes;
    const lt_optim_field *field; /**< options in the order of --help */
    size_t fields;
    const lt_optim_preset *preset; /**< at least one; the first has the defaults of flags */
    size_t presets;
    const char *preset_help; /**< help of --preset; NULL if the only preset has no name */
    const void *published;   /**< defaults of JSON keys: config struct; NULL: those of flags */
    bool divided;            /**< the optimizer's state is always sharded over several ranks */
    /** Constructor. lr: peak learning rate of the run. */
    lt_status (*make)(lt_optim **out, const lt_params *params, const void *config, double lr);
} lt_optim_family;

/** Registers an optimizer: --optim of this program with its options as flags, JSON and lt_optim_open() know
 *  its name. Borrows the row forever. Call before other threads use the library.
 *  Errors: LT_E_ARG (the name is taken; the row contradicts itself or another one: names the field),
 *  LT_E_NOMEM (more than LT_MAX_OPTIM_FAMILIES). */
LT_API LT_MUST_CHECK lt_status lt_optim_register(const lt_optim_family *family);
enum { LT_MAX_OPTIM_FAMILIES = 64 };

/** Returns optimizer number index in the order of registration, or NULL past the end. */
LT_API const lt_optim_family *lt_optim_family_at(size_t index);
/** Returns the optimizer of that name, or NULL if absent. */
LT_API const lt_optim_family *lt_optim_family_named(const char *name);

/** For make: checks the ranges of all fields. Errors: LT_E_ARG, as in "sgd: momentum 1 is not in [0,1)". */
LT_API LT_MUST_CHECK lt_status lt_optim_check(const lt_optim_family *family, const void *config);

#endif
