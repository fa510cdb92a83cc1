/* bench roots: accuracy and time of the solvers of Shampoo's inverse roots, against a loop of
 * LAPACK's ssyevd over the same matrices. */

#include "lather/detail/roots.h"

#include "bench.h"

#include "lather/safetensors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct settings {
    bench_common common; /* steps: --repeats */
    const char *factors, *sizes, *conditions, *solvers;
    int64_t batch, every, step, lapack;
    double moved;
    bool accuracy, bases;
} settings;
static settings s;

/* clang-format off */
static const lt_option table[] = {
    {"Benchmark", TEXT("factors", factors), .help = "a checkpoint's optim.safetensors, whose factors replace generated matrices"},
    {"Benchmark", INT("every", every, 1, 1000), .value = "1", .help = "take every N-th factor only"},
    {"Benchmark", INT("step", step, 1, 1000000000), .value = "50", .help = "step of the checkpoint, for bias correction with Shampoo's default beta2"},
    {"Benchmark", TEXT("sizes", sizes), .value = "64,256,1024", .help = "sides of generated matrices; 512x27: 27 of that size, instead of --batch"},
    {"Benchmark", TEXT("conditions", conditions), .value = "1e2,1e4,1e6,1e8,-1e4", .help = "condition numbers; negative: a quarter of the rank"},
    {"Benchmark", INT("batch", batch, 1, 1000), .value = "4", .help = "generated matrices of each kind"},
    {"Benchmark", FLAG("bases", bases), .help = "keep eigenvectors and start from those of the matrix before its change"},
    {"Benchmark", REAL("moved", moved, 0, 1), .value = "0.05", .help = "share of another matrix in that change"},
    {"Benchmark", TEXT("solvers", solvers), .value = "eigh,rational", .help = "solvers to compare"},
    {"Benchmark", INT("repeats", common.steps, 1, 1000), .value = "3", .help = "interleaved measurements; the median counts"},
    {"Benchmark", FLAG("accuracy", accuracy), .value = "on", .help = "compare with double"},
    {"Benchmark", INT("lapack-threads", lapack, 0, 2), .value = "0", .help = "OpenBLAS threads of ssyevd; 0: measure 1 and 2 (2 spin for a long time under load)"},
};
/* clang-format on */

enum { SOLVERS = LT_ROOT_RATIONAL + 1, MOST_CONDITIONS = 32 };

static const double epsilon = 1e-6; /* damping, relative to the largest eigenvalue */

/* --- Matrices --- */

/* One symmetric matrix, and its name in the table. */
typedef struct matrix {
    char name[96];
    int64_t n;
    double exponent;
    float *a;                          /* [n,n] */
    float *before;                     /* the matrix before move(), or NULL */
    double *root;                      /* root in f64, by make_exact() */
    double largest;                    /* largest eigenvalue, by make_exact() */
    lt_tensor *in, *out, *old, *power; /* operands of a solver; old and power: with --bases */
} matrix;

typedef struct matrices {
    matrix *item;
    size_t count;
} matrices;

static void clear(matrices *list)
{
    for (size_t i = 0; i < list->count; i++) {
        matrix *m = &list->item[i];
        free(m->a);
        free(m->before);
        free(m->root);
        lt_tensor_free(&m->in);
        lt_tensor_free(&m->out);
        lt_tensor_free(&m->old);
        lt_tensor_free(&m->power);
    }
    free(list->item);
    *list = (matrices){0};
}

static size_t bytes_of(const matrix *m)
{
    return (size_t)(m->n * m->n) * sizeof *m->a;
}

