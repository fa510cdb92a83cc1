/* Sums of shifted inverses: y = constant I + sum of weight_j (a + shift_j I)^-1, the j-th terms of all
 * matrices of a size together (matrix_inverse.c). Terms with small shifts are computed in double, and the
 * sum is one of doubles. */

#include "matrices.h"

#include <cublas_v2.h>
#include <stdlib.h>

/* Bytes at once: of sums, and of what inverses work on. */
static const size_t sums_limit = (size_t)1 << 29, work_limit = (size_t)1 << 30;
/* What an inverse takes for an element: three doubles, or five floats. */
enum { WORK = 3 * sizeof(double), MOST_TERMS = 1024 };
/* By TF32 alone where this many times wide_below is added: norm / shift is below 1000 then, as wide_below is 4e-6 norm. */
static const double tf32_from = 250;

/* A batch: jobs of one size and dtype. */
typedef struct batch {
    lt_cuda *c;
    lt_cuda_stream queue;
    lt_rational_job *job;
    const size_t *index;
    size_t begin, all;     /* its first job's place in the call's order, and their number */
    size_t m, terms, most; /* matrices; terms; of these, at once */
    int64_t n;
    bool wide; /* the matrices are doubles */

    lt_term *term;
    void **leaf; /* a list of pointers */
    lt_sum_end *to;
    int *info, *failed;
    char *work;
    double *sum;
    size_t bytes;
} batch;

static size_t square_of(const batch *b)
{
    return (size_t)(b->n * b->n);
}

static void lay_out(batch *b, char *begin)
{
    lt_carver v = {.begin = begin};
    int *failed = lt_carve(&v, b->all * sizeof *failed); /* of all batches */
    b->failed = failed ? failed + b->begin : NULL;
    const size_t leaves = b->most * (size_t)lt_inverse_leaves(b->n);
    b->term = lt_carve(&v, b->most * sizeof *b->term);
    b->leaf = lt_carve(&v, 2 * leaves * sizeof(void *));
    b->to = lt_carve(&v, b->m * sizeof *b->to);
    b->info = lt_carve(&v, leaves * sizeof *b->info);
    b->sum = lt_carve(&v, b->m * square_of(b) * sizeof *b->sum);
    b->work = lt_carve(&v, b->most * square_of(b) * WORK);
    b->bytes = v.used;
}

/* Sums of no terms. */
static lt_status clear_sums(const batch *b)
{
    const size_t square = square_of(b) * sizeof *b->sum;
    for (size_t i = 0; i < b->m; i++)
        if (!b->job[b->index[i]].poles)
            LT_CUDA_TRY(b->c, b->c->api->set_async(b->sum + i * square_of(b), 0, square, b->queue));
    return LT_OK;
}

/* Where results go, and what they have besides sums. Lists are sent as parameters of kernels: a copy of pageable memory
 * may wait for what is in the queue. */
static lt_status begin(const batch *b)
{
    lt_sum_end *to = calloc(b->m, sizeof *to);
    if (!to)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    for (size_t i = 0; i < b->m; i++) {
        const lt_rational_job *job = &b->job[b->index[i]];
        to[i] = (lt_sum_end){job->y.data, job->constant, job->exponent, job->scale};
    }
    lt_send(b->queue, b->to, to, b->m * sizeof *to);
    free(to);
    return LT_OK;
}

static lt_inverse_kind kind_of(const batch *b, const lt_rational_job *job, int j)
{
    if (b->wide || job->shift[j] < job->wide_below)
        return LT_INVERSE_DOUBLE;
    const bool rough = job->wide_below > 0 && job->shift[j] >= tf32_from * job->wide_below;
    return b->c->tf32 && rough && lt_inverse_has_tf32(b->n) ? LT_INVERSE_TF32 : LT_INVERSE_FLOAT;
}

static size_t terms_of(const batch *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->m; i++)
        count += (size_t)b->job[b->index[i]].poles;
    return count;
}

/* Terms of that kind, matrix by matrix; how many. has_some: of the matrices, those that had one before. */
static size_t list_terms(const batch *b, lt_inverse_kind kind, lt_term *term, bool *has_some)
{
    size_t count = 0;
    for (size_t i = 0; i < b->m; i++) {
        const lt_rational_job *job = &b->job[b->index[i]];
        for (int j = 0; j < job->poles; j++) {
            if (kind_of(b, job, j) != kind)
                continue;
            term[count++] = (lt_term){.a = job->a.data,
                                      .sum = b->sum + i * square_of(b),
                                      .failed = b->failed + i,
                                      .shift = job->shift[j],
                                      .weight = job->weight[j],
                                      .scale = job->scale,
                                      .number = j,
                                      .begins = !has_some[i]};
            has_some[i] = true;
        }
    }
    return count;
}

/* Parts of the work memory. */
static lt_inverses inverses_of(const batch *b, lt_inverse_kind kind, size_t count)
{
    const size_t size = kind == LT_INVERSE_DOUBLE ? sizeof(double) : sizeof(float);
    const size_t bytes = count * square_of(b) * size;
    return (lt_inverses){.c = b->c,
                         .kind = kind,
                         .n = b->n,
                         .count = (int)count,
                         .a = b->work,
                         .x = b->work + bytes,
                         .made = b->work + 2 * bytes,
                         .low = b->work + 3 * bytes,
                         .x_low = b->work + 4 * bytes,
                         .a_leaf = b->leaf,
                         .x_leaf = b->leaf + count * (size_t)lt_inverse_leaves(b->n),
                         .info = b->info};
}

