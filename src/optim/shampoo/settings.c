/* Shampoo's options per dimension (exponents, ignored basis changes), read from flags and from JSON, and the check
 * for contradictions between options. Ranges are checked by their fields. */

#include "optim/shampoo/settings.h"

#include "optim/methods/orthogonal.h"

#include "lather/detail/roots.h"
#include "lather/detail/text.h"
#include "lather/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Flags --- */

/* Returns the ORDER of "ORDER:...", or 0 if invalid. */
static int parse_order(const char *text)
{
    char *end;
    const long order = strtol(text, &end, 10);
    return *end == ':' && order >= 1 && order <= LT_MAX_DIMS ? (int)order : 0;
}

/* Parses "0.5", one exponent for all factors, or "2:0.5,0", those of blocks with two dimensions. */
lt_status lt_shampoo_set_exponents(void *config, const char *text)
{
    lt_exponents *e = &((lt_shampoo_config *)config)->inverse_exponent;
    double value[LT_MAX_DIMS];
    const char *colon = strchr(text, ':');
    int order = colon ? parse_order(text) : 1;
    if (!order || lt_text_numbers(colon ? colon + 1 : text, value, LT_MAX_DIMS) != order)
        return lt_fail(LT_E_ARG, "--inverse-exponent: '%s' is neither E nor ORDER:E,...", text);
    for (int o = order; o <= (colon ? order : LT_MAX_DIMS); o++)
        for (int d = 0; d < o; d++) {
            e->value[o][d] = value[colon ? d : 0];
            e->set[o][d] = true;
        }
    return LT_OK;
}

/* Writes the first order that has exponents; no preset has more than one. */
void lt_shampoo_write_exponents(const void *config, char *text, size_t size)
{
    const lt_exponents *e = &((const lt_shampoo_config *)config)->inverse_exponent;
    size_t used = 0;
    for (int o = 1; o <= LT_MAX_DIMS && !used; o++)
        for (int d = 0; d < o && e->set[o][0] && used < size; d++)
            used += (size_t)(d ? snprintf(text + used, size - used, ",%g", e->value[o][d])
                               : snprintf(text, size, "%d:%g", o, e->value[o][d]));
}

lt_status lt_shampoo_set_coefficients(void *config, const char *text)
{
    return lt_orthogonal_set_coeffs(&((lt_shampoo_config *)config)->orthogonalization, text);
}

lt_status lt_shampoo_read_coefficients(void *config, const lt_json_value *v)
{
    return lt_orthogonal_read_coeffs(&((lt_shampoo_config *)config)->orthogonalization, v);
}

/* Parses "3:0,2": dimensions 0 and 2 of blocks with three dimensions. */
lt_status lt_shampoo_set_ignored_dims(void *config, const char *text)
{
    lt_shampoo_config *c = config;
    double dim[LT_MAX_DIMS];
    int order = parse_order(text);
    int count = order ? lt_text_numbers(strchr(text, ':') + 1, dim, LT_MAX_DIMS) : 0;
    if (count < 1)
        return lt_fail(LT_E_ARG, "--ignored-basis-change-dims: '%s' is not ORDER:DIM,...", text);
    for (int i = 0; i < count; i++) {
        if (dim[i] > order - 1 || dim[i] > (int)dim[i])
            return lt_fail(LT_E_ARG,
                           "--ignored-basis-change-dims: dimension %g of order %d is not in [0,%d]",
                           dim[i], order, order - 1);
        c->ignored_basis_change_dims[order][(int)dim[i]] = true;
    }
    return LT_OK;
}

/* --- JSON --- */

/* Returns the number in an object's key, below limit, or -1 if invalid. */
static int key_number(const char *text, int limit)
{
    return text[0] >= '0' && text[0] < '0' + limit && !text[1] ? text[0] - '0' : -1;
}

/* Reads {"0": 0.5, ...}: exponents of some dimensions of one order. */
static lt_status read_dim_exponents(lt_exponents *e, int order, const lt_json_value *v)
{
    for (const lt_json_value *m = v->child; m; m = m->next) {
        int dim = key_number(m->key, order);
        if (dim < 0 || m->type != LT_JSON_NUMBER)
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: key '%s' of order %d must be a dimension below "
                           "the order, its value a number",
                           v->key, m->key, order);
        e->set[order][dim] = true;
        e->value[order][dim] = m->number;
    }
    return LT_OK;
}

