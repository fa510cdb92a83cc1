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
    {"Benchmark", TEXT("factors", factors), .help = "a checkpoint's optim.safetensors, whose factors are used instead of made ones"},
    {"Benchmark", TEXT("old", old), .help = "the same of an earlier checkpoint: roots to begin from"},
    {"Benchmark", INT("every", every, 1, 1000), .value = "1", .help = "take every N-th factor only"},
    {"Benchmark", REAL("beta2", beta2, 0, 1), .value = "0.999", .help = "of the run that --factors is from"},
    {"Benchmark", REAL("exponent", exponent, 0.01, 1), .value = "0.25", .help = "of the run's matrices (preset transformer: 0.5); other orders have 1/(2 * order)"},
    {"Benchmark", INT("step", step, 1, 1000000000), .value = "50", .help = "of the checkpoint: bias correction"},
    {"Benchmark", TEXT("sizes", sizes), .value = "64,256,1024", .help = "sides of made matrices; 512x27: 27 of them, instead of --batch"},
    {"Benchmark", TEXT("conditions", conditions), .value = "1e2,1e4,1e6,1e8,-1e4", .help = "condition numbers; negative: a quarter of the rank"},
    {"Benchmark", INT("batch", batch, 1, 1000), .value = "4", .help = "made matrices of a kind"},
    {"Benchmark", FLAG("bases", bases), .help = "solvers keep eigenvectors, and begin with those of the matrix before it moved"},
    {"Benchmark", REAL("moved", moved, 0, 1), .value = "0.05", .help = "share of another matrix in that move"},
    {"Benchmark", TEXT("solvers", solvers), .value = "eigh,rational", .help = "solvers to compare"},
    {"Benchmark", REAL("epsilon", epsilon, 1e-30, 1), .value = "1e-6", .help = "damping"},
    {"Benchmark", PICK("epsilon-rule", rule, "before|after|pseudo_inverse|relative"), .value = "relative", .help = "where epsilon enters the root"},
    {"Benchmark", REAL("tolerance", tolerance, 0, 1), .value = "0", .help = "residual to reach; 0: the solver's own"},
    {"Benchmark", INT("repeats", common.steps, 1, 1000), .value = "3", .help = "interleaved measurements; the median counts"},
    {"Benchmark", FLAG("accuracy", accuracy), .value = "on", .help = "compare with double"},
    {"Benchmark", INT("lapack-threads", lapack, 0, 2), .value = "0", .help = "OpenBLAS threads of ssyevd; 0: both 1 and 2 are measured (2 spin for ages under load)"},
};
/* clang-format on */

enum { SOLVERS = 16, REPEATS = 1000 };

/* One solver on one list of matrices. */
typedef struct result {
    const char *solver;
    double milliseconds, cpu_milliseconds, residual, angle; /* medians; the worst of the list */
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
    const int64_t count = lt_tensor_count(to);
    if (lt_tensor_dtype(to) == LT_F32)
        return lt_tensor_write(to, from, (size_t)count * sizeof *from);
    double *wide = malloc((size_t)count * sizeof *wide);
    if (!wide)
        return LT_E_NOMEM;
    for (int64_t i = 0; i < count; i++)
        wide[i] = (double)from[i];
    lt_status st = lt_tensor_write(to, wide, (size_t)count * sizeof *wide);
    free(wide);
    return st;
}

static lt_status make_places(lt_device *device, lt_dtype dtype, const samples *list, place *p)
{
    for (size_t i = 0; i < list->count; i++) {
        const sample *s = &list->item[i];
        const lt_shape shape = LT_SHAPE(s->n, s->n);
        LT_TRY(lt_tensor_new(&p[i].a, device, dtype, shape));
        LT_TRY(lt_tensor_new(&p[i].out, device, dtype, shape));
        LT_TRY(write_sample(p[i].a, s->a));
        if (s->before)
            LT_TRY(lt_tensor_new(&p[i].power, device, dtype, LT_SHAPE(s->n)));
        if (!s->old)
            continue;
        LT_TRY(lt_tensor_new(&p[i].old, device, dtype, shape));
        LT_TRY(write_sample(p[i].old, s->old));
    }
    return LT_OK;
}

