/** Parameters that a setting is for, by their names. */
#ifndef LATHER_DETAIL_NAME_REGEX_H
#define LATHER_DETAIL_NAME_REGEX_H

/* Not a stable interface: may change in any release. */

#include <stdbool.h>

enum { LT_NAME_REGEX_BYTES = 160 };

/** A POSIX extended regular expression: means each parameter in whose name it matches. Empty: none. */
typedef struct lt_name_regex {
    char text[LT_NAME_REGEX_BYTES];
    bool optional; /**< it may mean no parameter; else that is an error */
} lt_name_regex;

#endif
