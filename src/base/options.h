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

struct lt_options {
    const lt_program *program;
    void *values;
    lt_option_source *source; /* by row */
    char **string;            /* by row: what a string field points to; owned */
    lt_options_request asked;
    char **rest;
    size_t rest_count;
    char **argument;
    int argument_count;
};

/* Row that goes by that name, or NULL; name need not end in NUL. */
const lt_option *lt_options_find(const lt_options *o, const char *name, size_t bytes);
/* LT_E_ARG, with the name that comes nearest. */
lt_status lt_options_unknown(const lt_options *o, const char *name, size_t bytes);
size_t lt_options_row(const lt_options *o, const lt_option *option);

/* Sets the field of a row from text, unless a stronger source has: then text is only checked. */
lt_status lt_options_assign(lt_options *o, const lt_option *option, const char *value,
                            lt_option_source source);
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

lt_status lt_options_write_help(const lt_options *o, FILE *out);
lt_status lt_options_write_man(const lt_options *o, FILE *out);

#endif
