/* Inside of lather/options.h: shared by the files that parse, convert, and print. */
#ifndef LT_BASE_OPTIONS_H
#define LT_BASE_OPTIONS_H

#include "lather/options.h"

/* Where a value came from; a later one overrides. */
typedef enum lt_option_source {
    LT_OPTION_FROM_TABLE,
    LT_OPTION_FROM_FILE,
    LT_OPTION_FROM_USER
} lt_option_source;

enum { LT_OPTION_NAME = 64 }; /* bytes of a name, with its NUL */

typedef struct lt_option_row {
    const lt_option *option;
    void *field; /* in the struct of its table */
    lt_option_source source;
    bool common;  /* listed by --help alone */
    char *string; /* what a string field points to; owned */
} lt_option_row;

struct lt_options {
    const lt_program *program;
    lt_option_row *row; /* of all tables, in the order of --help */
    size_t count;
    lt_options_request asked;
    char topic[LT_OPTION_NAME]; /* of --help: "all", a group, an option; "": none */
    char **rest;
    size_t rest_count;
    char **argument;
    int argument_count;
};

/* Row that goes by that name, or NULL; name need not end in NUL. */
lt_option_row *lt_options_find(const lt_options *o, const char *name, size_t bytes);
/* True if name, which need not end in NUL, is known; '_' counts as '-'. */
bool lt_options_is_named(const char *known, const char *name, size_t bytes);
/* LT_E_ARG, with what to use instead of an option of earlier versions, or the name that comes nearest. */
lt_status lt_options_unknown(const lt_options *o, const char *name, size_t bytes);
/* The option that --help TOPIC means, with or without its dashes, or NULL. */
const lt_option *lt_options_topic_option(const lt_options *o, const char *topic);
/* True if topic is a group of --help (General included), ignoring case. */
bool lt_options_is_group(const lt_options *o, const char *topic);
/* LT_E_ARG, with the nearest one, if topic is neither "all" nor a group nor an option. */
lt_status lt_options_check_topic(const lt_options *o, const char *topic);
/* Refuses what options_gone.c lists: LT_E_ARG, with what to use instead. value: NULL, or what an option that is still
 * there was given. Takes keys of JSON too, whose '_' counts as '-'. */
lt_status lt_options_check_gone(const char *name, size_t bytes, const char *value);
/* True if value was the default of a removed option: config files of older versions list it, and it is ignored. */
bool lt_options_is_gone_default(const char *name, const char *value);
/* Row number index of the list; false past the end. *value: NULL, or only this value is gone. */
bool lt_options_list_gone(size_t index, const char **name, const char **value);
/* LT_E_ARG if option has a name or an alias that a row or every program has. */
lt_status lt_options_check_names(const lt_options *o, const lt_option *option);

/* Fills o->row from the program's tables; each default is in range, and each choice that a row
 * speaks of is one of the selector's. Errors: as lt_options_compose(). */
lt_status lt_options_gather(lt_options *o, const lt_option_table *table, size_t count);

/* Sets the field of a row from text, unless a stronger source has: then text is only checked. */
lt_status lt_options_assign(lt_option_row *row, const char *value, lt_option_source source);
/* The shortest digits that read back as value. */
void lt_options_number(char *text, size_t size, double value);
/* Whether text is a value of that option. */
lt_status lt_options_check_value(const lt_option *option, const char *value);
/* The row's default for the selector's choice, or NULL; into text of size bytes. */
const char *lt_options_default(const lt_options *o, const lt_option *option, char *text,
                               size_t size);
/* Whether word is one of the words of list, which separator divides. */
bool lt_options_has_word(const char *list, const char *word, const char *separators);
/* Item number index of "a|b|c": its start, and its length in bytes; NULL past the end. */
const char *lt_options_item(const char *choices, int index, int *bytes);

/* Options that every program has. */
typedef struct lt_option_builtin {
    const char *name, *meta, *help;
    char alias;
    lt_options_request asks; /* LT_OPTIONS_RUN: takes a file */
} lt_option_builtin;
extern const lt_option_builtin lt_option_builtins[];
extern const size_t lt_option_builtin_count;
const lt_option_builtin *lt_options_find_builtin(const char *name, size_t bytes); /* or NULL */
/* The one that --help TOPIC means, or NULL. */
const lt_option_builtin *lt_options_topic_builtin(const char *topic);

#endif
