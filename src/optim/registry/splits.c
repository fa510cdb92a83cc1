/* Joined parameters: parsing of the option `split`, its rules, and views of the parts. */

#include "splits.h"

#include "base/alloc.h"
#include "names.h"
#include "tensor/tensor.h"

#include "lather/ext/fail.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char form[] = "REGEX:DIM:PARTS, qkv or none";

/* Parses the integer between text and end; returns false if invalid or implausible. */
static bool parse_integer(const char *text, const char *end, int *out)
{
    char *stop;
    const long value = strtol(text, &stop, 10);
    *out = (int)value;
    return stop == end && stop > text && value > -LT_MAX_DIMS - 1 && value < INT_MAX;
}

/* Returns the last colon before end, or NULL. */
static const char *colon_before(const char *text, const char *end)
{
    while (end > text && end[-1] != ':')
        end--;
    return end > text ? end - 1 : NULL;
}

static lt_status parse_split(lt_param_split *out, const char *what, const char *text)
{
    lt_param_split s = {.parts = 0};
    const char *end = text + strlen(text), *second = colon_before(text, end);
    const char *first = second ? colon_before(text, second) : NULL;
    if (!first || first == text || !parse_integer(first + 1, second, &s.dim)
        || !parse_integer(second + 1, end, &s.parts) || s.parts < 2)
        return lt_fail(LT_E_ARG, "%s: '%s' is not %s", what, text, form);
    char names[LT_NAME_REGEX_BYTES] = "";
    const size_t bytes = (size_t)(first - text);
    if (bytes >= sizeof names)
        return lt_fail(LT_E_ARG, "%s: pattern of %zu bytes exceeds the limit of %zu", what, bytes,
                       sizeof names - 1);
    memcpy(names, text, bytes);
    LT_TRY(lt_name_regex_set(&s.names, what, names));
    *out = s;
    return LT_OK;
}

static int count_splits(const lt_param_split *list)
{
    int count = 0;
    while (count < LT_MAX_SPLITS && *list[count].names.text)
        count++;
    return count;
}

/* Appends a split rule; "none" removes all. */
static lt_status add_split(lt_param_split *list, const char *what, const char *text)
{
    static const lt_param_split qkv[] = {LT_SPLIT_QKV};
    const bool known = !strcmp(text, "qkv");
    const size_t more = known ? sizeof qkv / sizeof *qkv : 1;
    const int count = count_splits(list);
    if (!strcmp(text, "none")) {
        memset(list, 0, LT_MAX_SPLITS * sizeof *list);
        return LT_OK;
    }
    if ((size_t)count + more > LT_MAX_SPLITS)
        return lt_fail(LT_E_ARG, "%s: '%s' exceeds the limit of %d rules", what, text,
                       LT_MAX_SPLITS);
    if (!known)
        return parse_split(&list[count], what, text);
    memcpy(&list[count], qkv, sizeof qkv);
    return LT_OK;
}

lt_status lt_splits_set(lt_param_split *list, const char *text)
{
    return add_split(list, "--split", text);
}

lt_status lt_splits_read(lt_param_split *list, const lt_json_value *v)
{
    memset(list, 0, LT_MAX_SPLITS * sizeof *list);
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_ARRAY)
        return lt_fail(LT_E_ARG, "optimizer config: split must be a list of strings");
    for (const lt_json_value *m = v->child; m; m = m->next) {
        if (m->type != LT_JSON_STRING)
            return lt_fail(LT_E_ARG, "optimizer config: split must be a list of strings");
        LT_TRY(add_split(list, "optimizer config: split", m->string));
    }
    return LT_OK;
}

/* --- Parts of parameters --- */

static lt_status split_param(const lt_param_split *s, const char *what, const lt_param *param,
                             lt_split *out)
{
    const lt_shape shape = lt_tensor_shape(param->value);
    char text[LT_SHAPE_TEXT];
    const int dim = s->dim < 0 ? s->dim + shape.ndim : s->dim;
    if (dim < 0 || dim >= shape.ndim)
        return lt_fail(LT_E_ARG, "%s: no dimension %d in %s, which is %s", what, s->dim,
                       param->name, lt_shape_text(shape, text));
    if (shape.dim[dim] % s->parts || !shape.dim[dim])
        return lt_fail(LT_E_ARG, "%s: dimension %d of %s, %s, cannot be split into %d equal parts",
                       what, dim, param->name, lt_shape_text(shape, text), s->parts);
    *out = (lt_split){dim, s->parts};
    return LT_OK;
}

/* Applies a rule to the parameters that match it. match: workspace, one flag per slot. */
static lt_status apply_rule(const lt_param_split *s, const char *what, const lt_optim *optim,
                            bool *match, lt_split *split)
{
    LT_TRY(lt_name_regex_match(&s->names, what, optim, match));
    for (size_t i = 0; i < optim->count; i++)
        if (match[i])
            LT_TRY(split_param(s, what, optim->slot[i].param, &split[i]));
    return LT_OK;
}

lt_status lt_splits_match(const lt_param_split *list, const char *optimizer, const lt_optim *optim,
                          lt_split *split)
{
    char what[64];
    bool *match = NULL;
    lt_status st = LT_ALLOC(&match, optim->count);
    snprintf(what, sizeof what, "%s: split", optimizer);
    for (size_t i = 0; i < optim->count; i++)
        split[i] = (lt_split){.parts = 1};
    for (int k = 0; k < LT_MAX_SPLITS && !st; k++)
        st = apply_rule(&list[k], what, optim, match, split);
    lt_free(match);
    return st;
}

lt_shape lt_split_shape(lt_split split, lt_shape parameter)
{
    if (parameter.ndim)
        parameter.dim[split.dim] /= split.parts;
    return parameter;
}

lt_view lt_split_view(lt_split split, int part, const lt_view *parameter)
{
    lt_view v = *parameter;
    if (split.parts == 1)
        return v;
    v.shape = lt_split_shape(split, v.shape);
    const int64_t start = part * v.shape.dim[split.dim] * v.stride[split.dim];
    if (v.data) /* a tensor may have no memory */
        v.data = (char *)v.data + (size_t)start * lt_dtype_size(v.dtype);
    v.version = 0;
    return v;
}
