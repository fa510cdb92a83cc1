/* --optim: what the optimizer's state in a checkpoint says: rules and norms of parameters, spectra of factors. The
 * settings that turn a factor into the matrix of which a root is computed (beta2, epsilon) are in the run's config.yaml. */

#include "inspect.h"
#include "inspect_records.h"

#include "lather/detail/json.h"
#include "lather/detail/spectrum.h"
#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/ext/optim_stats.h"
#include "lather/optim_config.h"
#include "lather/safetensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 4096, STATES = 8 };

typedef struct optim_report {
    const char *optim;
    bool json, is_own; /* is_own: an optimizer of this library, whose rules and states are known */
    int rows;          /* printed so far, for commas */
    run_settings settings;
    lt_safetensors *state, *model;
    lt_json *counters;
    lt_device *device;
} optim_report;

/* --- Settings and counters --- */

static double setting(const optim_report *r, const char *name, double otherwise)
{
    const char *text = run_settings_find(&r->settings, name);
    char *end;
    const double value = text ? strtod(text, &end) : otherwise;
    return text && end > text ? value : otherwise;
}

static bool setting_is(const optim_report *r, const char *name, const char *value)
{
    const char *text = run_settings_find(&r->settings, name);
    return text && !strcmp(text, value);
}

/* Returns a number of state.json by its name, or -1 if absent. */
static int64_t counter(const optim_report *r, const char *format, ...) LT_PRINTF(2, 3);
static int64_t counter(const optim_report *r, const char *format, ...)
{
    char name[TEXT + 128];
    int64_t value = -1;
    const lt_json_value *all = lt_json_member(lt_json_root(r->counters), "numbers");
    va_list values;
    va_start(values, format);
    vsnprintf(name, sizeof name, format, values);
    va_end(values);
    return lt_json_member(all, name) && !lt_json_integer(all, name, &value) ? value : -1;
}

/* --- Names of states: PARAM#NAME or PARAM#block.B.NAME, with .DIM for a dimension's --- */

typedef struct state_name {
    char param[TEXT], name[64];
    int block, dim; /* -1: absent */
} state_name;

static bool parse_name(const char *text, state_name *out)
{
    static const char block[] = "block.";
    const char *mark = strrchr(text, '#'), *rest = mark ? mark + 1 : NULL;
    char *end;
    *out = (state_name){.block = -1, .dim = -1};
    if (!mark || (size_t)(mark - text) >= sizeof out->param)
        return false;
    memcpy(out->param, text, (size_t)(mark - text));
    if (!strncmp(rest, block, sizeof block - 1)) {
        out->block = (int)strtol(rest + sizeof block - 1, &end, 10);
        rest = end + (*end == '.');
    }
    snprintf(out->name, sizeof out->name, "%s", rest);
    char *dot = strrchr(out->name, '.');
    if (dot && dot[1] >= '0' && dot[1] <= '9') {
        out->dim = (int)strtol(dot + 1, NULL, 10);
        *dot = 0;
    }
    return true;
}

/* Returns the sum of the elements, or of their squares; NaN if there is no such state. */
static double sum_of(const lt_safetensors_entry *e, bool squares)
{
    double sum = 0;
    for (int64_t i = 0; e && !e->unsupported && i < lt_shape_count(e->shape); i++) {
        const double x = lt_safetensors_element(e, i);
        sum += squares ? x * x : x;
    }
    return e ? sum : (double)NAN;
}

static double norm_of(const lt_safetensors_entry *e)
{
    return sqrt(sum_of(e, true));
}

/* Finds PARAM#block.BLOCK.NAME.DIM; without parts that are below 0. Plugins have PARAM#NAME.DIM. */
static const lt_safetensors_entry *find_state(const optim_report *r, const char *param, int block,
                                              const char *name, int dim)
{
    char full[TEXT + 128];
    if (block < 0)
        snprintf(full, sizeof full, dim < 0 ? "%s#%s" : "%s#%s.%d", param, name, dim);
    else
        snprintf(full, sizeof full, dim < 0 ? "%s#block.%d.%s" : "%s#block.%d.%s.%d", param, block,
                 name, dim);
    return lt_safetensors_find(r->state, full);
}

