/* Contractions of Shampoo: gram and mode_product, batched over jobs of equal sizes with cuBLAS.
 * Gradients come with any strides: they are gathered to matrices first. What is gathered by rows is the
 * transpose of the matrix in cuBLAS's order, what is gathered by columns the matrix.
 *
 * Where a gradient is not finite nothing may change: zeros are gathered and the coefficients become 0
 * and 1, or the result is not scattered. */

#include "matrices.h"

#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

static const size_t limit = (size_t)256 << 20; /* bytes of gathered matrices at once */

/* One call's jobs. */
typedef struct call {
    lt_cuda *c;
    const int32_t *finite;
    lt_batch_key *key;
    size_t *order, count;
} call;

static void close_call(call *k)
{
    free(k->key);
    free(k->order);
}

static lt_status open_call(call *k, lt_cuda *c, const char *name, size_t count,
                           const lt_scalars *scalars)
{
    *k = (call){.c = c, .count = count, .finite = scalars ? &scalars->finite : NULL};
    LT_TRY(lt_cuda_begin(c, name));
    k->key = calloc(count ? count : 1, sizeof *k->key);
    k->order = calloc(count ? count : 1, sizeof *k->order);
    if (!k->key || !k->order)
        return lt_fail(LT_E_NOMEM, "cuda:%d: %s: no memory for %zu jobs", c->ordinal, name, count);
    return LT_OK;
}

/* Elements from one gathered matrix to the next. */
static int64_t apart(const lt_batch_key *key)
{
    enum { WANTED = 4 }; /* aligned to 16 bytes, as products by TF32 need it */
    return (key->n * key->rest + WANTED - 1) / WANTED * WANTED;
}

static size_t bytes_apart(const lt_batch_key *key)
{
    return (size_t)apart(key) * lt_dtype_size(key->dtype);
}

/* TF32's kernels read 16 bytes at a time wherever the matrix begins: cuBLAS sees sizes, not pointers. */
static lt_status set_math(const call *k, void *const *matrix, size_t m)
{
    bool tf32 = k->c->tf32;
    for (size_t i = 0; i < m; i++)
        tf32 = tf32 && (uintptr_t)matrix[i] % 16 == 0;
    LT_CUBLAS_TRY(k->c, cublasSetMathMode(k->c->cublas,
                                          tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH));
    return LT_OK;
}

static lt_status check_views(const call *k, const lt_view *a, const lt_view *b)
{
    if ((a->dtype == LT_F32 || a->dtype == LT_F64) && b->dtype == a->dtype)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s: no kernel for %s with %s", k->c->ordinal,
                   k->c->operation, lt_dtype_name(a->dtype), lt_dtype_name(b->dtype));
}

/* The lists of a batch, on the host and on the device: the same layout. */
typedef struct lists {
    lt_fold *from, *to;
    void **a, **b, **out; /* pointers to matrices */
    void *coefficients;
    size_t bytes; /* of all above */
    char *gathered, *made;
} lists;

static lists lay_out(lt_carver *v, size_t m, size_t a_bytes, size_t made_bytes)
{
    lists l;
    l.from = lt_carve(v, m * sizeof *l.from);
    l.to = lt_carve(v, m * sizeof *l.to);
    l.a = lt_carve(v, m * sizeof(void *));
    l.b = lt_carve(v, m * sizeof(void *));
    l.out = lt_carve(v, m * sizeof(void *));
    l.coefficients = lt_carve(v, 2 * sizeof(double));
    l.bytes = v->used;
    l.gathered = lt_carve(v, m * a_bytes);
    l.made = lt_carve(v, m * made_bytes);
    return l;
}

/* Memory for the lists, on the device and on the host. */
static lt_status place(const call *k, size_t m, size_t a_bytes, size_t made_bytes, lists *there,
                       lists *here)
{
    lt_carver count = {0};
    void *workspace = NULL;
    (void)lay_out(&count, m, a_bytes, made_bytes);
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, count.used, &workspace));
    lt_carver device = {.begin = workspace};
    *there = lay_out(&device, m, a_bytes, made_bytes);
    char *host = calloc(there->bytes, 1);
    if (!host)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for %zu jobs", k->c->ordinal, m);
    lt_carver mirror = {.begin = host};
    *here = lay_out(&mirror, m, 0, 0);
    return LT_OK;
}

