/* Functions of Shampoo's matrices with cuSOLVER and cuBLAS, batched over equal sizes: eigenvalues and
 * eigenvectors (XsyevBatched), sums of shifted inverses (Cholesky, then L^-T L^-1), and orthogonal
 * factors (Householder's QR, one matrix after another).
 * Golub & Van Loan, "Matrix computations", 4th edition, sections 4.2, 5.2 and 8.3.
 *
 * They read their status back, and so are never part of a captured step. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels.h"

#include <cublas_v2.h>
#include <cusolverDn.h>
#include <stdlib.h>

static const size_t limit = (size_t)512 << 20; /* bytes of matrices in the workspace at once */

/* A call's jobs, sorted by size. */
typedef struct call {
    lt_cuda *c;
    lt_cuda_stream stream;
    lt_batch_key *key;
    size_t *order, count;
} call;

static void close_call(call *k)
{
    free(k->key);
    free(k->order);
}

static lt_status open_call(call *k, lt_cuda *c, const char *name, size_t count)
{
    *k = (call){.c = c, .stream = c->stream[LT_CUDA_MAIN], .count = count};
    LT_TRY(lt_cuda_begin(c, name));
    k->key = calloc(count ? count : 1, sizeof *k->key);
    k->order = calloc(count ? count : 1, sizeof *k->order);
    if (!k->key || !k->order)
        return lt_fail(LT_E_NOMEM, "cuda:%d: %s: no memory for %zu jobs", c->ordinal, name, count);
    LT_CUBLAS_TRY(c, cublasSetMathMode(c->cublas, CUBLAS_DEFAULT_MATH));
    LT_CUBLAS_TRY(c, cublasSetPointerMode(c->cublas, CUBLAS_POINTER_MODE_HOST));
    return LT_OK;
}

static lt_status set_key(call *k, size_t i, const lt_view *a)
{
    LT_TRY(lt_check_matrix_dtype(k->c, a->dtype));
    k->key[i] = (lt_batch_key){.n = a->shape.dim[0], .rest = 1, .dtype = a->dtype};
    return LT_OK;
}

static lt_status queue_copy(const call *k, void *to, const void *from, size_t bytes,
                            lt_copy_kind kind)
{
    LT_CUDA_TRY(k->c, "cudaMemcpyAsync", k->c->api->copy_async(to, from, bytes, kind, k->stream));
    return LT_OK;
}

static lt_status wait_for_stream(const call *k)
{
    LT_CUDA_TRY(k->c, "cudaStreamSynchronize", k->c->api->stream_sync(k->stream));
    return LT_OK;
}

/* --- Eigenvectors --- */

/* Lists come first: they are sent as they are on the host. */
typedef struct eigen {
    lt_gather *in, *out; /* the matrices, and the vectors as their columns */
    void **values;
    size_t list_bytes;
    int *info, *bad; /* one after the other */
    void *matrix, *row, *work;
    size_t work_bytes, host_bytes;
    int64_t blocks; /* length of each list */
} eigen;

static eigen lay_out_eigen(lt_carver *v, size_t m, int64_t n, size_t size, size_t work_bytes)
{
    eigen e = {.work_bytes = work_bytes};
    e.in = lt_carve(v, m * sizeof *e.in);
    e.out = lt_carve(v, m * sizeof *e.out);
    e.values = lt_carve(v, m * sizeof *e.values);
    e.list_bytes = v->used;
    e.info = lt_carve(v, 2 * m * sizeof(int));
    e.bad = e.info ? e.info + m : NULL;
    e.matrix = lt_carve(v, m * (size_t)(n * n) * size);
    e.row = lt_carve(v, m * (size_t)n * size);
    e.work = lt_carve(v, work_bytes);
    return e;
}

static lt_status solve_eigen(const call *k, cusolverDnParams_t params, const lt_batch_key *key,
                             const eigen *e, size_t m)
{
    const cudaDataType type = key->dtype == LT_F64 ? CUDA_R_64F : CUDA_R_32F;
    void *host = malloc(e->host_bytes ? e->host_bytes : 1);
    if (!host)
        return lt_fail(LT_E_NOMEM, "cuda:%d: eigh: no memory", k->c->ordinal);
    int code = (int)cusolverDnXsyevBatched(k->c->cusolver, params, CUSOLVER_EIG_MODE_VECTOR,
                                           CUBLAS_FILL_MODE_LOWER, key->n, type, e->matrix, key->n,
                                           type, e->row, type, e->work, e->work_bytes, host,
                                           e->host_bytes, e->info, (int64_t)m);
    lt_status st = lt_cuda_check(k->c, LT_CUDA_CUSOLVER, code, "cusolverDnXsyevBatched");
    if (!st)
        st = wait_for_stream(k); /* before the host memory is freed */
    free(host);
    return st;
}

