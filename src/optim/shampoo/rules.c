/* Options that apply to parameters by name (split, one_sided, diagonal), read from flags and from JSON. */

#include "optim/registry/names.h"
#include "optim/shampoo/settings.h"

#include <limits.h>
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

static lt_status parse_split(lt_shampoo_split *out, const char *what, const char *text)
{
    lt_shampoo_split s = {.parts = 0};
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

static int count_splits(const lt_shampoo_config *c)
{
    int count = 0;
    while (count < LT_MAX_SPLITS && *c->split[count].names.text)
        count++;
    return count;
}

/* Appends a split rule; "none" removes all. */
static lt_status add_split(lt_shampoo_config *c, const char *what, const char *text)
{
    static const lt_shampoo_split qkv[] = {LT_SHAMPOO_SPLIT_QKV};
    const bool known = !strcmp(text, "qkv");
    const size_t more = known ? sizeof qkv / sizeof *qkv : 1;
    const int count = count_splits(c);
    if (!strcmp(text, "none")) {
        memset(c->split, 0, sizeof c->split);
        return LT_OK;
    }
    if ((size_t)count + more > LT_MAX_SPLITS)
        return lt_fail(LT_E_ARG, "%s: '%s' exceeds the limit of %d rules", what, text,
                       LT_MAX_SPLITS);
    if (!known)
        return parse_split(&c->split[count], what, text);
    memcpy(&c->split[count], qkv, sizeof qkv);
    return LT_OK;
}

lt_status lt_shampoo_set_split(void *config, const char *text)
{
    return add_split(config, "--split", text);
}

lt_status lt_shampoo_read_split(void *config, const lt_json_value *v)
{
    lt_shampoo_config *c = config;
    memset(c->split, 0, sizeof c->split);
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_ARRAY)
        return lt_fail(LT_E_ARG, "optimizer config: split must be a list of strings");
    for (const lt_json_value *m = v->child; m; m = m->next) {
        if (m->type != LT_JSON_STRING)
            return lt_fail(LT_E_ARG, "optimizer config: split must be a list of strings");
        LT_TRY(add_split(c, "optimizer config: split", m->string));
    }
    return LT_OK;
}

lt_status lt_shampoo_set_one_sided(void *config, const char *text)
{
    return lt_name_regex_set(&((lt_shampoo_config *)config)->one_sided, "--one-sided", text);
}

lt_status lt_shampoo_read_one_sided(void *config, const lt_json_value *v)
{
    return lt_name_regex_set_from_json(&((lt_shampoo_config *)config)->one_sided, v);
}

lt_status lt_shampoo_set_diagonal(void *config, const char *text)
{
    return lt_name_regex_set(&((lt_shampoo_config *)config)->diagonal, "--diagonal", text);
}

lt_status lt_shampoo_read_diagonal(void *config, const lt_json_value *v)
{
    return lt_name_regex_set_from_json(&((lt_shampoo_config *)config)->diagonal, v);
}
