/* Optimizers from JSON: one table of keys, each with its type and its field. */

#include "base/alloc.h"
#include "base/json.h"
#include "optim/nearest.h"

#include "lather/optim_config.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef enum type {
    REAL,
    REAL_OR_NULL,   /* null: -1, the field's marker of a default */
    COUNT,          /* an integer >= low */
    DIMENSIONALITY, /* any integer; below 1 means the same as 1 */
    FLAG,
    CHOICE, /* an enumeration: its values in the order of the words */
    EXPONENTS,
    SCHEDULE
} type;

enum { MAX_WORDS = 6 };

typedef struct key {
    const char *name;
    unsigned kinds; /* bit k: of optimizer kind k */
    type type;
    size_t offset; /* in lt_optim_config */
    int64_t low;   /* of COUNT */
    const char *word[MAX_WORDS];
} key;

/* Places in the table below. */
enum {
    SGD = 1 << LT_OPTIM_SGD,
    ADAGRAD = 1 << LT_OPTIM_ADAGRAD,
    ADAMS = 1 << LT_OPTIM_ADAM | 1 << LT_OPTIM_ADAMW,
    SHAMPOO = 1 << LT_OPTIM_SHAMPOO,
    ALL = SGD | ADAGRAD | ADAMS | SHAMPOO
};
#define AT(field) offsetof(lt_optim_config, field)

static const key keys[] = {
    /* clang-format off */
    {"optim", ALL, CHOICE, AT(kind), 0, {"sgd", "adagrad", "adam", "adamw", "shampoo"}},
    {"dtype", ALL, CHOICE, AT(dtype), 0, {"float32", "float64"}},
    {"lr", ALL, REAL, AT(lr), 0, {0}},
    {"lr_schedule", ALL, SCHEDULE, AT(schedule), 0, {0}},
    {"momentum", SGD, REAL, AT(sgd.momentum), 0, {0}},
    {"dampening", SGD, REAL, AT(sgd.dampening), 0, {0}},
    {"nesterov", SGD, FLAG, AT(sgd.nesterov), 0, {0}},
    {"weight_decay", SGD, REAL, AT(sgd.weight_decay), 0, {0}},
    {"epsilon", ADAGRAD, REAL, AT(adagrad.eps), 0, {0}},
    {"weight_decay", ADAGRAD, REAL, AT(adagrad.weight_decay), 0, {0}},
    {"beta1", ADAMS, REAL, AT(adam.beta1), 0, {0}},
    {"beta2", ADAMS, REAL, AT(adam.beta2), 0, {0}},
    {"epsilon", ADAMS, REAL, AT(adam.eps), 0, {0}},
    {"weight_decay", ADAMS, REAL, AT(adam.weight_decay), 0, {0}},
    {"beta1", SHAMPOO, REAL, AT(shampoo.beta1), 0, {0}},
    {"beta2", SHAMPOO, REAL, AT(shampoo.beta2), 0, {0}},
    {"beta3", SHAMPOO, REAL_OR_NULL, AT(shampoo.beta3), 0, {0}},
    {"epsilon", SHAMPOO, REAL, AT(shampoo.epsilon), 0, {0}},
    {"weight_decay", SHAMPOO, REAL, AT(shampoo.weight_decay), 0, {0}},
    {"weight_decay_type", SHAMPOO, CHOICE, AT(shampoo.decay_type), 0,
     {"decoupled", "l2", "corrected", "independent"}},
    {"max_preconditioner_dim", SHAMPOO, COUNT, AT(shampoo.max_preconditioner_dim), 1, {0}},
    {"precondition_frequency", SHAMPOO, COUNT, AT(shampoo.precondition_frequency), 1, {0}},
    {"start_preconditioning_step", SHAMPOO, COUNT, AT(shampoo.start_preconditioning_step), -1, {0}},
    {"use_bias_correction", SHAMPOO, FLAG, AT(shampoo.use_bias_correction), 0, {0}},
    {"grafting", SHAMPOO, CHOICE, AT(shampoo.grafting), 0,
     {"none", "sgd", "adagrad", "rmsprop", "adam"}},
    {"grafting_beta2", SHAMPOO, REAL_OR_NULL, AT(shampoo.grafting_beta2), 0, {0}},
    {"grafting_epsilon", SHAMPOO, REAL, AT(shampoo.grafting_epsilon), 0, {0}},
    {"preconditioner", SHAMPOO, CHOICE, AT(shampoo.preconditioner), 0,
     {"root", "eigendecomposed", "eigenvalue_corrected", "kl"}},
    {"momentum", SHAMPOO, REAL, AT(shampoo.momentum), 0, {0}},
    {"dampening", SHAMPOO, REAL, AT(shampoo.dampening), 0, {0}},
    {"nesterov", SHAMPOO, FLAG, AT(shampoo.nesterov), 0, {0}},
    {"inverse_exponent", SHAMPOO, EXPONENTS, AT(shampoo.inverse_exponent), 0, {0}},
    {"epsilon_rule", SHAMPOO, CHOICE, AT(shampoo.epsilon_rule), 0,
     {"before", "after", "pseudo_inverse"}},
    {"merge_order", SHAMPOO, CHOICE, AT(shampoo.merge_order), 0, {"backward", "forward"}},
    {"target_dimensionality", SHAMPOO, DIMENSIONALITY, AT(shampoo.target_dimensionality), 0, {0}},
    {"trace_scaling", SHAMPOO, REAL, AT(shampoo.trace_scaling), 0, {0}},
    {"drop_weighting", SHAMPOO, FLAG, AT(shampoo.drop_weighting), 0, {0}},
    {"rank_rtol", SHAMPOO, REAL_OR_NULL, AT(shampoo.rank_rtol), 0, {0}},
    {"rank_atol", SHAMPOO, REAL, AT(shampoo.rank_atol), 0, {0}},
    {"tolerated_failures", SHAMPOO, COUNT, AT(shampoo.tolerated_failures), 0, {0}},
    /* clang-format on */
};
#undef AT