static lt_status assign_eigen_workspace(const call *k, cusolverDnParams_t params,
                                        const lt_batch_key *key, size_t m, eigen *out)
{
    const cudaDataType type = key->dtype == LT_F64 ? CUDA_R_64F : CUDA_R_32F;
    const size_t size = lt_dtype_size(key->dtype);
    size_t device = 0, host = 0;
    LT_CUSOLVER_TRY(
        k->c, cusolverDnXsyevBatched_bufferSize(k->c->cusolver, params, CUSOLVER_EIG_MODE_VECTOR,
                                                CUBLAS_FILL_MODE_LOWER, key->n, type, NULL, key->n,
                                                type, NULL, type, &device, &host, (int64_t)m));
    lt_carver count = {0};
    void *workspace = NULL;
    (void)lay_out_eigen(&count, m, key->n, size, device);
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, count.used, &workspace));
    lt_carver place = {.begin = workspace};
    *out = lay_out_eigen(&place, m, key->n, size, device);
    out->host_bytes = host;
    /* cuSOLVER 11.7.1 reads uninitialized workspace, a bug fixed in 11.7.3 */
    LT_CUDA_TRY(k->c, "cudaMemsetAsync", k->c->api->set_async(out->work, 0, device, k->stream));
    return LT_OK;
}

static lt_status read_eigen_status(const call *k, const eigen *e, lt_eigh_job *job,
                                   const size_t *index, size_t m)
{
    int *info = calloc(2 * m, sizeof *info);
    lt_status st = info ? queue_copy(k, info, e->info, 2 * m * sizeof *info, LT_COPY_OUT)
                        : lt_fail(LT_E_NOMEM, "cuda:%d: eigh: no memory", k->c->ordinal);
    if (!st)
        st = wait_for_stream(k);
    for (size_t i = 0; i < m && !st; i++) {
        job[index[i]].status = LT_OK;
        if (info[i] || info[m + i])
            job[index[i]].status = lt_fail(LT_E_ARG, "eigh: a matrix of side %lld: %s",
                                           (long long)job[index[i]].a.shape.dim[0],
                                           info[i] ? "no convergence" : "it is not finite");
    }
    free(info);
    return st;
}

/* Lists of the batch's views. cuSOLVER's columns are rows here: the vectors are transposed. */
static lt_status send_eigen_lists(const call *k, eigen *e, const lt_eigh_job *job,
                                  const size_t *index, size_t m)
{
    char *host = calloc(e->list_bytes, 1), *matrix = e->matrix;
    if (!host)
        return lt_fail(LT_E_NOMEM, "cuda:%d: eigh: no memory", k->c->ordinal);
    lt_carver mirror = {.begin = host};
    eigen here = lay_out_eigen(&mirror, m, 0, 0, 0);
    int count = 0, outputs = 0;
    int64_t blocks = 0;
    for (size_t i = 0; i < m; i++) {
        const lt_eigh_job *one = &job[index[i]];
        lt_view columns = one->vectors;
        columns.stride[0] = one->vectors.stride[1];
        columns.stride[1] = one->vectors.stride[0];
        const lt_unfolding from = lt_unfold(&one->a, 0, &one->a),
                           to = lt_unfold(&columns, 0, &one->a);
        lt_gather_append(here.in, &count, &e->blocks, &from, matrix);
        lt_gather_append(here.out, &outputs, &blocks, &to, matrix);
        here.values[i] = one->values.data;
        matrix += (size_t)(from.n * from.rest) * lt_dtype_size(one->a.dtype);
    }
    lt_send_list(k->stream, e->in, here.in, e->list_bytes);
    free(host);
    return LT_OK;
}

static lt_status eigh_batch(const call *k, cusolverDnParams_t params, lt_eigh_job *job,
                            const size_t *index, size_t m)
{
    const lt_batch_key *key = &k->key[index[0]];
    const bool wide = key->dtype == LT_F64;
    eigen e;
    LT_TRY(assign_eigen_workspace(k, params, key, m, &e));
    LT_TRY(send_eigen_lists(k, &e, job, index, m));
    LT_CUDA_TRY(k->c, "cudaMemsetAsync",
                k->c->api->set_async(e.info, 0, 2 * m * sizeof(int), k->stream));
    lt_unfolding_gather(k->stream, e.in, (int)m, e.blocks, wide, NULL);
    LT_TRY(solve_eigen(k, params, key, &e, m));
    lt_unfolding_scatter(k->stream, e.out, (int)m, e.blocks, wide, NULL);
    lt_rows_scatter(k->stream, e.row, (int)m, key->n, wide, e.values, e.bad);
    return read_eigen_status(k, &e, job, index, m);
}

