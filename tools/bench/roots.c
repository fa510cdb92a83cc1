/* bench roots: accuracy and time of the solvers of Shampoo's inverse roots, against a loop of
 * LAPACK's ssyevd over the same matrices. */

#include "roots.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    bench_common common; /* steps: --repeats */
    const char *factors, *old, *sizes, *conditions, *solvers;
    int64_t batch, every, step, lapack;
    double epsilon, beta2, exponent, tolerance, moved;
    int rule;
    bool accuracy, bases;
} settings;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("factors", factors), .help = "a checkpoint's optim.safetensors, whose factors replace generated matrices"},
    {"Benchmark", TEXT("old", old), .help = "optim.safetensors of an earlier checkpoint, whose roots are starting values"},
    {"Benchmark", INT("every", every, 1, 1000), .value = "1", .help = "take every N-th factor only"},
    {"Benchmark", REAL("beta2", beta2, 0, 1), .value = "0.999", .help = "beta2 of the run that wrote --factors"},
    {"Benchmark", REAL("exponent", exponent, 0.01, 1), .value = "0.25", .help = "exponent of the run's matrices (preset transformer: 0.5); other orders have 1/(2 * order)"},
    {"Benchmark", INT("step", step, 1, 1000000000), .value = "50", .help = "step of the checkpoint, for bias correction"},
    {"Benchmark", TEXT("sizes", sizes), .value = "64,256,1024", .help = "sides of generated matrices; 512x27: 27 of that size, instead of --batch"},
    {"Benchmark", TEXT("conditions", conditions), .value = "1e2,1e4,1e6,1e8,-1e4", .help = "condition numbers; negative: a quarter of the rank"},
    {"Benchmark", INT("batch", batch, 1, 1000), .value = "4", .help = "generated matrices of each kind"},
    {"Benchmark", FLAG("bases", bases), .help = "keep eigenvectors and start from those of the matrix before its change"},
    {"Benchmark", REAL("moved", moved, 0, 1), .value = "0.05", .help = "share of another matrix in that change"},
    {"Benchmark", TEXT("solvers", solvers), .value = "eigh,rational", .help = "solvers to compare"},
    {"Benchmark", REAL("epsilon", epsilon, 1e-30, 1), .value = "1e-6", .help = "damping"},
    {"Benchmark", PICK("epsilon-rule", rule, "before|after|pseudo_inverse|relative"), .value = "relative", .help = "rule by which epsilon enters the root"},
    {"Benchmark", REAL("tolerance", tolerance, 0, 1), .value = "0", .help = "residual to reach; 0: the solver's own"},
    {"Benchmark", INT("repeats", common.steps, 1, 1000), .value = "3", .help = "interleaved measurements; the median counts"},
    {"Benchmark", FLAG("accuracy", accuracy), .value = "on", .help = "compare with double"},
    {"Benchmark", INT("lapack-threads", lapack, 0, 2), .value = "0", .help = "OpenBLAS threads of ssyevd; 0: measure 1 and 2 (2 spin for a long time under load)"},
};
/* clang-format on */

enum { SOLVERS = LT_ROOT_RATIONAL + 1, MOST_CONDITIONS = 32 };

/* One solver on one list of matrices. */
typedef struct result {
    lt_root_solver solver;
    double residual, angle; /* the worst of the list */
    lt_root_stats stats;
} result;

static int failures;
static bool first_row = true;

/* --- Running a solver --- */

typedef struct place {
    lt_tensor *a, *out, *old, *power;
} place;

static void clear(place *p, size_t count)
{
    for (size_t i = 0; p && i < count; i++) {
        lt_tensor_free(&p[i].a);
        lt_tensor_free(&p[i].out);
        lt_tensor_free(&p[i].old);
        lt_tensor_free(&p[i].power);
    }
    free(p);
}

static lt_status write_sample(lt_tensor *to, const float *from)
{
    return lt_tensor_write(to, from, lt_tensor_bytes(to));
}

