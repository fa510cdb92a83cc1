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

/** Parameters that consist of several joined ones, such as those of queries, keys and values. */
typedef struct lt_param_split {
    lt_name_regex names;
    int dim;   /**< dimension of the parameter; -1 is the last */
    int parts; /**< equal parts along dim, treated as separate parameters */
} lt_param_split;
enum { LT_MAX_SPLITS = 8 };

#endif
