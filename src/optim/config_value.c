/* Values of optimizers' keys in JSON: types, ranges, and the fields they go to. */

#include "base/alloc.h"
#include "base/nearest.h"
#include "optim/config.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

static lt_status wrong_type(const lt_config_key *k, const char *want)
{
    return lt_fail(LT_E_ARG, "optimizer config: %s wants %s", k->name, want);
}

lt_status lt_config_set_choice(int *field, const lt_config_key *k, const lt_json_value *v)
{
    if (v->type != LT_JSON_STRING)
        return wrong_type(k, "a string");
    size_t words = 0;
    while (words < LT_CONFIG_WORDS && k->word[words])
        words++;
    for (size_t i = 0; i < words; i++)
        if (!strcmp(k->word[i], v->string)) {
            *field = (int)i;
            return LT_OK;
        }
    return lt_fail(LT_E_ARG, "optimizer config: %s has no value '%s'; the nearest is '%s'", k->name,
                   v->string, lt_nearest(v->string, k->word, words));
}

static lt_status get_count(const lt_config_key *k, const lt_json_value *v, int64_t *value)
{
    if (v->type != LT_JSON_NUMBER || !v->is_integer)
        return wrong_type(k, "an integer");
    if (v->integer < k->low || v->integer > INT_MAX)
        return lt_fail(LT_E_ARG, "optimizer config: %s %" PRId64 " is not in [%" PRId64 ",%d]",
                       k->name, v->integer, k->low, INT_MAX);
    *value = v->integer;
    return LT_OK;
}

static bool is_infinity(const lt_json_value *v)
{
    return v->type == LT_JSON_STRING && !strcmp(v->string, "inf");
}

static lt_status set_count(void *field, const lt_config_key *k, const lt_json_value *v)
{
    bool infinite = is_infinity(v) && k->type != LT_CONFIG_SMALL_COUNT;
    int64_t value = k->type == LT_CONFIG_LIMIT ? LT_NO_LIMIT : INT64_MAX;
    if (!infinite)
        LT_TRY(get_count(k, v, &value));
    if (k->type == LT_CONFIG_SMALL_COUNT)
        *(int *)field = (int)value;
    else
        *(int64_t *)field = value;
    return LT_OK;
}

static lt_status set_dimensionality(int *field, const lt_config_key *k, const lt_json_value *v)
{
    *field = LT_NO_LIMIT;
    if (is_infinity(v))
        return LT_OK;
    if (v->type != LT_JSON_NUMBER || !v->is_integer)
        return wrong_type(k, "an integer or Infinity");
    *field = v->integer < 1 ? 1 : v->integer > LT_MAX_DIMS ? LT_MAX_DIMS : (int)v->integer;
    return LT_OK;
}

/* The number that a key of an object spells, below limit; -1 if it spells none. */
static int key_number(const char *text, int limit)
{
    return text[0] >= '0' && text[0] < '0' + limit && !text[1] ? text[0] - '0' : -1;
}

/* {"0": 0.5, ...}: exponents of some dimensions of one order. */
static lt_status set_dims(lt_exponents *e, int order, const lt_config_key *k,
                          const lt_json_value *v)
{
    for (const lt_json_value *m = v->child; m; m = m->next) {
        int dim = key_number(m->key, order);
        if (dim < 0 || m->type != LT_JSON_NUMBER)
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: '%s' of order %d wants a dimension below the "
                           "order and a number",
                           k->name, m->key, order);
        e->set[order][dim] = true;
        e->value[order][dim] = m->number;
    }
    return LT_OK;
}

/* {"2": 0.5, "1": {"0": 0}}: exponents of all or some dimensions, by order. */
static lt_status set_exponents(lt_exponents *e, const lt_config_key *k, const lt_json_value *v)
{
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_OBJECT)
        return wrong_type(k, "an object: {order: exponent or {dimension: exponent}}");
    for (const lt_json_value *m = v->child; m; m = m->next) {
        int order = key_number(m->key, LT_MAX_DIMS + 1);
        if (order < 0 || (m->type != LT_JSON_NUMBER && m->type != LT_JSON_OBJECT))
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: '%s' wants an order in [0,%d], and a number or "
                           "an object",
                           k->name, m->key, LT_MAX_DIMS);
        if (m->type == LT_JSON_OBJECT)
            LT_TRY(set_dims(e, order, k, m));
        for (int d = 0; d < LT_MAX_DIMS && m->type == LT_JSON_NUMBER; d++) {
            e->set[order][d] = true;
            e->value[order][d] = m->number;
        }
    }
    return LT_OK;
}