static lt_status multiply_gram(const call *k, const lt_batch_key *key, const lists *l, int m)
{
    lt_cuda *c = k->c;
    const int n = (int)key->n, rest = (int)key->rest, lead = key->by_columns ? n : rest;
    const cublasOperation_t left = key->by_columns ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t right = key->by_columns ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_CUBLAS_TRY(c, cublasSetPointerMode(c->cublas, CUBLAS_POINTER_MODE_DEVICE));
    if (key->dtype == LT_F64) {
        const double *f = l->coefficients;
        LT_CUBLAS_TRY(c, cublasDgemmBatched(c->cublas, left, right, n, n, rest, f,
                                            (const double *const *)l->a, lead,
                                            (const double *const *)l->a, lead, f + 1,
                                            (double *const *)l->out, n, m));
    } else {
        const float *f = l->coefficients;
        LT_CUBLAS_TRY(c, cublasSgemmBatched(c->cublas, left, right, n, n, rest, f,
                                            (const float *const *)l->a, lead,
                                            (const float *const *)l->a, lead, f + 1,
                                            (float *const *)l->out, n, m));
    }
    return LT_OK;
}

static lt_status gram_batch(const call *k, const lt_gram_job *job, const size_t *index, size_t m)
{
    const lt_batch_key *key = &k->key[index[0]];
    const bool wide = key->dtype == LT_F64;
    const int64_t elements = key->n * key->rest;
    const size_t bytes = bytes_apart(key);
    lt_cuda_stream queue = k->c->stream[LT_CUDA_MAIN];
    lists there, here;
    LT_TRY(place(k, m, bytes, 0, &there, &here));
    for (size_t i = 0; i < m; i++) {
        here.from[i] = lt_fold_of(&job[index[i]].g, job[index[i]].dim, &job[index[i]].g);
        here.a[i] = there.gathered + i * bytes;
        here.out[i] = job[index[i]].f.data;
    }
    lt_send(queue, there.from, here.from, there.bytes);
    lt_status st = set_math(k, here.out, m);
    free(here.from);
    LT_TRY(st);
    lt_fold_gather(queue, there.from, (int)m, elements, apart(key), wide, there.gathered,
                   k->finite);
    lt_coefficients(queue, wide, key->alpha, key->beta, k->finite, there.coefficients);
    return multiply_gram(k, key, &there, (int)m);
}

static lt_status run_gram(call *k, const lt_gram_job *job)
{
    for (size_t i = 0; i < k->count; i++) {
        const lt_fold f = lt_fold_of(&job[i].g, job[i].dim, &job[i].g);
        LT_TRY(check_views(k, &job[i].g, &job[i].f));
        k->key[i] = (lt_batch_key){.n = f.n,
                                   .rest = f.rest,
                                   .by_columns = f.by_columns,
                                   .dtype = job[i].g.dtype,
                                   .alpha = job[i].alpha,
                                   .beta = job[i].beta};
    }
    LT_TRY(lt_batch_sort(k->key, k->count, k->order));
    for (size_t i = 0, end; i < k->count; i = end) {
        const lt_batch_key *key = &k->key[k->order[i]];
        end = lt_batch_end(k->key, k->order, i, k->count, bytes_apart(key), limit);
        LT_TRY(gram_batch(k, job, k->order + i, end - i));
    }
    return lt_cuda_end(k->c);
}

static lt_status gram(void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars)
{
    call k;
    lt_status st = open_call(&k, ctx, "gram", count, scalars);
    if (!st)
        st = run_gram(&k, job);
    close_call(&k);
    return st;
}