enum { KEYS = sizeof keys / sizeof *keys };

/* Enumerations are stored through this; dtype's values are the words' positions too. */
_Static_assert(LT_F32 == 0 && LT_F64 == 1, "the words of dtype are in the order of lt_dtype");
_Static_assert(sizeof(lt_grafting) == sizeof(int), "enumerations have the size of int");

static lt_status wrong_type(const key *k, const char *want)
{
    return lt_fail(LT_E_ARG, "optimizer config: %s wants %s", k->name, want);
}

static lt_status set_choice(int *field, const key *k, const lt_json_value *v)
{
    if (v->type != LT_JSON_STRING)
        return wrong_type(k, "a string");
    size_t words = 0;
    while (words < MAX_WORDS && k->word[words])
        words++;
    for (size_t i = 0; i < words; i++)
        if (!strcmp(k->word[i], v->string)) {
            *field = (int)i;
            return LT_OK;
        }
    return lt_fail(LT_E_ARG, "optimizer config: %s has no value '%s'; the nearest is '%s'", k->name,
                   v->string, lt_nearest(v->string, k->word, words));
}

static lt_status get_count(const key *k, const lt_json_value *v, int64_t *value)
{
    if (v->type != LT_JSON_NUMBER || !v->is_integer)
        return wrong_type(k, "an integer");
    if (v->integer < k->low || v->integer > INT_MAX)
        return lt_fail(LT_E_ARG, "optimizer config: %s %" PRId64 " is not in [%" PRId64 ",%d]",
                       k->name, v->integer, k->low, INT_MAX);
    *value = v->integer;
    return LT_OK;
}

static lt_status set_count(void *field, const key *k, const lt_json_value *v)
{
    int64_t value = 0;
    LT_TRY(get_count(k, v, &value));
    if (k->offset == offsetof(lt_optim_config, shampoo.tolerated_failures))
        *(int *)field = (int)value;
    else
        *(int64_t *)field = value;
    return LT_OK;
}

static lt_status set_dimensionality(int *field, const key *k, const lt_json_value *v)
{
    if (v->type != LT_JSON_NUMBER || !v->is_integer)
        return wrong_type(k, "an integer");
    *field = v->integer < 1 ? 1 : v->integer > LT_MAX_DIMS ? LT_MAX_DIMS : (int)v->integer;
    return LT_OK;
}

/* The number that a key of an object spells, below limit; -1 if it spells none. */
static int key_number(const char *text, int limit)
{
    return text[0] >= '0' && text[0] < '0' + limit && !text[1] ? text[0] - '0' : -1;
}

/* {"0": 0.5, ...}: exponents of some dimensions of one order. */
static lt_status set_dims(lt_exponents *e, int order, const key *k, const lt_json_value *v)
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
static lt_status set_exponents(lt_exponents *e, const key *k, const lt_json_value *v)
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

static lt_status set_schedule(lt_optim_config *c, const key *k, const lt_json_value *v)
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

static lt_status set_real(double *field, const key *k, const lt_json_value *v)
{
    bool null = v->type == LT_JSON_NULL && k->type == REAL_OR_NULL;
    if (v->type != LT_JSON_NUMBER && !null)
        return wrong_type(k, k->type == REAL ? "a number" : "a number or null");
    if (k->type == REAL_OR_NULL && !null && v->number < 0)
        return lt_fail(LT_E_ARG, "optimizer config: %s %g is below 0", k->name, v->number);
    *field = null ? -1 : v->number;
    return LT_OK;
}