static matrix *add(matrices *list, int64_t n)
{
    matrix *more = realloc(list->item, (list->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    list->item = more;
    matrix *m = &more[list->count];
    *m = (matrix){.n = n, .exponent = 0.25};
    m->a = malloc(bytes_of(m));
    list->count += m->a != NULL;
    return m->a ? m : NULL;
}

/* Replaces a by H a H with the random reflection H = I - 2 v v^T / (v^T v). */
static void reflect(double *a, int64_t n, double *v, double *w, uint64_t *seed)
{
    double square = 0, middle = 0;
    for (int64_t i = 0; i < n; i++) {
        v[i] = 2 * bench_uniform(seed) - 1;
        square += v[i] * v[i];
    }
    for (int64_t i = 0; i < n; i++) {
        w[i] = 0;
        for (int64_t j = 0; j < n; j++)
            w[i] += a[i * n + j] * v[j];
        middle += v[i] * w[i];
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            a[i * n + j] += 4 * middle / square / square * v[i] * v[j]
                            - 2 / square * (v[i] * w[j] + w[i] * v[j]);
}

/* Adds a matrix with eigenvalues from 1 to 1/condition, evenly spaced in logarithms; all after the first `rank` are 0. */
static lt_status add_synthetic(matrices *list, int64_t n, double condition, int64_t rank)
{
    enum { REFLECTIONS = 12 };
    uint64_t seed = (uint64_t)n * 31 + (uint64_t)rank + (uint64_t)log(condition) + list->count;
    matrix *m = add(list, n);
    double *a = calloc((size_t)(n * n + 2 * n), sizeof *a);
    if (!m || !a) {
        free(a);
        return LT_E_NOMEM;
    }
    for (int64_t i = 0; i < rank; i++)
        a[i * (n + 1)] = exp(-log(condition) * (double)i / (double)(n > 1 ? n - 1 : 1));
    for (int k = 0; k < REFLECTIONS; k++)
        reflect(a, n, a + n * n, a + n * n + n, &seed);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            m->a[i * n + j] = (float)(i > j ? a[i * n + j] : a[j * n + i]);
    snprintf(m->name, sizeof m->name, "%s%g", rank < n ? "rank n/4, " : "", condition);
    free(a);
    return LT_OK;
}

/* Adds `all` such matrices, copies of the first `few` after those; a negative condition: rank n/4. */
static lt_status add_generated(matrices *list, int64_t n, double condition, int64_t few,
                               int64_t all)
{
    for (int64_t i = 0; i < all && i < few; i++)
        LT_TRY(add_synthetic(list, n, fabs(condition), condition < 0 ? (n + 3) / 4 : n));
    for (int64_t i = few; i < all; i++) {
        matrix *m = add(list, n);
        if (!m)
            return LT_E_NOMEM;
        memcpy(m->a, list->item[i - few].a, bytes_of(m));
    }
    return LT_OK;
}

/* Replaces each matrix a by (1 - share) a + share b, b its mirror image (rows and columns backwards), and keeps the old
 * matrix in `before`. */
static lt_status move(matrices *list, double share)
{
    for (size_t k = 0; k < list->count; k++) {
        matrix *m = &list->item[k];
        const int64_t count = m->n * m->n;
        float *before = m->before = malloc(bytes_of(m));
        if (!before)
            return LT_E_NOMEM;
        memcpy(before, m->a, bytes_of(m));
        for (int64_t i = 0; i < count; i++)
            m->a[i] =
                (float)((1 - share) * (double)before[i] + share * (double)before[count - 1 - i]);
    }
    return LT_OK;
}

static lt_status add_factor(matrices *list, const lt_safetensors *file,
                            const lt_safetensors_entry *e, double correction)
{
    const int64_t n = e->shape.dim[0];
    matrix *m = add(list, n);
    if (!m)
        return LT_E_NOMEM;
    snprintf(m->name, sizeof m->name, "%s", e->name);
    /* The block's order is that of its shape in the metadata: "offset [0,0] shape [64,147]". */
    const char *note = lt_safetensors_metadata(file, e->name);
    const char *shape = note ? strstr(note, "shape [") : NULL;
    int order = 1;
    for (const char *c = shape; c && *c && *c != ']'; c++)
        order += *c == ',';
    m->exponent = 1.0 / (2 * order);
    for (int64_t i = 0; i < n * n; i++)
        m->a[i] = (float)((double)((const float *)e->data)[i] / correction);
    return LT_OK;
}

static int by_size(const void *x, const void *y)
{
    const matrix *a = x, *b = y;
    return a->n != b->n ? (a->n < b->n) - (a->n > b->n) : strcmp(a->name, b->name);
}

/* Adds each --every-th factor of a checkpoint, divided by 1 - beta2^step. */
static lt_status add_recorded(matrices *list)
{
    const double beta2 = 0.999, correction = 1 - pow(beta2, (double)s.step);
    lt_safetensors *file = NULL;
    lt_status st = lt_safetensors_open(&file, s.factors);
    for (size_t i = 0, k = 0; !st && i < lt_safetensors_count(file); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(file, i);
        if (strstr(e->name, ".factor.") && e->dtype == LT_F32 && e->shape.ndim == 2
            && k++ % (size_t)s.every == 0)
            st = add_factor(list, file, e, correction);
    }
    if (!st && !list->count)
        st = lt_fail(LT_E_FORMAT, "%s: no factors of Shampoo", s.factors);
    if (!st)
        qsort(list->item, list->count, sizeof *list->item, by_size);
    lt_safetensors_close(&file);
    return st;
}

/* --- LAPACK --- */

/* A function of OpenBLAS; ISO C has no cast from dlsym()'s result. */
typedef union symbol {
    void *object;
    void (*syevd)(const char *job, const char *uplo, const int *n, void *a, const int *lda, void *w,
                  void *work, const int *lwork, int *iwork, const int *liwork, int *info);
    void (*set_threads)(int threads);
} symbol;

/* Looks up a function of OpenBLAS, which is loaded at the first call; NULL if this machine has none. */
static symbol find_in_blas(const char *name)
{
    static void *library;
    setenv("OPENBLAS_NUM_THREADS", "2", 0); /* else its constructor starts a thread per core */
    library = library ? library : dlopen("libopenblas.so.0", RTLD_NOW);
    return (symbol){library ? dlsym(library, name) : NULL};
}

/* Seconds of ssyevd on the matrices one after the other, with that number of OpenBLAS threads, and processor seconds;
 * negative without OpenBLAS. */
static void time_lapack(const matrices *list, int threads, double *wall, double *cpu)
{
    const symbol lapack = find_in_blas("ssyevd_"), blas = find_in_blas("openblas_set_num_threads");
    int64_t most = 0;
    *wall = *cpu = -1e-3;
    if (!lapack.object || !blas.object)
        return;
    for (size_t i = 0; i < list->count; i++)
        most = list->item[i].n > most ? list->item[i].n : most;
    float *a = malloc((size_t)(3 * most * most + 16 * most + 64) * sizeof *a);
    if (!a)
        return;
    blas.set_threads(threads);
    *wall = *cpu = 0;
    for (size_t i = 0; i < list->count; i++) {
        const int n = (int)list->item[i].n, lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n;
        float *w = a + (size_t)n * (size_t)n, *work = w + n;
        int *iwork = (int *)(void *)(work + lwork), info;
        memcpy(a, list->item[i].a, (size_t)n * (size_t)n * sizeof *a);
        const double begin = bench_seconds(), began = bench_core_seconds();
        lapack.syevd("V", "L", &n, a, &n, w, work, &lwork, iwork, &liwork, &info);
        *wall += bench_seconds() - begin;
        *cpu += bench_core_seconds() - began;
    }
    free(a);
}

/* root = sum over k of power[k] q_k q_k^T; LAPACK's columns are rows here. */
static void add_up(const double *q, const double *power, int64_t n, double *root)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            const double factor = power[k] * q[k * n + i];
            for (int64_t j = 0; j < n; j++)
                root[i * n + j] += factor * q[k * n + j];
        }
}

/* Computes m->root by an eigendecomposition in double, damped by epsilon times the largest eigenvalue.
 * Errors: LT_E_UNSUPPORTED (this machine has no LAPACK). */
static lt_status make_exact(matrix *m)
{
    const symbol lapack = find_in_blas("dsyevd_");
    const int n = (int)m->n, lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n;
    const size_t count = (size_t)(m->n * m->n);
    double *a = malloc((count + (size_t)(n + lwork + liwork)) * sizeof *a),
           *w = a ? a + count : NULL;
    int info = -1;
    m->root = calloc(count, sizeof *m->root);
    for (size_t i = 0; a && i < count; i++)
        a[i] = (double)m->a[i];
    if (lapack.object && a && m->root)
        lapack.syevd("V", "L", &n, a, &n, w, w + n, &lwork, (int *)(void *)(w + n + lwork), &liwork,
                     &info);
    if (w && !info) {
        m->largest = w[n - 1];
        const double shift = m->largest * epsilon - fmin(w[0], 0);
        for (int k = 0; k < n; k++)
            w[k] = pow(fmax(w[k] + shift, 1e-300), -m->exponent);
        add_up(a, w, n, m->root);
    }
    free(a);
    return info ? lt_fail(LT_E_UNSUPPORTED, "bench roots: --accuracy needs LAPACK's dsyevd")
                : LT_OK;
}

/* --- Solvers --- */

/* One solver on one list of matrices. */
typedef struct result {
    lt_root_solver solver;
    double residual; /* |R^p A - I| / sqrt(n), on random vectors, in double; the list's worst */
    double angle;    /* 1 - cos between R G and f64's R G, G random with covariance A; the worst */
    lt_root_stats stats;
} result;

static int failures;

/* Runs a solver over the list, in batches of the size that a refresh uses. */
static lt_status run_solver(lt_device *device, const lt_shampoo_config *config,
                            const matrices *list, lt_root_stats *stats)
{
    const size_t most = (size_t)1 << 25 /* bytes */, count = list->count;
    LT_ASSERT(count > 0);
    lt_root_job *job = calloc(count, sizeof *job);
    if (!job)
        return LT_E_NOMEM;
    lt_status st = LT_OK;
    const lt_root_context context = {.config = config, .device = device, .stats = stats};
    for (size_t i = 0; i < count; i++) {
        const matrix *m = &list->item[i];
        job[i] = (lt_root_job){.a = lt_tensor_view(m->in),
                               .exponent = m->exponent,
                               .out = lt_tensor_view(m->out),
                               .param = m->name};
        if (m->old)
            job[i].old = lt_tensor_view(m->old);
        if (m->power)
            job[i].power = lt_tensor_view(m->power);
    }
    for (size_t begin = 0, end; begin < count && !st; begin = end) {
        size_t sum = bytes_of(&list->item[begin]);
        for (end = begin + 1; end < count && sum + bytes_of(&list->item[end]) <= most; end++)
            sum += bytes_of(&list->item[end]);
        st = lt_root_run(&context, job + begin, end - begin);
    }
    for (size_t i = 0; i < count && !st; i++)
        failures += job[i].status != LT_OK;
    free(job);
    return st;
}

/* Computes eigenvectors of the matrices before the move, from which the solvers start. */
static lt_status begin_bases(lt_device *device, lt_shampoo_config config, const matrices *list)
{
    config.root_solver = LT_ROOT_EIGH;
    for (size_t i = 0; i < list->count; i++)
        LT_TRY(lt_tensor_write(list->item[i].in, list->item[i].before, bytes_of(&list->item[i])));
    LT_TRY(run_solver(device, &config, list, NULL));
    for (size_t i = 0; i < list->count; i++) {
        matrix *m = &list->item[i];
        m->old = m->out;
        m->out = NULL;
        LT_TRY(lt_tensor_new(&m->out, device, LT_F32, LT_SHAPE(m->n, m->n)));
    }
    return LT_OK;
}

/* Reads a root, or computes it from eigenvectors q (m->out) and powers of eigenvalues (m->power): q diag(power) q^T. */
static lt_status read_root(const matrix *m, double *root)
{
    const int64_t n = m->n, count = n * n;
    float *q = malloc((size_t)(count + n) * sizeof *q), *power = q ? q + count : NULL;
    lt_status st = q ? lt_tensor_read(m->out, q, (size_t)count * sizeof *q) : LT_E_NOMEM;
    if (!st && m->power)
        st = lt_tensor_read(m->power, power, (size_t)n * sizeof *q);
    for (int64_t i = 0; i < count && !st; i++) {
        const float *left = q + i / n * n, *right = q + i % n * n;
        double sum = m->power ? 0 : (double)q[i];
        for (int64_t k = 0; k < n && m->power; k++)
            sum += (double)(left[k] * power[k]) * (double)right[k];
        root[i] = (double)(float)sum;
    }
    free(q);
    return st;
}

enum { VECTORS = 8 };

static void multiply(const double *m, int64_t n, const double *x, double *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < VECTORS; k++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum += m[i * n + j] * x[k * n + j];
            y[k * n + i] = sum;
        }
}

