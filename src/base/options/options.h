/* Private declarations of lather/options.h, for the files that parse, convert and print. */
#ifndef LT_BASE_OPTIONS_H
#define LT_BASE_OPTIONS_H

#include "lather/options.h"

/* Source of a value; a later one in this list takes precedence. */
typedef enum lt_option_source {
    LT_OPTION_FROM_TABLE,
    LT_OPTION_FROM_FILE,
    LT_OPTION_FROM_USER
} lt_option_source;

enum { LT_OPTION_NAME = 64 }; /* bytes of a name, with its NUL */

typedef struct lt_option_row {
    const lt_option *option;
    void *field; /* where the value is stored, in the struct of its table */
    lt_option_source source;
    bool common;  /* --help without a topic lists the option */
    char *string; /* value of a string field; owned */
} lt_option_row;

struct lt_options {
    const lt_program *program;
    lt_option_row *row; /* options of all tables, in the order of --help */
    size_t count;
    lt_options_request asked;
    char topic[LT_OPTION_NAME]; /* topic of --help: "all", a group or an option; "" if absent */
    char **rest;
    size_t rest_count;
    char **argument;
    int argument_count;
};

/* Returns the next value of --NAME=VALUE or --NAME VALUE on a command line and advances *at, initially 1, past it; NULL
 * after the last one. `--` ends the options. Skips a flag without a value. */
const char *lt_options_next_value(const char *name, int argc, char *const *argv, int *at);
/* Returns the last value, which counts unless the option is a list; NULL if absent. */
const char *lt_options_last_value(const char *name, int argc, char *const *argv);
/* Returns the row with this name (or alias), or NULL; name need not end in NUL. */
lt_option_row *lt_options_find(const lt_options *o, const char *name, size_t bytes);
/* Returns true if name, which need not end in NUL, equals known; '_' counts as '-'. */
bool lt_options_is_named(const char *known, const char *name, size_t bytes);
/* Returns LT_E_ARG with a message on an unknown name: the replacement of a removed option, or the nearest name. */
lt_status lt_options_unknown_error(const lt_options *o, const char *name, size_t bytes);
/* Returns the option that topic names, with or without dashes, or NULL. */
const lt_option *lt_options_topic_option(const lt_options *o, const char *topic);
/* Returns true if topic is a group of --help (or General), ignoring case. */
bool lt_options_is_group(const lt_options *o, const char *topic);
/* Checks that topic is "all", a group or an option. Errors: LT_E_ARG, with the nearest topic. */
lt_status lt_options_check_topic(const lt_options *o, const char *topic);
/* Rejects removed options and values: LT_E_ARG with the replacement. value: value of an existing option, or NULL. Also
 * accepts JSON keys, whose '_' counts as '-'. */
lt_status lt_options_check_removed(const char *name, size_t bytes, const char *value);
/* Returns true if value was the default of a removed option, which config files of older versions contain and which is
 * ignored. */
bool lt_options_is_removed_default(const char *name, const char *value);
/* Gets row `index` of the list of removed options; false past the end. *value: the removed value, or NULL if the option
 * itself was removed. */
bool lt_options_list_removed(size_t index, const char **name, const char **value);
/* Checks that no row and no built-in option has the option's name or alias yet. Errors: LT_E_ARG. */
lt_status lt_options_check_names(const lt_options *o, const lt_option *option);

/* Fills o->row from the program's tables; checks that defaults are in range and refer to choices of the selector.
 * Errors: as lt_options_compose(). */
lt_status lt_options_gather(lt_options *o, const lt_option_table *table, size_t count);

/* Sets the field of a row from text; if a stronger source has set it, only checks the text. */
lt_status lt_options_assign(lt_option_row *row, const char *value, lt_option_source source);
/* Writes the shortest digits that parse to value. */
void lt_options_number(char *text, size_t size, double value);
/* Checks that value is valid for the option. Errors: LT_E_ARG. */
lt_status lt_options_check_value(const lt_option *option, const char *value);
/* Returns the option's default for the selector's choice, or NULL; text: buffer of size bytes. */
const char *lt_options_default(const lt_options *o, const lt_option *option, char *text,
                               size_t size);
/* Returns the options of which an option needs one, lt_option.applies with dashes; NULL if none. */
const char *lt_options_needs(const lt_option *option);
/* Writes them as --help and messages show them: "--sched step, multistep or plateau". */
void lt_options_format_needs(const char *needs, char *text, size_t size);
/* Checks that the options and choices that an option needs exist. Errors: LT_E_ARG. */
lt_status lt_options_check_needs_row(const lt_options *o, const lt_option *option);
/* Rejects options that were set but that the others leave unread. Errors: LT_E_ARG. */
lt_status lt_options_check_needs(const lt_options *o);
/* Returns true if word is in list, whose words are divided by any of the separators. */
bool lt_options_has_word(const char *list, const char *word, const char *separators);
/* Returns item `index` of "a|b|c" and sets *bytes to its length; NULL past the end. */
const char *lt_options_item(const char *choices, int index, int *bytes);

/* Built-in options of every program. */
typedef struct lt_option_builtin {
    const char *name, *meta, *help;
    char alias;
    lt_options_request asks; /* the request; LT_OPTIONS_RUN: to read a config file */
} lt_option_builtin;
extern const lt_option_builtin lt_option_builtins[];
extern const size_t lt_option_builtin_count;
/* Returns a built-in option by name, or NULL. */
const lt_option_builtin *lt_options_find_builtin(const char *name, size_t bytes);
/* Returns the built-in option that topic names, with or without dashes, or NULL. */
const lt_option_builtin *lt_options_topic_builtin(const char *topic);

#endif