static lt_status set(lt_optim_config *c, const key *k, const lt_json_value *v)
{
    void *field = (char *)c + k->offset;
    switch (k->type) {
    case REAL:
    case REAL_OR_NULL:
        return set_real(field, k, v);
    case COUNT:
        return set_count(field, k, v);
    case DIMENSIONALITY:
        return set_dimensionality(field, k, v);
    case FLAG:
        if (v->type != LT_JSON_BOOL)
            return wrong_type(k, "true or false");
        *(bool *)field = v->boolean;
        return LT_OK;
    case CHOICE:
        return set_choice(field, k, v);
    case EXPONENTS:
        return set_exponents(field, k, v);
    case SCHEDULE:
        return set_schedule(c, k, v);
    }
    return LT_OK;
}

/* The key of that name for this kind of optimizer. */
static const key *find_key(lt_optim_kind kind, const char *name)
{
    for (int i = 0; i < KEYS; i++)
        if (keys[i].kinds >> kind & 1 && !strcmp(keys[i].name, name))
            return &keys[i];
    return NULL;
}

static lt_status unknown_key(lt_optim_kind kind, const char *name)
{
    const char *known[KEYS];
    size_t count = 0;
    for (int i = 0; i < KEYS; i++)
        if (keys[i].kinds >> kind & 1)
            known[count++] = keys[i].name;
    return lt_fail(LT_E_ARG, "optimizer config: %s has no key '%s'; the nearest is '%s'",
                   keys[0].word[kind], name, lt_nearest(name, known, count));
}

static lt_status need(const lt_json_value *object, const char *name)
{
    return lt_json_member(object, name)
               ? LT_OK
               : lt_fail(LT_E_ARG, "optimizer config: '%s' is missing", name);
}

/* With an eigenvalue correction a block has one exponent, not one per dimension. */
static lt_status check_exponents(const lt_optim_config *c, const lt_json_value *object)
{
    const lt_json_value *v = lt_json_member(object, "inverse_exponent");
    if (!v || c->shampoo.preconditioner != LT_PRECONDITIONER_CORRECTED)
        return LT_OK;
    for (const lt_json_value *m = v->child; m; m = m->next)
        if (m->type != LT_JSON_NUMBER)
            return lt_fail(LT_E_ARG,
                           "optimizer config: inverse_exponent: '%s' wants a number with "
                           "eigenvalue_corrected",
                           m->key);
    return LT_OK;
}

static lt_status read_object(lt_optim_config *c, const lt_json_value *object)
{
    if (object->type != LT_JSON_OBJECT)
        return lt_fail(LT_E_ARG, "optimizer config: not an object");
    LT_TRY(need(object, "optim"));
    LT_TRY(need(object, "lr"));
    int kind;
    LT_TRY(set_choice(&kind, &keys[0], lt_json_member(object, "optim")));
    for (const lt_json_value *m = object->child; m; m = m->next) {
        const key *k = find_key((lt_optim_kind)kind, m->key);
        LT_TRY(k ? set(c, k, m) : unknown_key((lt_optim_kind)kind, m->key));
    }
    return check_exponents(c, object);
}

lt_status lt_optim_config_parse(lt_optim_config *out, const char *json, size_t bytes)
{
    lt_optim_config c = {
        .dtype = LT_F64,
        .adagrad = LT_ADAGRAD_DEFAULTS,
        .adam = LT_ADAM_DEFAULTS,
        .shampoo = LT_SHAMPOO_DEFAULTS,
    };
    lt_json *document = NULL;
    LT_TRY(lt_json_parse(&document, json, bytes, "optimizer config", 8));
    lt_status st = read_object(&c, lt_json_root(document));
    lt_json_free(&document);
    if (st) {
        lt_optim_config_clear(&c);
        return st;
    }
    c.adam.decoupled = c.kind == LT_OPTIM_ADAMW;
    c.shampoo.peak_lr = c.lr;
    *out = c;
    return LT_OK;
}

void lt_optim_config_clear(lt_optim_config *config)
{
    lt_free(config->schedule);
    *config = (lt_optim_config){0};
}

lt_status lt_optim_config_make(lt_optim **out, const lt_optim_config *config,
                               const lt_params *params)
{
    switch (config->kind) {
    case LT_OPTIM_SGD:
        return lt_optim_sgd(out, params, &config->sgd);
    case LT_OPTIM_ADAGRAD:
        return lt_optim_adagrad(out, params, &config->adagrad);
    case LT_OPTIM_ADAM:
    case LT_OPTIM_ADAMW:
        return lt_optim_adam(out, params, &config->adam);
    case LT_OPTIM_SHAMPOO:
        return lt_optim_shampoo(out, params, &config->shampoo);
    }
    return lt_fail(LT_E_ARG, "optimizer config: no optimizer number %d", (int)config->kind);
}

lt_status lt_optim_config_lr(const lt_optim_config *config, int64_t step, double *lr)
{
    if (config->schedule && (step < 1 || (size_t)step > config->schedule_count))
        return lt_fail(LT_E_ARG, "optimizer config: lr_schedule has no number for step %" PRId64,
                       step);
    *lr = config->schedule ? config->schedule[step - 1] : config->lr;
    return LT_OK;
}
