/* Sums of shifted inverses: y = constant I + sum of weight_j (a + shift_j I)^-1, the j-th terms of all
 * matrices of a size together: Cholesky's factor L by cuSOLVER, L^-1 by cuBLAS, then L^-T L^-1. Terms
 * with small shifts are computed in double, and the sum is one of doubles.
 * Golub & Van Loan, "Matrix computations", 4th edition, section 4.2. */

#include "matrices.h"

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <stdlib.h>

static const size_t limit = (size_t)1 << 30; /* bytes of work memory for matrices at once */

/* A batch: jobs of one size and dtype. Lists on the device have the capacity for all of them. */
typedef struct batch {
    lt_cuda *c;
    lt_cuda_stream queue;
    lt_rational_job *job;
    const size_t *index;
    size_t m;
    int64_t n;
    bool wide; /* the matrices are doubles */

    lt_term *term;
    void **l, **x, **made, **y; /* lists of pointers */
    double *constant;
    int *info, *failed;
    char *l_memory, *x_memory, *made_memory;
    double *sum;
    size_t bytes;
} batch;

static void lay_out(batch *b, char *begin)
{
    lt_carver v = {.begin = begin};
    const size_t m = b->m, square = m * (size_t)(b->n * b->n) * sizeof(double);
    b->term = lt_carve(&v, m * sizeof *b->term);
    b->l = lt_carve(&v, m * sizeof(void *));
    b->x = lt_carve(&v, m * sizeof(void *));
    b->made = lt_carve(&v, m * sizeof(void *));
    b->y = lt_carve(&v, m * sizeof(void *));
    b->constant = lt_carve(&v, m * sizeof *b->constant);
    b->info = lt_carve(&v, m * sizeof *b->info);
    b->failed = lt_carve(&v, m * sizeof *b->failed);
    b->sum = lt_carve(&v, square);
    b->l_memory = lt_carve(&v, square);
    b->x_memory = lt_carve(&v, square);
    b->made_memory = lt_carve(&v, square);
    b->bytes = v.used;
}

static lt_status send(const batch *b, void *to, const void *from, size_t bytes)
{
    LT_CUDA_TRY(b->c, b->c->api->copy_async(to, from, bytes, LT_COPY_IN, b->queue));
    return LT_OK;
}

/* Memory, zero sums, constants, and where results go. */
static lt_status begin(batch *b)
{
    void *workspace = NULL;
    lay_out(b, NULL);
    LT_TRY(lt_cuda_workspace(b->c, LT_CUDA_MAIN, b->bytes, &workspace));
    lay_out(b, workspace);
    const size_t squares = b->m * (size_t)(b->n * b->n) * sizeof(double);
    LT_CUDA_TRY(b->c, b->c->api->set_async(b->sum, 0, squares, b->queue));
    LT_CUDA_TRY(b->c, b->c->api->set_async(b->failed, 0, b->m * sizeof(int), b->queue));
    void **y = calloc(b->m, sizeof *y);
    double *constant = calloc(b->m, sizeof *constant);
    lt_status st =
        y && constant ? LT_OK : lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    for (size_t i = 0; i < b->m && !st; i++) {
        y[i] = b->job[b->index[i]].y.data;
        constant[i] = b->job[b->index[i]].constant;
    }
    if (!st)
        st = send(b, b->y, y, b->m * sizeof *y);
    if (!st)
        st = send(b, b->constant, constant, b->m * sizeof *constant);
    free(y);
    free(constant);
    return st;
}

/* The inverses of what is in l_memory, in made_memory. */
static lt_status invert_wide(const batch *b, int count)
{
    lt_cuda *c = b->c;
    const int n = (int)b->n;
    const double one = 1, zero = 0;
    LT_CUSOLVER_TRY(c, cusolverDnDpotrfBatched(c->cusolver, CUBLAS_FILL_MODE_LOWER, n,
                                               (double **)b->l, n, b->info, count));
    LT_CUBLAS_TRY(c, cublasDtrsmBatched(c->cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                        CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, &one,
                                        (const double *const *)b->l, n, (double *const *)b->x, n,
                                        count));
    LT_CUBLAS_TRY(c, cublasDgemmBatched(c->cublas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one,
                                        (const double *const *)b->x, n, (const double *const *)b->x,
                                        n, &zero, (double *const *)b->made, n, count));
    return LT_OK;
}

static lt_status invert_narrow(const batch *b, int count)
{
    lt_cuda *c = b->c;
    const int n = (int)b->n;
    const float one = 1, zero = 0;
    LT_CUSOLVER_TRY(c, cusolverDnSpotrfBatched(c->cusolver, CUBLAS_FILL_MODE_LOWER, n,
                                               (float **)b->l, n, b->info, count));
    LT_CUBLAS_TRY(c, cublasStrsmBatched(c->cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                        CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, &one,
                                        (const float *const *)b->l, n, (float *const *)b->x, n,
                                        count));
    LT_CUBLAS_TRY(c, cublasSgemmBatched(c->cublas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one,
                                        (const float *const *)b->x, n, (const float *const *)b->x,
                                        n, &zero, (float *const *)b->made, n, count));
    return LT_OK;
}

static bool is_wide(const batch *b, const lt_rational_job *job, int j)
{
    return b->wide || job->shift[j] < job->wide_below;
}