static lt_status make_places(lt_device *device, const samples *list, place *p)
{
    for (size_t i = 0; i < list->count; i++) {
        const sample *s = &list->item[i];
        const lt_shape shape = LT_SHAPE(s->n, s->n);
        LT_TRY(lt_tensor_new(&p[i].a, device, LT_F32, shape));
        LT_TRY(lt_tensor_new(&p[i].out, device, LT_F32, shape));
        LT_TRY(write_sample(p[i].a, s->a));
        if (s->before)
            LT_TRY(lt_tensor_new(&p[i].power, device, LT_F32, LT_SHAPE(s->n)));
        if (!s->old)
            continue;
        LT_TRY(lt_tensor_new(&p[i].old, device, LT_F32, shape));
        LT_TRY(write_sample(p[i].old, s->old));
    }
    return LT_OK;
}

/* Runs a solver over the list, in batches of the size that a refresh uses. */
static lt_status run_solver(lt_device *device, const lt_shampoo_config *config, const samples *list,
                            place *p, result *r)
{
    const int64_t most = (int64_t)1 << 23;
    const size_t count = list->count;
    lt_root_job *job = count ? calloc(count, sizeof *job) : NULL;
    if (!job)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    const lt_root_context context = {.config = config, .device = device, .stats = &r->stats};
    for (size_t i = 0; i < list->count; i++) {
        job[i] = (lt_root_job){.a = lt_tensor_view(p[i].a),
                               .exponent = list->item[i].exponent,
                               .out = lt_tensor_view(p[i].out),
                               .param = list->item[i].name};
        if (p[i].old)
            job[i].old = lt_tensor_view(p[i].old);
        if (p[i].power)
            job[i].power = lt_tensor_view(p[i].power);
    }
    for (size_t begin = 0, end; begin < list->count && !st; begin = end) {
        int64_t sum = 0;
        for (end = begin; end < list->count; end++) {
            sum += list->item[end].n * list->item[end].n;
            if (sum > most && end > begin)
                break;
        }
        st = lt_root_run(&context, job + begin, end - begin);
    }
    for (size_t i = 0; i < list->count && !st; i++)
        failures += job[i].status != LT_OK;
    free(job);
    return st;
}

/* Computes eigenvectors of the matrices before the move, from which the solvers start. */
static lt_status begin_bases(lt_device *device, const lt_shampoo_config *config,
                             const samples *list, place *p)
{
    result unused = {.solver = LT_ROOT_EIGH};
    lt_shampoo_config c = *config;
    c.root_solver = LT_ROOT_EIGH;
    for (size_t i = 0; i < list->count; i++)
        LT_TRY(write_sample(p[i].a, list->item[i].before));
    LT_TRY(run_solver(device, &c, list, p, &unused));
    for (size_t i = 0; i < list->count; i++) {
        p[i].old = p[i].out;
        p[i].out = NULL;
        const int64_t n = list->item[i].n;
        LT_TRY(lt_tensor_new(&p[i].out, device, LT_F32, LT_SHAPE(n, n)));
    }
    return LT_OK;
}

/* --- Accuracy --- */

/* Reads a root, or computes it from eigenvectors (p->out) and powers of eigenvalues (p->power). */
static lt_status read_root(const place *p, int64_t n, float *root)
{
    const size_t bytes = (size_t)(n * n) * sizeof *root;
    LT_TRY(lt_tensor_read(p->out, root, bytes));
    if (!p->power)
        return LT_OK;
    float *q = malloc(bytes + (size_t)n * sizeof *q);
    lt_status st = q ? lt_tensor_read(p->power, q + n * n, (size_t)n * sizeof *q) : LT_E_NOMEM;
    if (!st) {
        memcpy(q, root, bytes);
        root_from_basis(q, q + n * n, n, root);
    }
    free(q);
    return st;
}