static lt_status send_leaves(const batch *b, const lt_inverses *v)
{
    const size_t size = v->kind == LT_INVERSE_DOUBLE ? sizeof(double) : sizeof(float);
    const size_t count = (size_t)v->count, leaves = (size_t)lt_inverse_leaves(b->n);
    void **list = calloc(2 * leaves * count, sizeof *list);
    if (!list)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    for (size_t i = 0; i < leaves * count; i++) {
        const size_t at = lt_inverse_leaf(b->n, (int64_t)(i / count)) + i % count * square_of(b);
        list[i] = v->a + at * size;
        list[leaves * count + i] = v->x + at * size;
    }
    lt_send(b->queue, b->leaf, list, 2 * leaves * count * sizeof *list);
    free(list);
    return LT_OK;
}

static lt_status add_terms(const batch *b, lt_inverse_kind kind, const lt_term *term, size_t count)
{
    const lt_inverses v = inverses_of(b, kind, count);
    lt_send(b->queue, b->term, term, count * sizeof *term);
    LT_TRY(send_leaves(b, &v));
    lt_term_begin(b->queue, b->term, &v, b->wide);
    LT_TRY(lt_inverses_run(&v));
    lt_terms_add(b->queue, b->term, v.count, b->n, kind == LT_INVERSE_DOUBLE, v.made, b->info);
    return LT_OK;
}

/* Of all batches, in one read-back. */
static lt_status read_status(const lt_cuda *c, const int *failed, lt_rational_job *job,
                             const size_t *order, size_t count)
{
    int *found = calloc(count, sizeof *found);
    if (!found)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", c->ordinal);
    lt_cuda_stream queue = c->stream[LT_CUDA_MAIN];
    int code = c->api->copy_async(found, failed, count * sizeof *found, LT_COPY_OUT, queue);
    lt_status st = lt_cuda_check(c, LT_CUDA_RUNTIME, code, "copy");
    if (!st)
        st = lt_cuda_check(c, LT_CUDA_RUNTIME, c->api->stream_sync(queue), "wait");
    for (size_t i = 0; i < count && !st; i++) {
        lt_rational_job *one = &job[order[i]];
        if (found[i] && !one->scale)
            one->status =
                lt_fail(LT_E_ARG, "rational: the matrix plus %g I is not positive definite",
                        one->shift[found[i] - 1]);
    }
    free(found);
    return st;
}

static lt_status add_all(const batch *b, lt_term *term, bool *has_some)
{
    for (int kind = 0; kind < LT_INVERSE_KINDS; kind++) {
        const size_t count = list_terms(b, (lt_inverse_kind)kind, term, has_some);
        for (size_t i = 0; i < count; i += b->most) {
            const size_t some = count - i < b->most ? count - i : b->most;
            LT_TRY(add_terms(b, (lt_inverse_kind)kind, term + i, some));
        }
    }
    return LT_OK;
}

static lt_status run_batch(batch *b, void *workspace)
{
    lt_term *term = calloc(b->terms + 1, sizeof *term);
    bool *has_some = calloc(b->m, sizeof *has_some);
    lt_status st = term && has_some
                       ? LT_OK
                       : lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", b->c->ordinal);
    lay_out(b, workspace);
    if (!st)
        st = begin(b);
    if (!st)
        st = clear_sums(b);
    if (!st)
        st = add_all(b, term, has_some);
    free(term);
    free(has_some);
    LT_TRY(st);
    lt_sums_store(b->queue, b->sum, b->to, (int)b->m, b->n, b->wide, b->failed);
    return LT_OK;
}

/* The jobs of one size from place i of the order on. */
static batch batch_from(lt_cuda *c, lt_rational_job *job, size_t count, const lt_batch_key *key,
                        const size_t *order, size_t i)
{
    const lt_batch_key *first = &key[order[i]];
    const size_t bytes = (size_t)(first->n * first->n) * sizeof(double);
    batch b = {.c = c,
               .queue = c->stream[LT_CUDA_MAIN],
               .job = job,
               .index = order + i,
               .begin = i,
               .all = count,
               .m = lt_batch_end(key, order, i, count, bytes, sums_limit) - i,
               .n = first->n,
               .wide = first->dtype == LT_F64};
    size_t fit = work_limit / (square_of(&b) * WORK);
    fit = fit < MOST_TERMS ? fit : MOST_TERMS;
    b.terms = terms_of(&b);
    b.most = fit < 1 ? 1 : fit < b.terms ? fit : b.terms;
    return b;
}

/* Whether any job has a status to read; gives all LT_OK. */
static bool needs_status(lt_rational_job *job, size_t count)
{
    bool needs = false;
    for (size_t i = 0; i < count; i++) {
        job[i].status = LT_OK;
        needs = needs || !job[i].scale;
    }
    return needs;
}

static lt_status run_all(lt_cuda *c, lt_rational_job *job, size_t count, const lt_batch_key *key,
                         const size_t *order)
{
    size_t bytes = 0;
    void *workspace = NULL;
    for (size_t i = 0; i < count;) {
        batch b = batch_from(c, job, count, key, order, i);
        lay_out(&b, NULL);
        bytes = b.bytes > bytes ? b.bytes : bytes;
        i += b.m;
    }
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, bytes, &workspace));
    LT_CUDA_TRY(c, c->api->set_async(workspace, 0, count * sizeof(int), c->stream[LT_CUDA_MAIN]));
    for (size_t i = 0; i < count;) {
        batch b = batch_from(c, job, count, key, order, i);
        LT_TRY(run_batch(&b, workspace));
        i += b.m;
    }
    return needs_status(job, count) ? read_status(c, workspace, job, order, count) : LT_OK;
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
    return count ? run_all(c, job, count, key, order) : LT_OK;
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
