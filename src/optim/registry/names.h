/* Parameters that a setting is for, by their names. */
#ifndef LT_OPTIM_NAMES_H
#define LT_OPTIM_NAMES_H

#include "base/pattern.h"

#include "lather/detail/json.h"
#include "lather/detail/name_regex.h"
#include "lather/ext/optim.h"

/* to = text, which is optional no more; "none" and "" mean no parameter. what: the flag or key, for messages. Errors: LT_E_ARG (too long, no regular expression). */
LT_MUST_CHECK lt_status lt_names_set(lt_name_regex *to, const char *what, const char *text);
/* The same from JSON: a string, or null for none. */
LT_MUST_CHECK lt_status lt_names_read(lt_name_regex *to, const lt_json_value *value);

/* match[i]: whether the expression means the parameter of slot i. Errors: LT_E_ARG (it means none, and is not
 * optional). */
LT_MUST_CHECK lt_status lt_names_find(const lt_name_regex *names, const char *what,
                                      const lt_optim *optim, bool *match);

#endif
