/* Shampoo's settings: from a preset and from flags to its config. One table has both directions. */

#include "train/trainer/shampoo.h"

#include "lather/ext/fail.h"

#include <stdlib.h>
#include <string.h>

typedef enum kind { REAL, COUNT, SMALL, FLAG, CHOICE } kind;

typedef struct field {
    const char *flag;
    kind kind;
    size_t in_arguments, in_config;
} field;

#define PAIR(a, c) offsetof(arguments, a), offsetof(lt_shampoo_config, c)
static const field fields[] = {
    {"beta1", REAL, PAIR(beta1, beta1)},
    {"beta2", REAL, PAIR(beta2, beta2)},
    {"beta3", REAL, PAIR(beta3, beta3)},
    {"epsilon", REAL, PAIR(epsilon, epsilon)},
    {"momentum", REAL, PAIR(momentum, momentum)},
    {"dampening", REAL, PAIR(dampening, dampening)},
    {"nesterov", FLAG, PAIR(nesterov, nesterov)},
    {"weight-decay", REAL, PAIR(weight_decay, weight_decay)},
    {"weight-decay-type", CHOICE, PAIR(weight_decay_type, decay_type)},
    {"max-preconditioner-dim", COUNT, PAIR(max_preconditioner_dim, max_preconditioner_dim)},
    {"precondition-frequency", COUNT, PAIR(precondition_frequency, precondition_frequency)},
    {"start-preconditioning-step", COUNT,
     PAIR(start_preconditioning_step, start_preconditioning_step)},
    {"use-bias-correction", FLAG, PAIR(use_bias_correction, use_bias_correction)},
    {"grafting", CHOICE, PAIR(grafting, grafting)},
    {"grafting-beta2", REAL, PAIR(grafting_beta2, grafting_beta2)},
    {"grafting-epsilon", REAL, PAIR(grafting_epsilon, grafting_epsilon)},
    {"preconditioner", CHOICE, PAIR(preconditioner, preconditioner)},
    {"epsilon-rule", CHOICE, PAIR(epsilon_rule, epsilon_rule)},
    {"rank-rtol", REAL, PAIR(rank_rtol, rank_rtol)},
    {"rank-atol", REAL, PAIR(rank_atol, rank_atol)},
    {"target-dimensionality", SMALL, PAIR(target_dimensionality, target_dimensionality)},
    {"trace-scaling", REAL, PAIR(trace_scaling, trace_scaling)},
    {"drop-weighting", FLAG, PAIR(drop_weighting, drop_weighting)},
    {"merge-order", CHOICE, PAIR(merge_order, merge_order)},
    {"tolerated-failures", SMALL, PAIR(tolerated_failures, tolerated_failures)},
    {"shampoo-on-failure", CHOICE, PAIR(shampoo_on_failure, on_failure)},
    {"diagonal-vectors", FLAG, PAIR(diagonal_vectors, diagonal_vectors)},
    {"root-solver", CHOICE, PAIR(root_solver, root_solver)},
    {"solver-tolerance", REAL, PAIR(solver_tolerance, solver_tolerance)},
    {"solver-iterations", SMALL, PAIR(solver_iterations, solver_iterations)},
    {"solver-order", SMALL, PAIR(solver_order, solver_order)},
    {"refresh", CHOICE, PAIR(refresh, refresh_timing)},
    {"refresh-threads", SMALL, PAIR(refresh_threads, refresh_threads)},
};
#undef PAIR
enum { FIELDS = sizeof fields / sizeof *fields };

/* Copies one field; enumerations have the size of int. */
static void to_config(const field *f, const arguments *a, lt_shampoo_config *c)
{
    const void *from = (const char *)a + f->in_arguments;
    void *to = (char *)c + f->in_config;
    if (f->kind == REAL)
        *(double *)to = *(const double *)from;
    else if (f->kind == COUNT)
        *(int64_t *)to = *(const int64_t *)from;
    else if (f->kind == SMALL)
        *(int *)to = (int)*(const int64_t *)from;
    else if (f->kind == FLAG)
        *(bool *)to = *(const bool *)from;
    else
        *(int *)to = *(const int *)from;
}