/* What was gathered by columns is multiplied from the left: the factors change places. */
static lt_status multiply_mode(const call *k, const lt_batch_key *key, const lists *l, int m)
{
    lt_cuda *c = k->c;
    const bool columns = key->by_columns;
    const int n = (int)key->n, rest = (int)key->rest, rows = columns ? n : rest;
    const cublasOperation_t op = key->transpose != columns ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t left = columns ? op : CUBLAS_OP_N, right = columns ? CUBLAS_OP_N : op;
    void **const a = columns ? l->b : l->a, **const b = columns ? l->a : l->b;
    LT_CUBLAS_TRY(c, cublasSetPointerMode(c->cublas, CUBLAS_POINTER_MODE_HOST));
    if (key->dtype == LT_F64) {
        const double one = 1, zero = 0;
        LT_CUBLAS_TRY(c,
                      cublasDgemmBatched(c->cublas, left, right, rows, columns ? rest : n, n, &one,
                                         (const double *const *)a, rows, (const double *const *)b,
                                         n, &zero, (double *const *)l->out, rows, m));
    } else {
        const float one = 1, zero = 0;
        LT_CUBLAS_TRY(c,
                      cublasSgemmBatched(c->cublas, left, right, rows, columns ? rest : n, n, &one,
                                         (const float *const *)a, rows, (const float *const *)b, n,
                                         &zero, (float *const *)l->out, rows, m));
    }
    return LT_OK;
}

static lt_status mode_batch(const call *k, const lt_mode_product_job *job, const size_t *index,
                            size_t m)
{
    const lt_batch_key *key = &k->key[index[0]];
    const bool wide = key->dtype == LT_F64;
    const int64_t elements = key->n * key->rest;
    const size_t bytes = bytes_apart(key);
    lt_cuda_stream queue = k->c->stream[LT_CUDA_MAIN];
    lists there, here;
    LT_TRY(place(k, m, bytes, bytes, &there, &here));
    for (size_t i = 0; i < m; i++) {
        const lt_mode_product_job *one = &job[index[i]];
        here.from[i] = lt_fold_of(&one->g, one->dim, &one->g);
        here.to[i] = lt_fold_of(&one->y, one->dim, &one->g);
        here.a[i] = there.gathered + i * bytes;
        here.b[i] = one->m.data;
        here.out[i] = there.made + i * bytes;
    }
    lt_send(queue, there.from, here.from, there.bytes);
    lt_status st = set_math(k, here.b, m);
    free(here.from);
    LT_TRY(st);
    lt_fold_gather(queue, there.from, (int)m, elements, apart(key), wide, there.gathered,
                   k->finite);
    LT_TRY(multiply_mode(k, key, &there, (int)m));
    lt_fold_scatter(queue, there.to, (int)m, elements, apart(key), wide, there.made, k->finite);
    return LT_OK;
}

static lt_status run_mode(call *k, const lt_mode_product_job *job)
{
    for (size_t i = 0; i < k->count; i++) {
        const lt_fold f = lt_fold_of(&job[i].g, job[i].dim, &job[i].g);
        LT_TRY(check_views(k, &job[i].g, &job[i].y));
        LT_TRY(check_views(k, &job[i].g, &job[i].m));
        k->key[i] = (lt_batch_key){.n = f.n,
                                   .rest = f.rest,
                                   .by_columns = f.by_columns,
                                   .dtype = job[i].g.dtype,
                                   .transpose = job[i].transpose};
    }
    LT_TRY(lt_batch_sort(k->key, k->count, k->order));
    for (size_t i = 0, end; i < k->count; i = end) {
        const lt_batch_key *key = &k->key[k->order[i]];
        end = lt_batch_end(k->key, k->order, i, k->count, 2 * bytes_apart(key), limit);
        LT_TRY(mode_batch(k, job, k->order + i, end - i));
    }
    return lt_cuda_end(k->c);
}

static lt_status mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    call k;
    lt_status st = open_call(&k, ctx, "mode_product", count, scalars);
    if (!st)
        st = run_mode(&k, job);
    close_call(&k);
    return st;
}

void lt_cuda_install_products_of_matrices(lt_backend *be)
{
    be->gram = gram;
    be->mode_product = mode_product;
}
