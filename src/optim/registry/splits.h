/* Joined parameters, such as those of queries, keys and values: the option `split`, and views of the parts. */
#ifndef LT_OPTIM_SPLITS_H
#define LT_OPTIM_SPLITS_H

#include "lather/detail/json.h"
#include "lather/detail/name_regex.h"
#include "lather/ext/optim.h"

/* A parameter's `parts` equal parts along dim; parts 1: it is not joined. */
typedef struct lt_split {
    int dim, parts;
} lt_split;

/* Appends the rules of a flag --split to a list of LT_MAX_SPLITS: "REGEX:DIM:PARTS", "qkv", or "none", which removes
 * all. Errors: LT_E_ARG (another form, too many rules). */
LT_MUST_CHECK lt_status lt_splits_set(lt_param_split *list, const char *text);
/* Replaces the list by that of a JSON value: strings of that form, or null for none. */
LT_MUST_CHECK lt_status lt_splits_read(lt_param_split *list, const lt_json_value *v);

/* Sets split[i] by the last rule that matches the parameter of slot i. optimizer: its name, for messages. Errors:
 * LT_E_ARG (a rule matches nothing, or a parameter that has no such dimension or no equal parts), LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_splits_match(const lt_param_split *list, const char *optimizer,
                                        const lt_optim *optim, lt_split *split);

/* Returns the shape of a part, and its view in the parameter's memory. */
lt_shape lt_split_shape(lt_split split, lt_shape parameter);
lt_view lt_split_view(lt_split split, int part, const lt_view *parameter);

/* Rules of "qkv": joined queries, keys and values under the names of torchvision, timm and PyTorch, joined along the
 * first dimension, and of GPT-2, joined along the last. */
#define LT_SPLIT_QKV                                            \
    {{"(^|[.])(in_proj_(weight|bias)|qkv[.].*)$", true}, 0, 3}, \
    {                                                           \
        {"(^|[.])c_attn[.](weight|bias)$", true}, -1, 3         \
    }

#endif