/* --- Parameters --- */

/* Returns the rule of the last update, by the states that it has left. */
static lt_optim_rule rule_of(const optim_report *r, const state_name *n, bool has_roots)
{
    if (!strcmp(r->optim, "muon"))
        return find_state(r, n->param, -1, "v", -1) ? LT_RULE_ADAMW : LT_RULE_ORTHOGONAL;
    if (n->block < 0)
        return LT_RULE_ELEMENTWISE;
    if (find_state(r, n->param, n->block, "diagonal", 0))
        return LT_RULE_DIAGONAL;
    if (!find_state(r, n->param, n->block, "factor", 0)
        && !find_state(r, n->param, n->block, "factor", 1))
        return setting_is(r, "preconditioner", "spectral") ? LT_RULE_ORTHOGONAL
               : setting_is(r, "preconditioner", "sign")   ? LT_RULE_SIGN
                                                           : LT_RULE_DIAGONAL;
    if (!has_roots)
        return setting_is(r, "grafting", "none") ? LT_RULE_NONE : LT_RULE_GRAFTED;
    return find_state(r, n->param, n->block, "corrected", -1) ? LT_RULE_EIGENBASIS : LT_RULE_ROOT;
}

/* Returns |m| / |sqrt(v)| after bias correction; NaN if there are no such moments. */
static double moment_ratio(const optim_report *r, const state_name *n)
{
    const lt_safetensors_entry *m = find_state(r, n->param, -1, "m", -1),
                               *v = find_state(r, n->param, -1, "v", -1);
    if (!r->is_own)
        return (double)NAN; /* a plugin's m and v may be anything */
    const double t = (double)counter(r, "updates.%s", n->param);
    const double c1 = 1 - pow(setting(r, "beta1", (double)NAN), t),
                 c2 = 1 - pow(setting(r, "beta2", (double)NAN), t);
    return m && v ? norm_of(m) / c1 / sqrt(sum_of(v, false) / c2) : (double)NAN;
}

static void print_cell(const optim_report *r, const char *key, double value)
{
    if (r->json)
        inspect_number(key, value);
    else if (isnan(value))
        printf(" %12s", "-");
    else
        printf(" %12.5g", value);
}

static void print_name(optim_report *r, const state_name *n)
{
    char shown[4 * TEXT];
    if (r->json) {
        printf("%s{\"parameter\":", r->rows++ ? "," : "");
        inspect_quoted(n->param);
        if (n->block >= 0)
            printf(",\"block\":%d", n->block);
        return;
    }
    lt_text_escape(shown, sizeof shown, n->param);
    if (n->block > 0)
        snprintf(shown + strlen(shown), 16, " [%d]", n->block);
    printf("%-48s", shown);
}

/* One line per parameter, or per block of one. */
static void print_param(optim_report *r, const state_name *n)
{
    const bool has_roots = counter(r, "rooted.%d.%s", n->block, n->param) > 0;
    const char *rule = r->is_own ? lt_optim_rule_name(rule_of(r, n, has_roots)) : "-";
    print_name(r, n);
    printf(!r->json ? " %-12s" : r->is_own ? ",\"rule\":\"%s\"" : ",\"rule\":null", rule);
    print_cell(r, "updates", (double)counter(r, "updates.%s", n->param));
    print_cell(r, "weight_norm", norm_of(lt_safetensors_find(r->model, n->param)));
    print_cell(r, "m_over_sqrt_v", moment_ratio(r, n));
    printf(r->json ? "}" : "\n");
}

