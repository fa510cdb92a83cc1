/* Regular expressions that select parameters by name. */
#ifndef LT_OPTIM_NAMES_H
#define LT_OPTIM_NAMES_H

#include "base/pattern.h"

#include "lather/detail/json.h"
#include "lather/detail/name_regex.h"
#include "lather/ext/optim.h"

/* Sets the expression, which then must match a parameter; "none" and "" select none. what: the flag or key, for
 * messages. Errors: LT_E_ARG (too long, invalid). */
LT_MUST_CHECK lt_status lt_name_regex_set(lt_name_regex *to, const char *what, const char *text);
/* Sets the expression from JSON: a string, or null for none. */
LT_MUST_CHECK lt_status lt_name_regex_set_from_json(lt_name_regex *to, const lt_json_value *value);

/* Sets match[i] if the expression selects the parameter of slot i. Errors: LT_E_ARG (not optional, and nothing
 * matches). */
LT_MUST_CHECK lt_status lt_name_regex_match(const lt_name_regex *names, const char *what,
                                            const lt_optim *optim, bool *match);

#endif