/* Reads {"2": 0.5, "1": {"0": 0}}: exponents of all or some dimensions, by order. */
lt_status lt_shampoo_read_exponents(void *config, const lt_json_value *v)
{
    lt_exponents *e = &((lt_shampoo_config *)config)->inverse_exponent;
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_OBJECT)
        return lt_fail(LT_E_ARG,
                       "optimizer config: %s must be an object: {order: exponent or {dimension: "
                       "exponent}}",
                       v->key);
    for (const lt_json_value *m = v->child; m; m = m->next) {
        int order = key_number(m->key, LT_MAX_DIMS + 1);
        if (order < 0 || (m->type != LT_JSON_NUMBER && m->type != LT_JSON_OBJECT))
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: key '%s' must be an order in [0,%d], its value "
                           "a number or an object",
                           v->key, m->key, LT_MAX_DIMS);
        if (m->type == LT_JSON_OBJECT)
            LT_TRY(read_dim_exponents(e, order, m));
        for (int d = 0; d < LT_MAX_DIMS && m->type == LT_JSON_NUMBER; d++) {
            e->set[order][d] = true;
            e->value[order][d] = m->number;
        }
    }
    return LT_OK;
}

static lt_status read_ignored_dims(bool *dims, int order, const char *key,
                                   const lt_json_value *list)
{
    for (const lt_json_value *m = list->child; m; m = m->next) {
        if (m->type != LT_JSON_NUMBER || !m->is_integer || m->integer < 0 || m->integer >= order)
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: dimensions of order %d must be in "
                           "[0,%d]",
                           key, order, order - 1);
        dims[m->integer] = true;
    }
    return LT_OK;
}

/* Reads {"2": [0], "3": [0, 2]}: dimensions by order. */
lt_status lt_shampoo_read_ignored_dims(void *config, const lt_json_value *v)
{
    lt_shampoo_config *c = config;
    if (v->type == LT_JSON_NULL)
        return LT_OK;
    if (v->type != LT_JSON_OBJECT)
        return lt_fail(LT_E_ARG,
                       "optimizer config: %s must be an object: {order: [dimension, "
                       "...]}",
                       v->key);
    for (const lt_json_value *m = v->child; m; m = m->next) {
        int order = key_number(m->key, LT_MAX_DIMS + 1);
        if (order < 0 || m->type != LT_JSON_ARRAY)
            return lt_fail(LT_E_ARG,
                           "optimizer config: %s: key '%s' must be an order in [0,%d], its value "
                           "a list",
                           v->key, m->key, LT_MAX_DIMS);
        LT_TRY(read_ignored_dims(c->ignored_basis_change_dims[order], order, v->key, m));
    }
    return LT_OK;
}

/* Reads an integer, raised to 1 if lower, or Infinity, which is LT_NO_LIMIT. */
lt_status lt_shampoo_read_dimensionality(void *config, const lt_json_value *v)
{
    int *field = &((lt_shampoo_config *)config)->target_dimensionality;
    *field = LT_NO_LIMIT;
    if (v->type == LT_JSON_STRING && !strcmp(v->string, "inf"))
        return LT_OK;
    if (v->type != LT_JSON_NUMBER || !v->is_integer)
        return lt_fail(LT_E_ARG, "optimizer config: %s must be an integer or Infinity", v->key);
    *field = v->integer < 1 ? 1 : v->integer > LT_MAX_DIMS ? LT_MAX_DIMS : (int)v->integer;
    return LT_OK;
}

/* --- Contradictions --- */

static lt_status check_exponents(const lt_shampoo_config *c)
{
    const lt_exponents *e = &c->inverse_exponent;
    for (int order = 0; order <= LT_MAX_DIMS; order++)
        for (int d = 0; d < LT_MAX_DIMS; d++)
            if (e->set[order][d] && !(e->value[order][d] >= 0 && isfinite(e->value[order][d])))
                return lt_fail(LT_E_ARG,
                               "shampoo: inverse_exponent %g of order %d, dimension %d is not in "
                               "[0,inf)",
                               e->value[order][d], order, d);
    return LT_OK;
}

/* With the eigenvalue correction a block has one exponent, that of its first dimension. */
static lt_status check_one_exponent_per_block(const lt_shampoo_config *c)
{
    const lt_exponents *e = &c->inverse_exponent;
    for (int order = 2; order <= LT_MAX_DIMS; order++)
        for (int d = 1; d < order; d++)
            if (e->set[order][d] && !(e->set[order][0] && e->value[order][d] == e->value[order][0]))
                return lt_fail(LT_E_ARG,
                               "shampoo: inverse_exponent of order %d differs between dimensions "
                               "0 and %d: with an eigenvalue correction a block has one",
                               order, d);
    return LT_OK;
}

/* The logarithms of two KL factors' scales move by -1 along themselves and by -2 e along each other: with 4 e f > 1 their
 * difference grows exponentially, with 1 by up to 1 - beta2 a step, while updates depend on the product alone. */
