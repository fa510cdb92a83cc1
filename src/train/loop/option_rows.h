/* Rows of option tables. OF: the struct that the following rows fill. */
#ifndef LT_OPTION_ROWS_H
#define LT_OPTION_ROWS_H

#include "lather/options.h"

#define AT(field)            .offset = offsetof(OF, field)
#define BOOL(n, field)       .name = (n), .type = LT_OPTION_BOOL, AT(field)
#define INT(n, field, a, b)  .name = (n), .type = LT_OPTION_INT, AT(field), .min = (a), .max = (b)
#define NUM(n, field, a, b)  .name = (n), .type = LT_OPTION_DOUBLE, AT(field), .min = (a), .max = (b)
#define TEXT(n, field)       .name = (n), .type = LT_OPTION_STRING, AT(field)
#define PICK(n, field, list) .name = (n), .type = LT_OPTION_CHOICE, AT(field), .choices = (list)
#define LIST(n, field)       .name = (n), .type = LT_OPTION_LIST, AT(field)
#define PAIR(n)              .name = (n), .type = LT_OPTION_PAIR
#define MANY                 1e15

/* Defines a function that returns the table of these rows for a struct. */
/* NOLINTBEGIN(bugprone-macro-parentheses): `type` declares, `rows` is a name */
#define OPTION_TABLE(name, type, rows)                                 \
    lt_option_table name(type *o)                                      \
    {                                                                  \
        return (lt_option_table){rows, sizeof rows / sizeof *rows, o}; \
    }
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
