/* Optimizers from JSON: one table of keys, each with its type and its field. */

#include "optim/config.h"

#include "base/alloc.h"
#include "base/nearest.h"
#include "optim/shampoo/reference.h"

#include <inttypes.h>
#include <string.h>

/* Places in the table below. */
enum {
    SGD = 1 << LT_OPTIM_SGD,
    ADAGRAD = 1 << LT_OPTIM_ADAGRAD,
    ADAMS = 1 << LT_OPTIM_ADAM | 1 << LT_OPTIM_ADAMW,
    SHAMPOO = 1 << LT_OPTIM_SHAMPOO,
    ALL = SGD | ADAGRAD | ADAMS | SHAMPOO
};
#define AT(field) offsetof(lt_optim_config, field)
/* clang-format off */
#define REAL LT_CONFIG_REAL
#define REAL_OR_NULL LT_CONFIG_REAL_OR_NULL
#define COUNT LT_CONFIG_COUNT
#define SMALL_COUNT LT_CONFIG_SMALL_COUNT
#define LIMIT LT_CONFIG_LIMIT
#define DIMENSIONALITY LT_CONFIG_DIMENSIONALITY
#define FLAG LT_CONFIG_FLAG
#define CHOICE LT_CONFIG_CHOICE
#define EXPONENTS LT_CONFIG_EXPONENTS
#define DIMENSIONS LT_CONFIG_DIMENSIONS
#define SCHEDULE LT_CONFIG_SCHEDULE
/* clang-format on */

static const lt_config_key keys[] = {
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
    {"max_preconditioner_dim", SHAMPOO, LIMIT, AT(shampoo.max_preconditioner_dim), 1, {0}},
    {"precondition_frequency", SHAMPOO, COUNT, AT(shampoo.precondition_frequency), 1, {0}},
    {"start_preconditioning_step", SHAMPOO, COUNT, AT(shampoo.start_preconditioning_step), -1, {0}},
    {"use_bias_correction", SHAMPOO, FLAG, AT(shampoo.use_bias_correction), 0, {0}},
    {"grafting", SHAMPOO, CHOICE, AT(shampoo.grafting), 0,
     {"none", "sgd", "adagrad", "rmsprop", "adam"}},
    {"grafting_beta2", SHAMPOO, REAL_OR_NULL, AT(shampoo.grafting_beta2), 0, {0}},
    {"grafting_epsilon", SHAMPOO, REAL, AT(shampoo.grafting_epsilon), 0, {0}},
    {"preconditioner", SHAMPOO, CHOICE, AT(shampoo.preconditioner), 0,
     {"root", "eigendecomposed", "eigenvalue_corrected", "kl", "kl_eigendecomposed"}},
    {"ignored_basis_change_dims", SHAMPOO, DIMENSIONS, AT(shampoo.ignored_basis_change_dims), 0, {0}},
    {"diagonal_vectors", SHAMPOO, FLAG, AT(shampoo.diagonal_vectors), 0, {0}},
    {"momentum", SHAMPOO, REAL, AT(shampoo.momentum), 0, {0}},
    {"dampening", SHAMPOO, REAL, AT(shampoo.dampening), 0, {0}},
    {"nesterov", SHAMPOO, FLAG, AT(shampoo.nesterov), 0, {0}},
    {"inverse_exponent", SHAMPOO, EXPONENTS, AT(shampoo.inverse_exponent), 0, {0}},
    {"epsilon_rule", SHAMPOO, CHOICE, AT(shampoo.epsilon_rule), 0,
     {"before", "after", "pseudo_inverse", "relative"}},
    {"merge_order", SHAMPOO, CHOICE, AT(shampoo.merge_order), 0, {"backward", "forward"}},
    {"target_dimensionality", SHAMPOO, DIMENSIONALITY, AT(shampoo.target_dimensionality), 0, {0}},
    {"trace_scaling", SHAMPOO, REAL, AT(shampoo.trace_scaling), 0, {0}},
    {"drop_weighting", SHAMPOO, FLAG, AT(shampoo.drop_weighting), 0, {0}},
    {"rank_rtol", SHAMPOO, REAL_OR_NULL, AT(shampoo.rank_rtol), 0, {0}},
    {"rank_atol", SHAMPOO, REAL, AT(shampoo.rank_atol), 0, {0}},
    {"tolerated_failures", SHAMPOO, SMALL_COUNT, AT(shampoo.tolerated_failures), 0, {0}},
    {"shampoo_on_failure", SHAMPOO, CHOICE, AT(shampoo.on_failure), 0,
     {"abort", "keep", "diagonal"}},
    {"root_solver", SHAMPOO, CHOICE, AT(shampoo.root_solver), 0,
     {"eigh", "newton", "higher_order", "newton_db", "qr", "tracked", "rational"}},
    {"solver_tolerance", SHAMPOO, REAL, AT(shampoo.solver_tolerance), 0, {0}},
    {"solver_iterations", SHAMPOO, SMALL_COUNT, AT(shampoo.solver_iterations), 0, {0}},
    {"solver_order", SHAMPOO, SMALL_COUNT, AT(shampoo.solver_order), 0, {0}},
    {"refresh", SHAMPOO, CHOICE, AT(shampoo.refresh_timing), 0,
     {"reference", "staggered", "async"}},
    {"refresh_threads", SHAMPOO, SMALL_COUNT, AT(shampoo.refresh_threads), 0, {0}},
    /* clang-format on */
};
#undef AT

