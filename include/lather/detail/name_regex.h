/** Regular expressions that select parameters by name. */
#ifndef LATHER_DETAIL_NAME_REGEX_H
#define LATHER_DETAIL_NAME_REGEX_H

/* Not a stable interface: may change in any release. */

#include <stdbool.h>

enum { LT_NAME_REGEX_BYTES = 160 };

/** POSIX extended regular expression that selects each parameter in whose name it matches. Empty: selects
 *  none. */
typedef struct lt_name_regex {
    char text[LT_NAME_REGEX_BYTES];
    bool optional; /**< the expression may match no parameter; otherwise that is an error */
} lt_name_regex;

#endif