/* Multiplies x by a power of m. */
static void multiply_often(const double *m, int64_t n, int power, double *x, double *workspace)
{
    for (int k = 0; k < power; k++) {
        multiply(m, n, x, workspace);
        memcpy(x, workspace, (size_t)(n * VECTORS) * sizeof *x);
    }
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Compares the solver's root with the exact one. */
static lt_status evaluate(const matrix *m, result *out)
{
    const int64_t n = m->n, count = n * VECTORS;
    const int power = (int)lround(1 / m->exponent);
    double *root = malloc((size_t)(2 * n * n + 4 * count) * sizeof *root), square = 0;
    uint64_t seed = 7;
    lt_status st = root ? read_root(m, root) : LT_E_NOMEM;
    if (!st) {
        double *a = root + n * n, *z = a + n * n, *x = z + count, *y = x + count, *u = y + count;
        for (int64_t i = 0; i < n * n; i++) /* the damped matrix */
            a[i] = (double)m->a[i] + (i % (n + 1) ? 0 : epsilon * m->largest);
        for (int64_t i = 0; i < count; i++)
            z[i] = 2 * bench_uniform(&seed) - 1;
        multiply(a, n, z, x);
        multiply_often(root, n, power, x, y);
        for (int64_t i = 0; i < count; i++)
            square += (x[i] - z[i]) * (x[i] - z[i]);
        out->residual = fmax(out->residual, sqrt(square / dot(z, z, count)));

        /* G = A^(1/2) z, as A times power/2 roots times z; then both roots applied to G. */
        multiply(a, n, z, x);
        multiply_often(m->root, n, power / 2, x, y);
        multiply(root, n, x, y);
        multiply(m->root, n, x, u);
        out->angle =
            fmax(out->angle, 1 - dot(y, u, count) / sqrt(dot(y, y, count) * dot(u, u, count)));
    }
    free(root);
    return st;
}

/* --- A list of matrices, all solvers, interleaved with LAPACK --- */

/* Solvers on one list, alternating with LAPACK. Columns of a round: seconds of ssyevd with one and with two threads, its
 * processor seconds with one; then wall and processor milliseconds of each solver. */
typedef struct match {
    lt_device *device;
    const char *name;
    matrices *list;
    lt_shampoo_config config;
    result solver[SOLVERS];
    int solvers;
} match;

enum { ONE_THREAD, TWO_THREADS, ONE_CPU, FIRST_SOLVER, COLUMNS = FIRST_SOLVER + 2 * SOLVERS };

static void read_solvers(match *m)
{
    char list[256], word[64];
    snprintf(list, sizeof list, ",%s,", s.solvers);
    for (int i = 0; i < SOLVERS; i++) {
        snprintf(word, sizeof word, ",%s,", lt_root_solver_name(i));
        if (strstr(list, word))
            m->solver[m->solvers++].solver = (lt_root_solver)i;
    }
}

static void print_solver(const match *m, const result *r, const double *found, const double *ms)
{
    const double best = fmin(found[ONE_THREAD], found[TWO_THREADS]);
    const long long n = m->list->item[0].n;
    const int retries = (int)r->stats.retries, fallbacks = (int)r->stats.fallbacks;
    const char *solver = lt_root_solver_name((int)r->solver);
    fprintf(stderr,
            "%-20s %5lld x%-4zu %-12s %9.2f ms %6.2fx  residual %.1e  1-cos %.1e"
            "  retries %d  fallbacks %d  cpu %.2f ms, %.2fx\n",
            m->name, n, m->list->count, solver, ms[0], best > 0 ? 1e3 * best / ms[0] : 0,
            r->residual, r->angle, retries, fallbacks, ms[1],
            1e3 * fmax(found[ONE_CPU], 0) / ms[1]);
    bench_print_row("matrices %s n %lld count %zu solver %s milliseconds %g cpu_milliseconds %g "
                    "ssyevd_milliseconds [%g,%g] ssyevd_cpu_milliseconds %g residual %.4g "
                    "one_minus_cos %.4g retries %d fallbacks %d",
                    m->name, n, m->list->count, solver, ms[0], ms[1], 1e3 * found[ONE_THREAD],
                    1e3 * found[TWO_THREADS], 1e3 * found[ONE_CPU], r->residual, r->angle, retries,
                    fallbacks);
}

static void print_match(const match *m, const double *found)
{
    for (int k = 0; k < m->solvers; k++)
        print_solver(m, &m->solver[k], found, &found[FIRST_SOLVER + 2 * k]);
    fprintf(stderr, "%-20s %5lld x%-4zu %-12s %9.2f ms with 1 thread, %.2f ms with 2\n", m->name,
            (long long)m->list->item[0].n, m->list->count,
            found[ONE_THREAD] < 0 ? "no LAPACK" : "ssyevd", 1e3 * found[ONE_THREAD],
            1e3 * found[TWO_THREADS]);
}

static lt_status run_match(void *context, int64_t round, double *found)
{
    match *m = context;
    const matrices *list = m->list;
    double unused;
    time_lapack(list, s.lapack == 2 ? 2 : 1, &found[ONE_THREAD], &found[ONE_CPU]);
    found[TWO_THREADS] = found[ONE_THREAD];
    if (!s.lapack)
        time_lapack(list, 2, &found[TWO_THREADS], &unused);
    for (int k = 0; k < m->solvers; k++) {
        result *r = &m->solver[k];
        m->config.root_solver = r->solver;
        for (size_t i = 0; i < list->count; i++)
            LT_TRY(lt_tensor_write(list->item[i].in, list->item[i].a, bytes_of(&list->item[i])));
        r->stats = (lt_root_stats){0};
        const double begin = bench_seconds(), began = bench_core_seconds();
        LT_TRY(run_solver(m->device, &m->config, list, &r->stats));
        found[FIRST_SOLVER + 2 * k] = 1e3 * (bench_seconds() - begin);
        found[FIRST_SOLVER + 2 * k + 1] = 1e3 * (bench_core_seconds() - began);
        for (size_t i = 0; s.accuracy && round == s.common.steps - 1 && i < list->count; i++)
            LT_TRY(evaluate(&list->item[i], r));
    }
    return LT_OK;
}

static lt_status compare(lt_device *device, const char *name, matrices *list)
{
    match m = {.device = device, .name = name, .list = list};
    double found[COLUMNS];
    LT_TRY(lt_shampoo_preset("reference", &m.config));
    m.config.epsilon = epsilon;
    m.config.epsilon_rule = LT_EPSILON_RELATIVE;
    if (s.bases)
        m.config.preconditioner = LT_PRECONDITIONER_EIGENDECOMPOSED;
    read_solvers(&m);
    for (size_t i = 0; i < list->count; i++) {
        matrix *one = &list->item[i];
        LT_TRY(s.accuracy ? make_exact(one) : LT_OK);
        LT_TRY(lt_tensor_new(&one->in, device, LT_F32, LT_SHAPE(one->n, one->n)));
        LT_TRY(lt_tensor_new(&one->out, device, LT_F32, LT_SHAPE(one->n, one->n)));
        if (s.bases)
            LT_TRY(lt_tensor_new(&one->power, device, LT_F32, LT_SHAPE(one->n)));
    }
    if (s.bases)
        LT_TRY(begin_bases(device, m.config, list));
    LT_TRY(bench_rounds(&s.common, run_match, &m, COLUMNS, found));
    print_match(&m, found);
    return LT_OK;
}

static lt_status compare_generated(lt_device *device)
{
    double condition[MOST_CONDITIONS];
    int conditions;
    LT_TRY(bench_read_list("conditions", s.conditions, condition, MOST_CONDITIONS, &conditions));
    for (const char *size = s.sizes; size && *size; size = strchr(size, ',')) {
        size += *size == ',';
        char *end;
        const int64_t n = strtoll(size, &end, 10),
                      count = *end == 'x' ? strtoll(end + 1, NULL, 10) : s.batch;
        if (n < 1 || count < 1)
            return lt_fail(LT_E_ARG, "bench roots: --sizes %s", s.sizes);
        for (int i = 0; i < conditions; i++) {
            matrices list = {0};
            lt_status st = add_generated(&list, n, condition[i], s.batch, count);
            if (!st && s.bases)
                st = move(&list, s.moved);
            if (!st) /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): clear() frees the list */
                st = compare(device, list.item[0].name, &list);
            clear(&list);
            LT_TRY(st);
        }
    }
    return LT_OK;
}

static lt_status run_roots(lt_device *device, lt_comm *comm)
{
    (void)comm;
    bench_print_head("roots", device, "f32", 0);
    bench_print_fields("repeats %lld", (long long)s.common.steps);
    bench_print_open("rows", '[');
    matrices list = {0};
    lt_status st = s.factors ? add_recorded(&list) : compare_generated(device);
    if (!st && s.factors)
        st = compare(device, "recorded", &list);
    clear(&list);
    bench_print_close(']');
    bench_print_fields("failures %d", failures);
    return st;
}

BENCH_COMMAND(roots, BENCH_DEVICE, table, "accuracy and time of inverse roots, against LAPACK");
