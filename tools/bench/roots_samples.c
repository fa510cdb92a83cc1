/* Matrices of `bench roots`, accuracy of a root, and LAPACK's time. */

#include "roots.h"

#include "lather/safetensors.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Uniform in [-1, 1). */
static double next(uint64_t *state)
{
    return 2 * bench_uniform(state) - 1;
}

void samples_clear(samples *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->item[i].a);
        free(list->item[i].old);
        free(list->item[i].before);
        free(list->item[i].root);
    }
    free(list->item);
    *list = (samples){0};
}

static sample *add(samples *list, int64_t n)
{
    sample *more = realloc(list->item, (list->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    list->item = more;
    sample *s = &more[list->count];
    *s = (sample){.n = n, .exponent = 0.25};
    s->a = malloc((size_t)(n * n) * sizeof *s->a);
    if (s->a)
        list->count++;
    return s->a ? s : NULL;
}

/* Replaces a by H a H with the random reflection H = I - 2 v v^T / (v^T v). */
static void reflect(double *a, int64_t n, double *v, double *w, uint64_t *seed)
{
    double square = 0, middle = 0;
    for (int64_t i = 0; i < n; i++) {
        v[i] = next(seed);
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

lt_status samples_add_synthetic(samples *list, int64_t n, double condition, int64_t rank)
{
    enum { REFLECTIONS = 12 };
    uint64_t seed = (uint64_t)n * 31 + (uint64_t)rank + (uint64_t)log(condition) + list->count;
    sample *s = add(list, n);
    double *a = calloc((size_t)(n * n + 2 * n), sizeof *a);
    if (!s || !a) {
        free(a);
        return LT_E_NOMEM;
    }
    for (int64_t i = 0; i < rank; i++)
        a[i * (n + 1)] = exp(-log(condition) * (double)i / (double)(n > 1 ? n - 1 : 1));
    for (int k = 0; k < REFLECTIONS; k++)
        reflect(a, n, a + n * n, a + n * n + n, &seed);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            s->a[i * n + j] = (float)(i > j ? a[i * n + j] : a[j * n + i]);
    snprintf(s->name, sizeof s->name, "%s%g", rank < n ? "rank n/4, " : "", condition);
    free(a);
    return LT_OK;
}

lt_status samples_add_made(samples *list, int64_t n, double condition, int64_t few, int64_t all)
{
    for (int64_t i = 0; i < all && i < few; i++)
        LT_TRY(samples_add_synthetic(list, n, fabs(condition), condition < 0 ? (n + 3) / 4 : n));
    for (int64_t i = few; i < all; i++) {
        sample *s = add(list, n);
        if (!s)
            return LT_E_NOMEM;
        memcpy(s->a, list->item[i - few].a, (size_t)(n * n) * sizeof *s->a);
    }
    return LT_OK;
}

lt_status samples_move(samples *list, double share)
{
    for (size_t k = 0; k < list->count; k++) {
        sample *s = &list->item[k];
        const int64_t count = s->n * s->n;
        float *before = malloc((size_t)count * sizeof *before);
        if (!before)
            return LT_E_NOMEM;
        memcpy(before, s->a, (size_t)count * sizeof *before);
        for (int64_t i = 0; i < count; i++)
            s->a[i] =
                (float)((1 - share) * (double)before[i] + share * (double)before[count - 1 - i]);
        s->before = before;
    }
    return LT_OK;
}

/* Reads the order of a block from the file's metadata: "offset [0,0] shape [64,147]". */
static int order_of(const lt_safetensors *file, const char *name)
{
    const char *note = lt_safetensors_metadata(file, name);
    const char *shape = note ? strstr(note, "shape [") : NULL;
    int order = 1;
    for (const char *c = shape; c && *c && *c != ']'; c++)
        order += *c == ',';
    return order;
}

static lt_status add_factor(samples *list, const lt_safetensors *file, const lt_safetensors *old,
                            const lt_safetensors_entry *e, double correction, double of_matrices)
{
    const int64_t n = e->shape.dim[0];
    sample *s = add(list, n);
    if (!s)
        return LT_E_NOMEM;
    snprintf(s->name, sizeof s->name, "%s", e->name);
    const int order = order_of(file, e->name);
    s->exponent = order == 2 ? of_matrices : 1.0 / (2 * order);
    for (int64_t i = 0; i < n * n; i++)
        s->a[i] = (float)((double)((const float *)e->data)[i] / correction);
    char name[160];
    const char *word = strstr(e->name, ".factor.");
    snprintf(name, sizeof name, "%.*s.root.%s", (int)(word - e->name), e->name, word + 8);
    const lt_safetensors_entry *root = old ? lt_safetensors_find(old, name) : NULL;
    if (root && root->bytes == e->bytes) {
        s->old = malloc(e->bytes);
        if (!s->old)
            return LT_E_NOMEM;
        memcpy(s->old, root->data, e->bytes);
    }
    return LT_OK;
}

static int by_size(const void *x, const void *y)
{
    const sample *a = x, *b = y;
    return a->n != b->n ? (a->n < b->n) - (a->n > b->n) : strcmp(a->name, b->name);
}

lt_status samples_add_recorded(samples *list, const char *path, const char *old, double correction,
                               double exponent, int every)
{
    lt_safetensors *file = NULL, *before = NULL;
    lt_status st = lt_safetensors_open(&file, path);
    if (!st && old)
        st = lt_safetensors_open(&before, old);
    for (size_t i = 0, k = 0; !st && i < lt_safetensors_count(file); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(file, i);
        if (!strstr(e->name, ".factor.") || e->dtype != LT_F32 || e->shape.ndim != 2)
            continue;
        if (k++ % (size_t)every == 0)
            st = add_factor(list, file, before, e, correction, exponent);
    }
    if (!st && !list->count)
        st = lt_fail(LT_E_FORMAT, "%s: no factors of Shampoo", path);
    qsort(list->item, list->count, sizeof *list->item, by_size);
    lt_safetensors_close(&before);
    lt_safetensors_close(&file);
    return st;
}

/* --- Accuracy --- */

void damp_sample(const sample *s, bool relative, double epsilon, double *a)
{
    for (int64_t i = 0; i < s->n * s->n; i++)
        a[i] = (double)s->a[i];
    const double shift = epsilon * (relative ? s->largest : 1);
    for (int64_t i = 0; i < s->n; i++)
        a[i * (s->n + 1)] += shift;
}

void root_from_basis(const float *q, const float *power, int64_t n, float *root)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)(q[i * n + k] * power[k]) * (double)q[j * n + k];
            root[i * n + j] = (float)sum;
        }
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

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

accuracy measure_accuracy(const sample *s, const double *a, const float *root)
{
    const int64_t n = s->n, count = n * VECTORS;
    const int power = (int)lround(1 / s->exponent);
    accuracy out = {-1, -1};
    double *r = malloc((size_t)(n * n + 4 * count) * sizeof *r);
    if (!r)
        return out;
    double *z = r + n * n, *x = z + count, *y = x + count, *u = y + count, square = 0;
    uint64_t seed = 7;
    for (int64_t i = 0; i < n * n; i++)
        r[i] = (double)root[i];
    for (int64_t i = 0; i < count; i++)
        z[i] = next(&seed);

    multiply(a, n, z, x);
    for (int k = 0; k < power; k++) {
        multiply(r, n, x, y);
        memcpy(x, y, (size_t)count * sizeof *x);
    }
    for (int64_t i = 0; i < count; i++)
        square += (x[i] - z[i]) * (x[i] - z[i]);
    out.residual = sqrt(square / dot(z, z, count));

    /* G = A^(1/2) z, as A times power/2 roots times z; then both roots applied to G. */
    multiply(a, n, z, x);
    for (int k = 0; k < power / 2; k++) {
        multiply(s->root, n, x, y);
        memcpy(x, y, (size_t)count * sizeof *x);
    }
    multiply(r, n, x, y);
    multiply(s->root, n, x, u);
    out.angle = 1 - dot(y, u, count) / sqrt(dot(y, y, count) * dot(u, u, count));
    free(r);
    return out;
}

/* --- LAPACK --- */

typedef void ssyevd_fn(const char *job, const char *uplo, const int *n, float *a, const int *lda,
                       float *w, float *work, const int *lwork, int *iwork, const int *liwork,
                       int *info);
typedef void threads_fn(int threads);

typedef void dsyevd_fn(const char *job, const char *uplo, const int *n, double *a, const int *lda,
                       double *w, double *work, const int *lwork, int *iwork, const int *liwork,
                       int *info);

/* Looks up a symbol of a loaded library. Callers convert it by a union, as ISO C has no cast to a function pointer. */
static void *symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

seconds read_clocks(void)
{
    return (seconds){bench_seconds(), bench_core_seconds()};
}

static seconds decompose(ssyevd_fn *ssyevd, const sample *s, float *workspace)
{
    const int n = (int)s->n, lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n;
    float *a = workspace, *w = a + s->n * s->n, *work = w + n;
    int *iwork = (int *)(void *)(work + lwork), info;
    memcpy(a, s->a, (size_t)(s->n * s->n) * sizeof *a);
    const seconds begin = read_clocks();
    ssyevd("V", "L", &n, a, &n, w, work, &lwork, iwork, &liwork, &info);
    const seconds end = read_clocks();
    return (seconds){end.wall - begin.wall, end.cpu - begin.cpu};
}

seconds time_lapack(const samples *list, int threads)
{
    union {
        void *object;
        ssyevd_fn *ssyevd;
        threads_fn *set;
    } lapack = {symbol("ssyevd_")}, blas = {symbol("openblas_set_num_threads")};
    int64_t most = 0;
    seconds sum = {0, 0};
    if (!lapack.object || !blas.object)
        return (seconds){-1, -1};
    for (size_t i = 0; i < list->count; i++)
        most = list->item[i].n > most ? list->item[i].n : most;
    float *workspace = malloc((size_t)(3 * most * most + 16 * most + 64) * sizeof *workspace);
    blas.set(threads);
    for (size_t i = 0; workspace && i < list->count; i++) {
        const seconds one = decompose(lapack.ssyevd, &list->item[i], workspace);
        sum = (seconds){sum.wall + one.wall, sum.cpu + one.cpu};
    }
    blas.set(1); /* the library's setting */
    free(workspace);
    return workspace ? sum : (seconds){-1, -1};
}

const char *milliseconds_text(double wall, char text[32])
{
    if (wall < 0)
        return "null";
    snprintf(text, 32, "%.6g", 1e3 * wall);
    return text;
}

void print_lapack(const char *name, const samples *list, const double lapack[])
{
    const long long n = list->item[0].n;
    if (lapack[0] < 0)
        fprintf(stderr, "%-20s %5lld x%-4zu %-12s absent: this process has no LAPACK\n", name, n,
                list->count, "ssyevd");
    else
        fprintf(stderr, "%-20s %5lld x%-4zu %-12s %9.2f ms with 1 thread, %.2f ms with 2\n", name,
                n, list->count, "ssyevd", 1e3 * lapack[0], 1e3 * lapack[1]);
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

lt_status make_exact(sample *s, bool relative, double epsilon)
{
    union {
        void *object;
        dsyevd_fn *dsyevd;
    } lapack = {symbol("dsyevd_")};
    const int n = (int)s->n, lwork = 1 + 6 * n + 2 * n * n, liwork = 3 + 5 * n;
    const size_t count = (size_t)(s->n * s->n);
    double *a = malloc((count + (size_t)n + (size_t)lwork) * sizeof *a), *w = a ? a + count : NULL;
    int *iwork = malloc((size_t)liwork * sizeof *iwork), info = -1;
    s->root = calloc(count, sizeof *s->root);
    for (size_t i = 0; a && i < count; i++)
        a[i] = (double)s->a[i];
    if (lapack.object && a && iwork && s->root)
        lapack.dsyevd("V", "L", &n, a, &n, w, w + n, &lwork, iwork, &liwork, &info);
    if (!info) {
        s->largest = w[n - 1];
        const double shift = (relative ? w[n - 1] : 1) * epsilon - (relative ? fmin(w[0], 0) : 0);
        for (int k = 0; k < n; k++)
            w[k] = pow(fmax(w[k] + shift, 1e-300), -s->exponent);
        add_up(a, w, n, s->root);
    }
    free(a);
    free(iwork);
    return info ? lt_fail(LT_E_UNSUPPORTED, "bench roots: --accuracy needs LAPACK's dsyevd")
                : LT_OK;
}
