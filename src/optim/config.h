/* Inside of lather/optim_config.h: the table's rows and what a row's value becomes. */
#ifndef LT_OPTIM_CONFIG_H
#define LT_OPTIM_CONFIG_H

#include "base/json.h"

#include "lather/optim_config.h"

typedef enum lt_config_type {
    LT_CONFIG_REAL,
    LT_CONFIG_REAL_OR_NULL,   /* null: -1, the field's marker of a default */
    LT_CONFIG_COUNT,          /* an integer >= low in an int64_t; Infinity: the largest */
    LT_CONFIG_SMALL_COUNT,    /* an integer >= low in an int */
    LT_CONFIG_LIMIT,          /* a count, or Infinity: LT_NO_LIMIT */
    LT_CONFIG_DIMENSIONALITY, /* any integer; below 1 means the same as 1; Infinity: LT_NO_LIMIT */
    LT_CONFIG_FLAG,
    LT_CONFIG_CHOICE, /* an enumeration: its values in the order of the words */
    LT_CONFIG_EXPONENTS,
    LT_CONFIG_DIMENSIONS, /* {order: [dimension, ...]} */
    LT_CONFIG_SCHEDULE
} lt_config_type;

enum { LT_CONFIG_WORDS = 8 };

typedef struct lt_config_key {
    const char *name;
    unsigned kinds; /* bit k: of optimizer kind k */
    lt_config_type type;
    size_t offset; /* in lt_optim_config */
    int64_t low;   /* of counts */
    const char *word[LT_CONFIG_WORDS];
} lt_config_key;

/* Stores a value in the key's field. Errors: LT_E_ARG, naming the key and what it wants. */
lt_status lt_config_set(lt_optim_config *config, const lt_config_key *key, const lt_json_value *v);
lt_status lt_config_set_choice(int *field, const lt_config_key *key, const lt_json_value *v);

#endif