enum { KEYS = sizeof keys / sizeof *keys };

/* Enumerations are stored as int; dtype's values are the words' positions too. */
_Static_assert(LT_F32 == 0 && LT_F64 == 1, "the words of dtype are in the order of lt_dtype");
_Static_assert(sizeof(lt_grafting) == sizeof(int), "enumerations have the size of int");

/* The key of that name for this kind of optimizer. */
static const lt_config_key *find_key(lt_optim_kind kind, const char *name)
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
    LT_TRY(lt_config_set_choice(&kind, &keys[0], lt_json_member(object, "optim")));
    for (const lt_json_value *m = object->child; m; m = m->next) {
        const lt_config_key *k = find_key((lt_optim_kind)kind, m->key);
        LT_TRY(k ? lt_config_set(c, k, m) : unknown_key((lt_optim_kind)kind, m->key));
    }
    return check_exponents(c, object);
}

/* A copy in which each bare Infinity, which Python writes and JSON does not have, is a string. */
static char *quote_infinity(const char *json, size_t bytes)
{
    static const char word[] = "Infinity", with[] = "\"inf\"   ";
    const size_t length = sizeof word - 1;
    bool quoted = false;
    char *text = lt_alloc(bytes + 1, 1);
    if (!text)
        return NULL;
    memcpy(text, json, bytes);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"' && !(i && text[i - 1] == '\\'))
            quoted = !quoted;
        if (!quoted && i + length <= bytes && !memcmp(text + i, word, length))
            memcpy(text + i, with, length);
    }
    return text;
}

static lt_status parse(lt_optim_config *c, const char *json, size_t bytes)
{
    lt_json *document = NULL;
    char *text = quote_infinity(json, bytes);
    if (!text)
        return LT_E_NOMEM;
    lt_status st = lt_json_parse(&document, text, bytes, "optimizer config", 8);
    if (!st)
        st = read_object(c, lt_json_root(document));
    lt_json_free(&document);
    lt_free(text);
    return st;
}

lt_status lt_optim_config_parse(lt_optim_config *out, const char *json, size_t bytes)
{
    lt_optim_config c = {
        .dtype = LT_F64,
        .adagrad = LT_ADAGRAD_DEFAULTS,
        .adam = LT_ADAM_DEFAULTS,
        .shampoo = LT_SHAMPOO_REFERENCE,
    };
    lt_status st = parse(&c, json, bytes);
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