/* One run over the list, in batches as a refresh makes them. */
static lt_status run_solver(lt_device *device, const lt_shampoo_config *config, const samples *list,
                            place *p, result *r)
{
    const int64_t most = (int64_t)1 << 23;
    lt_root_job *job = calloc(list->count, sizeof *job);
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

/* The eigenvectors before the move, as where the solvers begin. */
static lt_status begin_bases(lt_device *device, const lt_shampoo_config *config,
                             const samples *list, place *p)
{
    result unused = {0};
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

/* out is a root, or eigenvectors with the powers of eigenvalues beside them. */
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

static int read_solvers(const char *text, result *r)
{
    int count = 0;
    for (int i = 0; i <= LT_ROOT_RATIONAL && count < SOLVERS; i++) {
        const char *name = lt_root_solver_name(i);
        const char *at = name ? strstr(text, name) : NULL;
        const size_t length = name ? strlen(name) : 0;
        if (at && (at == text || at[-1] == ',') && (!at[length] || at[length] == ','))
            r[count++].solver = name;
    }
    return count;
}

static int solver_of(const char *name)
{
    int i = 0;
    while (lt_root_solver_name(i) != name)
        i++;
    return i;
}

static void print_rows(const settings *s, const char *name, const samples *list, const result *r,
                       int solvers, const double lapack[3])
{
    const double best = fmin(lapack[0], lapack[1]), lapack_cpu = fmax(lapack[2], 0);
    char one[32], two[32], cpu[32];
    const int64_t n = list->item[0].n;
    for (int k = 0; k < solvers; k++)
        fprintf(stderr,
                "%-20s %5lld x%-4zu %-12s %9.2f ms %6.2fx  residual %.1e  1-cos %.1e"
                "  retries %lld  fallbacks %lld  cpu %.2f ms, %.2fx\n",
                name, (long long)n, list->count, r[k].solver, r[k].milliseconds,
                best > 0 ? 1e3 * best / r[k].milliseconds : 0, r[k].residual, r[k].angle,
                (long long)r[k].stats.retries, (long long)r[k].stats.fallbacks,
                r[k].cpu_milliseconds, lapack_cpu / r[k].cpu_milliseconds);
    print_lapack(name, list, lapack);
    for (int k = 0; k < solvers && s->common.json; k++, first_row = false)
        printf("%s{\"matrices\": \"%s\", \"n\": %lld, \"count\": %zu, \"solver\": \"%s\", "
               "\"milliseconds\": %.6g, \"cpu_milliseconds\": %.6g, \"ssyevd_milliseconds\": "
               "[%s, %s], \"ssyevd_cpu_milliseconds\": %s, \"residual\": "
               "%.4g, \"one_minus_cos\": %.4g, \"retries\": %lld, "
               "\"fallbacks\": %lld}",
               first_row ? "" : ", ", name, (long long)n, list->count, r[k].solver,
               r[k].milliseconds, r[k].cpu_milliseconds, milliseconds_text(lapack[0], one),
               milliseconds_text(lapack[1], two), milliseconds_text(lapack[2] / 1e3, cpu),
               r[k].residual, r[k].angle, (long long)r[k].stats.retries,
               (long long)r[k].stats.fallbacks);
}

/* times[0..2 * repeats): ssyevd with one thread and with two; then two rows a solver. */
static lt_status time_all(lt_device *device, const settings *s, const lt_shampoo_config *config,
                          const samples *list, place *p, result *r, double *times)
{
    const int64_t n = s->common.steps;
    for (int64_t i = 0; i < n; i++) {
        const seconds one = time_lapack(list, s->lapack == 2 ? 2 : 1);
        times[i] = one.wall;
        times[n + i] = s->lapack ? one.wall : time_lapack(list, 2).wall;
        times[(2 + 2 * SOLVERS) * n + i] = 1e3 * one.cpu;
        for (int k = 0; r[k].solver; k++) {
            lt_shampoo_config c = *config;
            c.root_solver = (lt_root_solver)solver_of(r[k].solver);
            for (size_t j = 0; j < list->count; j++)
                LT_TRY(write_sample(p[j].a, list->item[j].a));
            r[k].stats = (lt_root_stats){0};
            const seconds begin = read_clocks();
            LT_TRY(run_solver(device, &c, list, p, &r[k]));
            const seconds end = read_clocks();
            times[(2 + 2 * k) * n + i] = 1e3 * (end.wall - begin.wall);
            times[(3 + 2 * k) * n + i] = 1e3 * (end.cpu - begin.cpu);
            if (s->accuracy && i == n - 1)
                LT_TRY(evaluate(s, list, p, &r[k]));
        }
    }
    return LT_OK;
}

static lt_status compare(lt_device *device, const settings *s, const char *name, samples *list)
{
    result r[SOLVERS + 1] = {{0}};
    const int solvers = read_solvers(s->solvers, r), repeats = (int)s->common.steps;
    const ptrdiff_t n = repeats;
    lt_shampoo_config config;
    LT_TRY(lt_shampoo_preset("reference", &config));
    if (!list->count)
        return lt_fail(LT_E_ARG, "bench roots: %s: no matrices", name);
    config.epsilon = s->epsilon;
    config.epsilon_rule = (lt_epsilon_rule)s->rule;
    config.solver_tolerance = s->tolerance;
    if (s->bases)
        config.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    for (size_t i = 0; s->accuracy && i < list->count; i++)
        LT_TRY(make_exact(&list->item[i], s->rule == LT_EPSILON_RELATIVE, s->epsilon));
    place *p = calloc(list->count, sizeof *p);
    double *times = calloc((size_t)n * (3 + 2 * SOLVERS), sizeof *times);
    lt_status st = p && times ? make_places(device, LT_F32, list, p) : LT_E_NOMEM;
    if (!st && s->bases)
        st = begin_bases(device, &config, list, p);
    if (!st)
        st = time_all(device, s, &config, list, p, r, times);
    if (!st) {
        const double lapack[3] = {bench_median(times, repeats), bench_median(times + n, repeats),
                                  bench_median(times + (2 + 2 * SOLVERS) * n, repeats)};
        for (int k = 0; k < solvers; k++) {
            r[k].milliseconds = bench_median(times + (2 + 2 * k) * n, repeats);
            r[k].cpu_milliseconds = bench_median(times + (3 + 2 * k) * n, repeats);
        }
        print_rows(s, name, list, r, solvers, lapack);
    }
    free(times);
    clear(p, list->count);
    return st;
}

static lt_status compare_made(lt_device *device, const settings *s)
{
    for (const char *size = s->sizes; size && *size; size = strchr(size, ',')) {
        size += *size == ',';
        char *end;
        const int64_t n = strtoll(size, &end, 10),
                      count = *end == 'x' ? strtoll(end + 1, NULL, 10) : s->batch;
        if (n < 1 || count < 1)
            return lt_fail(LT_E_ARG, "bench roots: --sizes %s", s->sizes);
        for (const char *at = s->conditions; at && *at; at = strchr(at, ',')) {
            at += *at == ',';
            const double condition = strtod(at, NULL);
            samples list = {0};
            lt_status st = samples_add_made(&list, n, condition, s->batch, count);
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

const bench_command bench_roots = {.name = "roots",
                                   .summary = "accuracy and time of inverse roots, against LAPACK",
                                   .kind = BENCH_DEVICE,
                                   BENCH_SETTINGS(table),
                                   .run = run_roots};