static void to_arguments(const field *f, const lt_shampoo_config *c, arguments *a)
{
    const void *from = (const char *)c + f->in_config;
    void *to = (char *)a + f->in_arguments;
    if (f->kind == REAL)
        *(double *)to = *(const double *)from;
    else if (f->kind == COUNT)
        *(int64_t *)to = *(const int64_t *)from;
    else if (f->kind == SMALL)
        *(int64_t *)to = *(const int *)from;
    else if (f->kind == FLAG)
        *(bool *)to = *(const bool *)from;
    else
        *(int *)to = *(const int *)from;
}

/* --- Presets --- */

/* Whether the solver of a preset serves the preconditioner that a flag asks for. */
static bool gives_what_is_kept(const arguments *a)
{
    bool root =
        a->preconditioner == LT_PRECONDITIONER_ROOT || a->preconditioner == LT_PRECONDITIONER_KL;
    return a->root_solver == LT_ROOT_EIGH || (root && a->epsilon_rule != LT_EPSILON_PSEUDO_INVERSE);
}

static lt_status apply_preset(arguments *a, const lt_options *options)
{
    static const double lr[] = {[PRESET_RECOMMENDED] = 0.1,
                                [PRESET_PAPER] = 0.01,
                                [PRESET_REFERENCE] = 0.01,
                                [PRESET_SOAP] = 0.003};
    lt_shampoo_config c;
    if (a->optim == OPTIM_SOAP && a->preset != PRESET_SOAP)
        return lt_fail(LT_E_ARG, "--preset %s: contradicts --optim soap; use --optim shampoo",
                       lt_options_choice(options, "preset"));
    LT_TRY(lt_shampoo_preset(lt_options_choice(options, "preset"), &c));
    for (int i = 0; i < FIELDS; i++)
        if (!lt_options_is_set(options, fields[i].flag))
            to_arguments(&fields[i], &c, a);
    if (!lt_options_is_set(options, "lr"))
        a->lr = lr[a->preset];
    if (!lt_options_is_set(options, "root-solver") && !gives_what_is_kept(a))
        a->root_solver = LT_ROOT_EIGH;
    return LT_OK;
}

/* --- Flags that what was chosen does not read --- */

typedef struct unread {
    const char *flag;
    bool read;
    double *value, neutral; /* or */
    int64_t *count;
    const char *needs;
} unread;