static void print_params(optim_report *r)
{
    state_name n, last = {.block = -1};
    if (!r->json)
        printf("%-48s %-12s %12s %12s %12s\n", "parameter [block]", "rule", "updates",
               "weight_norm", "m/sqrt(v)");
    for (size_t i = 0; i < lt_safetensors_count(r->state); i++)
        if (parse_name(lt_safetensors_at(r->state, i)->name, &n)
            && (strcmp(n.param, last.param) != 0 || n.block != last.block)) {
            print_param(r, &n);
            last = n;
        }
}

/* --- Factors --- */

/* Replaces a stored Cholesky factor C, marked by a negative diagonal, with rounding errors above it, by C C^T. */
static void expand_cholesky(double *x, int64_t n, double *c)
{
    bool marked = false;
    for (int64_t i = 0; i < n; i++)
        marked = marked || x[i * (n + 1)] < 0;
    if (!marked)
        return;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * n + j] = j > i ? 0 : j == i ? -x[i * n + j] : x[i * n + j] + x[j * n + i];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            x[i * n + j] = 0;
            for (int64_t k = 0; k <= (i < j ? i : j); k++)
                x[i * n + j] += c[i * n + k] * c[j * n + k];
        }
}

/* Returns the sum of the weights of a factor's terms, by which Shampoo divides it; 1 if it does not. */
static double bias_correction(const optim_report *r, const char *param)
{
    const double beta2 = setting(r, "beta2", 1);
    const double every = fmax(1, setting(r, "factor-frequency", 1));
    const double steps = (double)counter(r, "updates.%s", param);
    const bool off = setting_is(r, "use-bias-correction", "false") || !(beta2 < 1);
    return off || !(steps > 0) ? 1 : 1 - pow(beta2, steps - fmod(steps, every));
}

/* Makes a matrix of an entry times scale; is_factor: it may be stored as a Cholesky factor. */
static lt_status make_matrix(const optim_report *r, const lt_safetensors_entry *e, bool is_factor,
                             double scale, lt_tensor **out)
{
    const int64_t n = e->shape.dim[0];
    const size_t count = (size_t)(n * n);
    double *x = calloc(2 * count, sizeof *x);
    float *narrow = calloc(count, sizeof *narrow);
    lt_status st = x && narrow ? lt_tensor_new(out, r->device, LT_F32, LT_SHAPE(n, n))
                               : lt_fail(LT_E_NOMEM, "inspect: no memory for a factor");
    for (size_t i = 0; i < count && !st; i++)
        x[i] = lt_safetensors_element(e, (int64_t)i);
    if (!st) {
        if (is_factor)
            expand_cholesky(x, n, x + count);
        for (size_t i = 0; i < count; i++)
            narrow[i] = (float)(x[i] * scale);
        st = lt_tensor_write(*out, narrow, count * sizeof *narrow);
    }
    free(x);
    free(narrow);
    return st;
}

static void print_factor(optim_report *r, const state_name *n, int64_t size, const lt_spectrum *s)
{
    const int64_t rooted = counter(r, "rooted.%d.%s", n->block, n->param);
    const int64_t failures = counter(r, "failures.%d.%d.%s", n->block, n->dim, n->param);
    print_name(r, n);
    printf(r->json ? ",\"dim\":%d,\"size\":%" PRId64 : " %3d %5" PRId64, n->dim, size);
    print_cell(r, "eigenvalue_min", s->min);
    print_cell(r, "eigenvalue_max", s->max);
    print_cell(r, "condition", s->condition);
    print_cell(r, "effective_rank", s->effective_rank);
    print_cell(r, "below_epsilon", s->below_epsilon);
    print_cell(r, "off_diagonal", s->off_diagonal);
    print_cell(r, "root_age", rooted > 0 ? (double)(counter(r, "attempt") - rooted) : (double)NAN);
    print_cell(r, "failures", r->is_own ? (double)failures : (double)NAN);
    printf(r->json ? "}" : "\n");
}