/* The j-th terms of that precision; how many. */
static int list_terms(const batch *b, int j, bool wide, lt_term *term)
{
    int count = 0;
    for (size_t i = 0; i < b->m; i++) {
        const lt_rational_job *job = &b->job[b->index[i]];
        if (j >= job->poles || is_wide(b, job, j) != wide)
            continue;
        term[count++] = (lt_term){.a = job->a.data,
                                  .sum = b->sum + i * (size_t)(b->n * b->n),
                                  .failed = b->failed + i,
                                  .shift = job->shift[j],
                                  .weight = job->weight[j],
                                  .number = j};
    }
    return count;
}

static lt_status send_pointers(const batch *b, bool wide, int count)
{
    const size_t bytes = (size_t)(b->n * b->n) * (wide ? sizeof(double) : sizeof(float));
    void **list = calloc((size_t)count, sizeof *list);
    char *const memory[] = {b->l_memory, b->x_memory, b->made_memory};
    void **const to[] = {b->l, b->x, b->made};
    lt_status st =
        list ? LT_OK : lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    for (int k = 0; k < 3 && !st; k++) {
        for (int i = 0; i < count; i++)
            list[i] = memory[k] + (size_t)i * bytes;
        st = send(b, to[k], list, (size_t)count * sizeof *list);
    }
    free(list);
    return st;
}

static lt_status add_terms(const batch *b, int j, bool wide, lt_term *term)
{
    int count = list_terms(b, j, wide, term);
    if (!count)
        return LT_OK;
    LT_TRY(send(b, b->term, term, (size_t)count * sizeof *term));
    LT_TRY(send_pointers(b, wide, count));
    lt_term_begin(b->queue, b->term, count, b->n, b->wide, wide, b->l_memory, b->x_memory);
    LT_TRY(wide ? invert_wide(b, count) : invert_narrow(b, count));
    lt_term_add(b->queue, b->term, count, b->n, wide, b->made_memory, b->info);
    return LT_OK;
}

static lt_status read_status(const batch *b)
{
    int *failed = calloc(b->m, sizeof *failed);
    if (!failed)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    lt_status st = lt_cuda_check(
        b->c, LT_CUDA_RUNTIME,
        b->c->api->copy_async(failed, b->failed, b->m * sizeof *failed, LT_COPY_OUT, b->queue),
        "copy");
    if (!st)
        st = lt_cuda_check(b->c, LT_CUDA_RUNTIME, b->c->api->stream_sync(b->queue), "wait");
    for (size_t i = 0; i < b->m && !st; i++) {
        lt_rational_job *job = &b->job[b->index[i]];
        job->status = LT_OK;
        if (failed[i])
            job->status =
                lt_fail(LT_E_ARG, "rational: the matrix plus %g I is not positive definite",
                        job->shift[failed[i] - 1]);
    }
    free(failed);
    return st;
}

static int most_poles(const batch *b)
{
    int most = 0;
    for (size_t i = 0; i < b->m; i++)
        if (b->job[b->index[i]].poles > most)
            most = b->job[b->index[i]].poles;
    return most;
}

static lt_status run_batch(batch *b)
{
    lt_term *term = calloc(b->m, sizeof *term);
    if (!term)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    lt_status st = begin(b);
    for (int j = 0, poles = most_poles(b); j < poles && !st; j++) {
        st = add_terms(b, j, false, term);
        if (!st)
            st = add_terms(b, j, true, term);
    }
    free(term);
    LT_TRY(st);
    lt_sums_store(b->queue, b->sum, b->constant, (int)b->m, b->n, b->wide, b->y, b->failed);
    return read_status(b);
}

static lt_status run(lt_cuda *c, lt_rational_job *job, size_t count, lt_batch_key *key,
                     size_t *order)
{
    for (size_t i = 0; i < count; i++) {
        key[i] = (lt_batch_key){.n = job[i].a.shape.dim[0], .rest = 1, .dtype = job[i].a.dtype};
        if (key[i].dtype != LT_F32 && key[i].dtype != LT_F64)
            return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: rational: no kernel for %s", c->ordinal,
                           lt_dtype_name(key[i].dtype));
    }
    LT_CUBLAS_TRY(c, cublasSetMathMode(c->cublas, CUBLAS_DEFAULT_MATH));
    LT_CUBLAS_TRY(c, cublasSetPointerMode(c->cublas, CUBLAS_POINTER_MODE_HOST));
    LT_TRY(lt_batch_sort(key, count, order));
    for (size_t i = 0, end; i < count; i = end) {
        const lt_batch_key *first = &key[order[i]];
        enum { MATRICES = 4 };
        size_t bytes = MATRICES * (size_t)(first->n * first->n) * sizeof(double);
        end = lt_batch_end(key, order, i, count, bytes, limit);
        batch b = {.c = c,
                   .queue = c->stream[LT_CUDA_MAIN],
                   .job = job,
                   .index = order + i,
                   .m = end - i,
                   .n = first->n,
                   .wide = first->dtype == LT_F64};
        LT_TRY(run_batch(&b));
    }
    return LT_OK;
}

static lt_status rational(void *ctx, lt_rational_job *job, size_t count)
{
    lt_cuda *c = ctx;
    LT_TRY(lt_cuda_begin(c, "rational"));
    lt_batch_key *key = calloc(count ? count : 1, sizeof *key);
    size_t *order = calloc(count ? count : 1, sizeof *order);
    lt_status st = key && order ? run(c, job, count, key, order)
                                : lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", c->ordinal);
    free(key);
    free(order);
    return st ? st : lt_cuda_end(c);
}

void lt_cuda_install_rational(lt_backend *be)
{
    be->rational = rational;
}