/* A neutral value is no contradiction: a run's config.yaml has one for every flag. */
static lt_status check_unread(arguments *a, const lt_options *options)
{
    bool second = a->grafting != LT_GRAFTING_NONE && a->grafting != LT_GRAFTING_SGD;
    bool by_lr =
        a->weight_decay_type == LT_DECAY_CORRECTED || a->weight_decay_type == LT_DECAY_INDEPENDENT;
    bool pseudo = a->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE;
    bool iterates = a->root_solver != LT_ROOT_EIGH;
    const unread rules[] = {
        {"beta3", a->beta1 > 0, &a->beta3, -1, NULL, "--beta1 above 0"},
        {"dampening", a->momentum > 0, &a->dampening, 0, NULL, "--momentum above 0"},
        {"grafting-beta2", second, &a->grafting_beta2, -1, NULL, "--grafting with a moment"},
        {"grafting-epsilon", second, &a->grafting_epsilon, 1e-10, NULL, "--grafting with a moment"},
        {"peak-lr", by_lr, &a->peak_lr, 0, NULL, "--weight-decay-type corrected or independent"},
        {"rank-rtol", pseudo, &a->rank_rtol, -1, NULL, "--epsilon-rule pseudo_inverse"},
        {"rank-atol", pseudo, &a->rank_atol, 0, NULL, "--epsilon-rule pseudo_inverse"},
        {"solver-tolerance", iterates, &a->solver_tolerance, 0, NULL,
         "a --root-solver that iterates"},
        {"solver-iterations", iterates, NULL, 0, &a->solver_iterations,
         "a --root-solver that iterates"},
        {"solver-order", a->root_solver == LT_ROOT_HIGHER_ORDER, NULL, 0, &a->solver_order,
         "--root-solver higher_order"},
        {"refresh-threads", a->refresh == LT_REFRESH_ASYNC, NULL, 0, &a->refresh_threads,
         "--refresh async"},
        {"target-dimensionality", a->merge_order == LT_MERGE_BACKWARD, NULL, 1,
         &a->target_dimensionality, "--merge-order backward"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const unread *r = &rules[i];
        double value = r->count ? (double)*r->count : *r->value;
        if (r->read)
            continue;
        if (lt_options_is_set(options, r->flag) && (value < r->neutral || value > r->neutral))
            return lt_fail(LT_E_ARG, "--%s: needs %s", r->flag, r->needs);
        if (r->count)
            *r->count = (int64_t)r->neutral;
        else
            *r->value = r->neutral;
    }
    if (a->ignored_basis_change_dims.count && a->preconditioner != LT_PRECONDITIONER_CORRECTED)
        return lt_fail(LT_E_ARG, "--ignored-basis-change-dims: needs --preconditioner "
                                 "eigenvalue_corrected");
    return LT_OK;
}

lt_status arguments_resolve(arguments *a, const lt_options *options)
{
    bool shampoo = arguments_is_shampoo(a);
    if (shampoo)
        LT_TRY(apply_preset(a, options));
    if (!(a->momentum > 0) && !lt_options_is_set(options, "nesterov"))
        a->nesterov = false;
    return shampoo ? check_unread(a, options) : LT_OK;
}

/* --- Lists --- */

int arguments_numbers(const char *text, double *value, int most)
{
    for (int count = 0; count < most;) {
        char *end;
        value[count] = strtod(text, &end);
        if (end == text || !(value[count] >= 0) || (*end && *end != ','))
            return -1;
        count++;
        if (!*end)
            return count;
        text = end + 1;
    }
    return -1;
}

/* The ORDER of "ORDER:...", or 0 if that is not what text is. */
static int parse_order(const char *text)
{
    char *end;
    const long order = strtol(text, &end, 10);
    return *end == ':' && order >= 1 && order <= LT_MAX_DIMS ? (int)order : 0;
}

/* "0.5": one power for all factors; "2:0.5,0": those of blocks with two dimensions. */
static lt_status set_exponents(lt_exponents *e, const char *text)
{
    double value[LT_MAX_DIMS];
    const char *colon = strchr(text, ':');
    int order = colon ? parse_order(text) : 1;
    if (!order || arguments_numbers(colon ? colon + 1 : text, value, LT_MAX_DIMS) != order)
        return lt_fail(LT_E_ARG, "--inverse-exponent: '%s' is neither E nor ORDER:E,...", text);
    for (int o = order; o <= (colon ? order : LT_MAX_DIMS); o++)
        for (int d = 0; d < o; d++) {
            e->value[o][d] = value[colon ? d : 0];
            e->set[o][d] = true;
        }
    return LT_OK;
}

/* "3:0,2" */
static lt_status set_ignored(lt_shampoo_config *c, const char *text)
{
    double dim[LT_MAX_DIMS];
    int order = parse_order(text);
    int count = order ? arguments_numbers(strchr(text, ':') + 1, dim, LT_MAX_DIMS) : 0;
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

lt_status arguments_shampoo(const arguments *a, lt_shampoo_config *out)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    for (int i = 0; i < FIELDS; i++)
        to_config(&fields[i], a, &c);
    c.nesterov = c.nesterov && c.momentum > 0;
    c.decay_scope = a->norm_weight_decay ? LT_DECAY_ALL : LT_DECAY_WEIGHTS;
    c.peak_lr = a->peak_lr > 0 ? a->peak_lr : a->lr;
    for (size_t i = 0; i < a->inverse_exponent.count; i++)
        LT_TRY(set_exponents(&c.inverse_exponent, a->inverse_exponent.item[i]));
    for (size_t i = 0; i < a->ignored_basis_change_dims.count; i++)
        LT_TRY(set_ignored(&c, a->ignored_basis_change_dims.item[i]));
    *out = c;
    return LT_OK;
}