static lt_status evaluate(const settings *s, const samples *list, const place *p, result *r)
{
    for (size_t i = 0; i < list->count; i++) {
        const sample *t = &list->item[i];
        const size_t count = (size_t)(t->n * t->n);
        float *root = malloc(count * sizeof *root);
        double *a = malloc(count * sizeof *a);
        lt_status st = root && a ? read_root(&p[i], t->n, root) : LT_E_NOMEM;
        if (!st) {
            damp_sample(t, s->rule == LT_EPSILON_RELATIVE, s->epsilon, a);
            const accuracy got = measure_accuracy(t, a, root);
            r->residual = fmax(r->residual, got.residual);
            r->angle = fmax(r->angle, got.angle);
        }
        free(root);
        free(a);
        LT_TRY(st);
    }
    return LT_OK;
}

/* --- A list of matrices, all solvers, interleaved with LAPACK --- */

/* Solvers on one list, alternating with LAPACK. Columns of a round: seconds of ssyevd with one and with two threads, its
 * processor seconds with one; then wall and processor milliseconds of each solver. */
typedef struct match {
    const settings *s;
    lt_device *device;
    const samples *list;
    lt_shampoo_config config;
    place *place;
    result solver[SOLVERS];
    int solvers;
} match;

enum { ONE_THREAD, TWO_THREADS, ONE_CPU, FIRST_SOLVER, COLUMNS = FIRST_SOLVER + 2 * SOLVERS };

static void read_solvers(match *m)
{
    const char *text = m->s->solvers;
    for (int i = 0; i < SOLVERS; i++) {
        const char *name = lt_root_solver_name(i);
        const char *at = name ? strstr(text, name) : NULL;
        const size_t length = name ? strlen(name) : 0;
        if (at && (at == text || at[-1] == ',') && (!at[length] || at[length] == ','))
            m->solver[m->solvers++].solver = (lt_root_solver)i;
    }
}

static void print_solver(const match *m, const char *name, const result *r, const double *found,
                         const double *ms)
{
    const double best = fmin(found[ONE_THREAD], found[TWO_THREADS]);
    const long long n = m->list->item[0].n, retries = r->stats.retries,
                    fallbacks = r->stats.fallbacks;
    const char *solver = lt_root_solver_name((int)r->solver);
    char one[32], two[32], cpu[32];
    fprintf(stderr,
            "%-20s %5lld x%-4zu %-12s %9.2f ms %6.2fx  residual %.1e  1-cos %.1e"
            "  retries %lld  fallbacks %lld  cpu %.2f ms, %.2fx\n",
            name, n, m->list->count, solver, ms[0], best > 0 ? 1e3 * best / ms[0] : 0, r->residual,
            r->angle, retries, fallbacks, ms[1], 1e3 * fmax(found[ONE_CPU], 0) / ms[1]);
    if (!m->s->common.json)
        return;
    printf("%s{\"matrices\": \"%s\", \"n\": %lld, \"count\": %zu, \"solver\": \"%s\", "
           "\"milliseconds\": %.6g, \"cpu_milliseconds\": %.6g, \"ssyevd_milliseconds\": [%s, %s], "
           "\"ssyevd_cpu_milliseconds\": %s, \"residual\": %.4g, \"one_minus_cos\": %.4g, "
           "\"retries\": %lld, \"fallbacks\": %lld}",
           first_row ? "" : ", ", name, n, m->list->count, solver, ms[0], ms[1],
           milliseconds_text(found[ONE_THREAD], one), milliseconds_text(found[TWO_THREADS], two),
           milliseconds_text(found[ONE_CPU], cpu), r->residual, r->angle, retries, fallbacks);
    first_row = false;
}

static lt_status run_match(void *context, int64_t round, double *found)
{
    match *m = context;
    const settings *s = m->s;
    const seconds one = time_lapack(m->list, s->lapack == 2 ? 2 : 1);
    found[ONE_THREAD] = one.wall;
    found[TWO_THREADS] = s->lapack ? one.wall : time_lapack(m->list, 2).wall;
    found[ONE_CPU] = one.cpu;
    for (int k = 0; k < m->solvers; k++) {
        result *r = &m->solver[k];
        double *ms = &found[FIRST_SOLVER + 2 * k];
        m->config.root_solver = r->solver;
        for (size_t j = 0; j < m->list->count; j++)
            LT_TRY(write_sample(m->place[j].a, m->list->item[j].a));
        r->stats = (lt_root_stats){0};
        const seconds begin = read_clocks();
        LT_TRY(run_solver(m->device, &m->config, m->list, m->place, r));
        const seconds end = read_clocks();
        ms[0] = 1e3 * (end.wall - begin.wall);
        ms[1] = 1e3 * (end.cpu - begin.cpu);
        if (s->accuracy && round == s->common.steps - 1)
            LT_TRY(evaluate(s, m->list, m->place, r));
    }
    return LT_OK;
}