static lt_status run_eigh(call *k, cusolverDnParams_t params, lt_eigh_job *job)
{
    for (size_t i = 0; i < k->count; i++)
        LT_TRY(set_key(k, i, &job[i].a));
    LT_TRY(lt_batch_sort(k->key, k->count, k->order));
    for (size_t i = 0, end; i < k->count; i = end) {
        const lt_batch_key *key = &k->key[k->order[i]];
        size_t bytes = (size_t)(key->n * key->n) * lt_dtype_size(key->dtype);
        end = lt_batch_end(k->key, k->order, i, k->count, bytes, limit);
        LT_TRY(eigh_batch(k, params, job, k->order + i, end - i));
    }
    return lt_cuda_end(k->c);
}

static lt_status eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    call k;
    cusolverDnParams_t params = NULL;
    lt_status st = open_call(&k, ctx, "eigh", count);
    if (!st)
        st = lt_cuda_check(k.c, LT_CUDA_CUSOLVER, (int)cusolverDnCreateParams(&params),
                           "cusolverDnCreateParams");
    if (!st)
        st = run_eigh(&k, params, job);
    if (params)
        cusolverDnDestroyParams(params);
    close_call(&k);
    return st;
}

/* --- Orthogonal factors --- */

typedef struct factor {
    int *rank, *info;
    double *sign;
    void *columns, *tau, *work;
} factor;

static factor lay_out_factor(lt_carver *v, int64_t n, size_t size, int work)
{
    factor f;
    f.rank = lt_carve(v, (size_t)n * sizeof *f.rank);
    f.info = lt_carve(v, sizeof *f.info);
    f.sign = lt_carve(v, (size_t)n * sizeof *f.sign);
    f.columns = lt_carve(v, (size_t)(n * n) * size);
    f.tau = lt_carve(v, (size_t)n * size);
    f.work = lt_carve(v, (size_t)work * size);
    return f;
}

static lt_status qr_buffer(lt_cuda *c, int n, bool wide, int *out)
{
    int a = 0, b = 0;
    LT_WIDE_TRY(LT_CUSOLVER_TRY, c, wide, cusolverDn, geqrf_bufferSize, c->cusolver, n, n, NULL, n,
                &a);
    LT_WIDE_TRY(LT_CUSOLVER_TRY, c, wide, cusolverDn, orgqr_bufferSize, c->cusolver, n, n, n, NULL,
                n, NULL, &b);
    *out = a > b ? a : b;
    return LT_OK;
}

/* Zeroes the workspace: at least one release of cuSOLVER reads it uninitialized in one call. */
static lt_status clear_work(const call *k, const factor *f, int work, size_t size)
{
    LT_CUDA_TRY(k->c, "cudaMemsetAsync",
                k->c->api->set_async(f->work, 0, (size_t)work * size, k->stream));
    return LT_OK;
}

/* The product of the k-th column of q with its column of a is r[k,k], whose sign is corrected. */
static lt_status factorize_one(const call *k, const lt_qr_job *job, const lt_batch_key *key)
{
    const bool wide = key->dtype == LT_F64;
    const int n = (int)key->n;
    int work = 0;
    void *workspace = NULL;
    lt_carver count = {0};
    LT_TRY(qr_buffer(k->c, n, wide, &work));
    (void)lay_out_factor(&count, n, lt_dtype_size(key->dtype), work);
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, count.used, &workspace));
    lt_carver place = {.begin = workspace};
    factor f = lay_out_factor(&place, n, lt_dtype_size(key->dtype), work);
    lt_columns_sort(k->stream, job->a.data, n, wide, f.rank, f.columns);
    LT_TRY(clear_work(k, &f, work, lt_dtype_size(key->dtype)));
    LT_WIDE_TRY(LT_CUSOLVER_TRY, k->c, wide, cusolverDn, geqrf, k->c->cusolver, n, n, f.columns, n,
                f.tau, f.work, work, f.info);
    lt_columns_signs(k->stream, f.columns, n, wide, f.sign);
    LT_TRY(clear_work(k, &f, work, lt_dtype_size(key->dtype)));
    LT_WIDE_TRY(LT_CUSOLVER_TRY, k->c, wide, cusolverDn, orgqr, k->c->cusolver, n, n, n, f.columns,
                n, f.tau, f.work, work, f.info);
    lt_columns_restore(k->stream, f.columns, n, wide, f.rank, f.sign, job->q.data);
    return LT_OK;
}

static lt_status qr(void *ctx, const lt_qr_job *job, size_t count)
{
    call k;
    lt_status st = open_call(&k, ctx, "qr", count);
    for (size_t i = 0; i < count && !st; i++) {
        st = set_key(&k, i, &job[i].a);
        if (!st)
            st = factorize_one(&k, &job[i], &k.key[i]);
    }
    if (!st)
        st = lt_cuda_end(k.c);
    close_call(&k);
    return st;
}

void lt_cuda_install_functions_of_matrices(lt_backend *be)
{
    be->eigh = eigh;
    be->qr = qr;
}