static lt_status check_kl_exponents(const lt_shampoo_config *c)
{
    const lt_exponents *e = &c->inverse_exponent;
    const double range = 88; /* natural logarithm of the largest f32 */
    for (int order = 2; order <= LT_MAX_DIMS; order++) {
        double most = 0, second = 0;
        for (int d = 0; d < order; d++) {
            const double x = e->set[order][d] ? e->value[order][d] : 0.5 / order;
            second = fmax(second, fmin(most, x));
            most = fmax(most, x);
        }
        if (4 * most * second > 1)
            return lt_fail(
                LT_E_ARG,
                "shampoo: kl with inverse_exponent %g and %g of order %d: above a product "
                "of 1/4 one factor grows and the other shrinks, ever faster",
                most, second, order);
        if (4 * most * second >= 1 && c->beta2 < 1)
            lt_log(
                LT_LOG_WARN, "optim",
                "shampoo: kl with inverse_exponent %g and %g of order %d: in blocks of unequal "
                "sides one factor grows and the other shrinks; f32 holds them for about %.0f steps",
                most, second, order, range / (1 - c->beta2));
    }
    return LT_OK;
}

static lt_status check_start(const lt_shampoo_config *c)
{
    if (c->start_preconditioning_step >= c->precondition_frequency || !lt_shampoo_has_factors(c))
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "shampoo: start_preconditioning_step %" PRId64 " is not in [%" PRId64
                   ",inf) (at least precondition_frequency; -1: equal to it)",
                   c->start_preconditioning_step, c->precondition_frequency);
}

static lt_status check_contradictions(const lt_shampoo_config *c)
{
    if (!(c->epsilon > 0) && c->epsilon_rule != LT_EPSILON_PSEUDO_INVERSE)
        return lt_fail(LT_E_ARG, "shampoo: epsilon 0 is not in (0,inf), as a factor of less than "
                                 "full rank has no inverse; epsilon_rule pseudo_inverse allows 0");
    if (lt_shampoo_is_corrected(c))
        LT_TRY(check_one_exponent_per_block(c));
    else if (lt_shampoo_is_kl(c))
        LT_TRY(check_kl_exponents(c));
    if (lt_shampoo_decays_by_lr(c) && !(c->peak_lr > 0 && isfinite(c->peak_lr)))
        return lt_fail(LT_E_ARG, "shampoo: peak_lr %g is not in (0,inf)", c->peak_lr);
    return LT_OK;
}

static lt_status check_factor_storage(const lt_shampoo_config *c)
{
    if (c->packed_factors && c->factor_dtype != LT_STATE_F32)
        return lt_fail(LT_E_ARG, "shampoo: packed_factors contradicts factor_dtype: it applies to "
                                 "f32, other dtypes are always packed");
    if (lt_shampoo_compresses_factors(c) && c->refresh_timing == LT_REFRESH_ASYNC)
        return lt_fail(LT_E_ARG,
                       "shampoo: refresh async contradicts %s: its thread needs the roots in f32 "
                       "during the step",
                       c->packed_factors ? "packed_factors" : "factor_dtype below f32");
    if (c->per_param_steps && c->factor_frequency > 1)
        return lt_fail(LT_E_ARG,
                       "shampoo: per_param_steps contradicts factor_frequency %" PRId64
                       ", which counts all steps",
                       c->factor_frequency);
    if (c->start_preconditioning_step < c->factor_frequency)
        return lt_fail(LT_E_ARG,
                       "shampoo: factor_frequency %" PRId64
                       " is above start_preconditioning_step %" PRId64 ": factors would be 0 there",
                       c->factor_frequency, c->start_preconditioning_step);
    return LT_OK;
}

/* Gradients that a factor in fewer bits than f32 sees between two refreshes. */
static const int64_t gradients_per_root = 4;

static void fill_defaults(lt_shampoo_config *c)
{
    static const double beta2[] = {
        [LT_GRAFTING_NONE] = 1,       [LT_GRAFTING_SGD] = 1,      [LT_GRAFTING_ADAGRAD] = 1,
        [LT_GRAFTING_RMSPROP] = 0.99, [LT_GRAFTING_ADAM] = 0.999,
    };
    if (c->beta3 < 0)
        c->beta3 = c->beta1;
    if (c->grafting_beta2 < 0)
        c->grafting_beta2 = beta2[c->grafting];
    if (c->start_preconditioning_step == -1)
        c->start_preconditioning_step = c->precondition_frequency;
    if (!c->factor_frequency)
        c->factor_frequency =
            c->factor_dtype == LT_STATE_F32
                ? 1
                : (c->precondition_frequency + gradients_per_root - 1) / gradients_per_root;
}

lt_status lt_shampoo_resolve_config(lt_shampoo_config *c)
{
    fill_defaults(c);
    LT_TRY(check_exponents(c));
    LT_TRY(check_start(c));
    LT_TRY(check_contradictions(c));
    LT_TRY(check_factor_storage(c));
    return lt_shampoo_has_factors(c) ? lt_root_check(c, 0, "shampoo") : LT_OK;
}