static lt_status compare(lt_device *device, const settings *s, const char *name, samples *list)
{
    match m = {.s = s, .device = device, .list = list};
    double found[COLUMNS];
    const size_t count = list->count;
    if (!count)
        return lt_fail(LT_E_ARG, "bench roots: %s: no matrices", name);
    LT_TRY(lt_shampoo_preset("reference", &m.config));
    m.config.epsilon = s->epsilon;
    m.config.epsilon_rule = (lt_epsilon_rule)s->rule;
    m.config.solver_tolerance = s->tolerance;
    if (s->bases)
        m.config.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    read_solvers(&m);
    for (size_t i = 0; s->accuracy && i < list->count; i++)
        LT_TRY(make_exact(&list->item[i], s->rule == LT_EPSILON_RELATIVE, s->epsilon));
    m.place = calloc(count, sizeof *m.place);
    lt_status st = m.place ? make_places(device, list, m.place) : LT_E_NOMEM;
    if (!st && s->bases)
        st = begin_bases(device, &m.config, list, m.place);
    if (!st)
        st = bench_rounds(&s->common, run_match, &m, COLUMNS, found);
    for (int k = 0; k < m.solvers && !st; k++)
        print_solver(&m, name, &m.solver[k], found, &found[FIRST_SOLVER + 2 * k]);
    if (!st)
        print_lapack(name, list, found);
    clear(m.place, list->count);
    return st;
}

static lt_status compare_made(lt_device *device, const settings *s)
{
    double condition[MOST_CONDITIONS];
    int conditions;
    LT_TRY(bench_read_list("conditions", s->conditions, condition, MOST_CONDITIONS, &conditions));
    for (const char *size = s->sizes; size && *size; size = strchr(size, ',')) {
        size += *size == ',';
        char *end;
        const int64_t n = strtoll(size, &end, 10),
                      count = *end == 'x' ? strtoll(end + 1, NULL, 10) : s->batch;
        if (n < 1 || count < 1)
            return lt_fail(LT_E_ARG, "bench roots: --sizes %s", s->sizes);
        for (int i = 0; i < conditions; i++) {
            samples list = {0};
            lt_status st = samples_add_made(&list, n, condition[i], s->batch, count);
            if (!st && s->bases)
                st = samples_move(&list, s->moved);
            if (!st)
                st = compare(device, s, list.item[0].name, &list);
            samples_clear(&list);
            LT_TRY(st);
        }
    }
    return LT_OK;
}

static lt_status compare_recorded(lt_device *device, const settings *s)
{
    samples list = {0};
    const double correction = s->beta2 < 1 ? 1 - pow(s->beta2, (double)s->step) : 1;
    lt_status st =
        samples_add_recorded(&list, s->factors, s->old, correction, s->exponent, (int)s->every);
    if (!st)
        st = compare(device, s, "recorded", &list);
    samples_clear(&list);
    return st;
}

static lt_status run_roots(lt_device *device, lt_comm *comm, const void *values)
{
    const settings *s = values;
    (void)comm;
    if (s->common.json) {
        bench_print_head("roots", device, "f32", 0);
        printf(", \"repeats\": %lld, \"rows\": [", (long long)s->common.steps);
    }
    lt_status st =
        s->factors && *s->factors ? compare_recorded(device, s) : compare_made(device, s);
    if (s->common.json)
        printf("], \"failures\": %d}\n", failures);
    return st;
}

BENCH_COMMAND(roots, BENCH_DEVICE, table, "accuracy and time of inverse roots, against LAPACK");