static lt_status show_factor(optim_report *r, const state_name *n, const lt_safetensors_entry *e)
{
    const bool pseudo = setting_is(r, "epsilon-rule", "pseudo_inverse");
    const lt_safetensors_entry *basis = find_state(r, n->param, n->block, "basis", n->dim);
    lt_tensor *matrix = NULL, *q = NULL;
    lt_spectrum s;
    const double epsilon =
        basis || pseudo || !r->is_own ? (double)NAN : setting(r, "epsilon", (double)NAN);
    const double correction = r->is_own ? bias_correction(r, n->param) : 1;
    lt_status st = make_matrix(r, e, r->is_own, 1 / correction, &matrix);
    if (!st && basis)
        st = make_matrix(r, basis, false, 1, &q);
    if (!st)
        st = lt_spectrum_compute(&s, matrix, q, epsilon, setting_is(r, "epsilon-rule", "relative"));
    if (!st)
        print_factor(r, n, e->shape.dim[0], &s);
    lt_tensor_free(&matrix);
    lt_tensor_free(&q);
    return st;
}

static lt_status show_factors(optim_report *r)
{
    bool any = false;
    state_name n;
    for (size_t i = 0; i < lt_safetensors_count(r->state); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(r->state, i);
        if (!parse_name(e->name, &n) || (n.block < 0) == r->is_own || strcmp(n.name, "factor") != 0
            || e->shape.ndim != 2 || e->shape.dim[0] != e->shape.dim[1])
            continue;
        if (!any && !r->json)
            printf("\n%-48s %3s %5s %12s %12s %12s %12s %12s %12s %12s %12s\n", "factor [block]",
                   "dim", "size", "smallest", "largest", "condition", "eff. rank", "below eps.",
                   "off-diag.", "root age", "failures");
        any = true;
        LT_TRY(show_factor(r, &n, e));
    }
    return LT_OK;
}

/* --- A checkpoint --- */

static lt_status open_report(optim_report *r, const char *checkpoint)
{
    char path[TEXT];
    snprintf(path, sizeof path, "%s/../../config.yaml", checkpoint);
    LT_TRY(run_settings_read(&r->settings, path));
    snprintf(path, sizeof path, "%s/state.json", checkpoint);
    LT_TRY(lt_json_load(&r->counters, path));
    snprintf(path, sizeof path, "%s/model.safetensors", checkpoint);
    LT_TRY(lt_safetensors_open(&r->model, path));
    snprintf(path, sizeof path, "%s/optim.safetensors", checkpoint);
    LT_TRY(lt_safetensors_open(&r->state, path));
    return lt_device_open(&r->device, "cpu", NULL);
}

static lt_status show_report(optim_report *r)
{
    if (!r->settings.count && !r->json)
        printf(
            "no config.yaml of the run: factors are shown as they are stored, without epsilon\n");
    if (!r->is_own && !r->json)
        printf(
            "%s is a plugin's: its rules are not known here, and states named factor or factor.DIM are shown "
            "as they are stored; --optim-stats of training has all that it tells\n\n",
            r->optim);
    if (r->json)
        printf("\"optim_parameters\":[");
    print_params(r);
    r->rows = 0;
    if (r->json)
        printf("],\"optim_factors\":[");
    LT_TRY(show_factors(r));
    printf(r->json ? "]" : "\n");
    return LT_OK;
}

/* Returns true if the library has an optimizer of this name. */
static bool is_own(const char *optim)
{
    char name[128];
    for (size_t i = 0; lt_optim_name_at(i, name, sizeof name); i++)
        if (!strcmp(name, optim))
            return true;
    return false;
}

lt_status inspect_optim(const char *checkpoint, const char *optim, bool json)
{
    optim_report r = {.optim = optim, .json = json, .is_own = is_own(optim)};
    lt_status st = open_report(&r, checkpoint);
    if (!st)
        st = show_report(&r);
    lt_device_close(&r.device);
    lt_safetensors_close(&r.state);
    lt_safetensors_close(&r.model);
    lt_json_free(&r.counters);
    run_settings_clear(&r.settings);
    return st;
}