static lt_status add_dims(bool *dims, int order, const lt_config_key *k, const lt_json_value *list)
{
    for (const lt_json_value *m = list->child; m; m = m->next) {
        if (m->type != LT_JSON_NUMBER || !m->is_integer || m->integer < 0 || m->integer >= order)
            return lt_fail(LT_E_ARG, "optimizer config: %s: order %d wants dimensions in [0,%d]",
                           k->name, order, order - 1);
        dims[m->integer] = true;
    }
    return LT_OK;
}

/* {"2": [0], "3": [0, 2]} */
static lt_status set_dimensions(bool dims[][LT_MAX_DIMS], const lt_config_key *k,
                                const lt_json_value *v)
{
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_OBJECT)
        return wrong_type(k, "an object: {order: [dimension, ...]}");
    for (const lt_json_value *m = v->child; m; m = m->next) {
        int order = key_number(m->key, LT_MAX_DIMS + 1);
        if (order < 0 || m->type != LT_JSON_ARRAY)
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: '%s' wants an order in [0,%d], and a list",
                           k->name, m->key, LT_MAX_DIMS);
        LT_TRY(add_dims(dims[order], order, k, m));
    }
    return LT_OK;
}

static lt_status set_schedule(lt_optim_config *c, const lt_config_key *k, const lt_json_value *v)
{
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_ARRAY)
        return wrong_type(k, "a list of numbers");
    if (!v->count)
        return LT_OK;
    c->schedule = lt_alloc(v->count, sizeof *c->schedule);
    if (!c->schedule)
        return LT_E_NOMEM;
    for (const lt_json_value *m = v->child; m; m = m->next) {
        if (m->type != LT_JSON_NUMBER)
            return wrong_type(k, "a list of numbers");
        c->schedule[c->schedule_count++] = m->number;
    }
    return LT_OK;
}

static lt_status set_real(double *field, const lt_config_key *k, const lt_json_value *v)
{
    bool null = v->type == LT_JSON_NULL && k->type == LT_CONFIG_REAL_OR_NULL;
    if (v->type != LT_JSON_NUMBER && !null)
        return wrong_type(k, k->type == LT_CONFIG_REAL ? "a number" : "a number or null");
    if (k->type == LT_CONFIG_REAL_OR_NULL && !null && v->number < 0)
        return lt_fail(LT_E_ARG, "optimizer config: %s %g is below 0", k->name, v->number);
    *field = null ? -1 : v->number;
    return LT_OK;
}

lt_status lt_config_set(lt_optim_config *c, const lt_config_key *k, const lt_json_value *v)
{
    void *field = (char *)c + k->offset;
    switch (k->type) {
    case LT_CONFIG_REAL:
    case LT_CONFIG_REAL_OR_NULL:
        return set_real(field, k, v);
    case LT_CONFIG_COUNT:
    case LT_CONFIG_SMALL_COUNT:
    case LT_CONFIG_LIMIT:
        return set_count(field, k, v);
    case LT_CONFIG_DIMENSIONALITY:
        return set_dimensionality(field, k, v);
    case LT_CONFIG_FLAG:
        if (v->type != LT_JSON_BOOL)
            return wrong_type(k, "true or false");
        *(bool *)field = v->boolean;
        return LT_OK;
    case LT_CONFIG_CHOICE:
        return lt_config_set_choice(field, k, v);
    case LT_CONFIG_EXPONENTS:
        return set_exponents(field, k, v);
    case LT_CONFIG_DIMENSIONS:
        return set_dimensions(field, k, v);
    case LT_CONFIG_SCHEDULE:
        return set_schedule(c, k, v);
    }
    return LT_OK;
}
