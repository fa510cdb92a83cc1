/* Sums of shifted inverses: y = constant I + sum of weight_j (a + shift_j I)^-1, the terms of all matrices together
 * (matrix_inverse.c). Terms with small shifts are computed in double, and the sum is one of doubles. */

#include "matrices.h"

#include <cublas_v2.h>
#include <stdlib.h>

/* Bytes at once: of sums, and of what inverses work on. A factor of few blocks takes as long as one of all that a device computes at
 * once, as its panels wait for one another: what is cut into lots takes that time for each. ResNet-50's terms with blocks of 2048 take
 * 3.4 GiB, with blocks of 1024 2.5, beside activations of 20 and more. */
static const size_t sums_limit = (size_t)1 << 30, work_limit = (size_t)1 << 32;
enum { MOST_TERMS = 1024, PADDING = 16 * 256 }; /* PADDING: bytes that aligning a list's parts takes */
/* By TF32 alone where this many times wide_below is added: norm / shift is below 1000 then, as wide_below is 4e-6 norm. */
static const double tf32_from = 250;

/* How terms are computed: in double; by three products of TF32 for each of floats; by one. */
typedef enum kind { IN_DOUBLE, IN_FLOAT, BY_TF32 } kind;

/* Jobs of one size and dtype, from place begin of the call's order on. */
typedef struct batch {
    size_t begin, m;
    int64_t n;
    bool wide;   /* the matrices are doubles */
    double *sum; /* sums in a row */
} batch;

typedef struct call {
    lt_cuda *c;
    lt_cuda_stream queue;
    lt_rational_job *job;
    const size_t *order;
    size_t count;
    batch *batch; /* as many as there are, of at most count */
    size_t batches;
    int *failed; /* [count], and so on: in the call's order */
    lt_sum_end *to;
    bool *has_some; /* the sum has a term */
    char *work;
    size_t capacity, used;
    /* a lot: inverses that are made in step */
    lt_inverses list[LT_INVERSE_LISTS];
    const batch *last; /* the last list's */
    int lists;
    size_t terms;
    lt_term *term;
} call;

static size_t square_of(const batch *b)
{
    return (size_t)(b->n * b->n);
}

static const lt_rational_job *job_of(const call *k, const batch *b, size_t i)
{
    return &k->job[k->order[b->begin + i]];
}

static kind kind_of(const call *k, const batch *b, const lt_rational_job *job, int j)
{
    if (b->wide || job->shift[j] < job->wide_below)
        return IN_DOUBLE;
    const bool rough = job->wide_below > 0 && job->shift[j] >= tf32_from * job->wide_below;
    return k->c->tf32 && rough && lt_inverse_has_tf32(b->n) ? BY_TF32 : IN_FLOAT;
}

/* What a term takes at most: matrices, a padded block on the diagonal of two, and places in lists. */
static size_t bytes_of_term(int64_t n, bool wide)
{
    const size_t size = wide ? sizeof(double) : sizeof(float), side = (size_t)lt_inverse_side(n);
    const size_t parts = !wide && lt_inverse_has_tf32(n) ? 5 : 3;
    return size * (parts * (size_t)(n * n) + 2 * side * side) + sizeof(lt_term) + 2 * sizeof(void *)
           + 2 * sizeof(int);
}

/* Of some batches' terms in double, or of the others, if they are all together. */
static size_t bytes_of_terms(const call *k, const batch *begin, const batch *end, bool wide)
{
    size_t bytes = 0;
    for (const batch *b = begin; b < end; b++) {
        bytes += PADDING;
        for (size_t i = 0; i < b->m; i++)
            for (int j = 0; j < job_of(k, b, i)->poles; j++)
                if ((kind_of(k, b, job_of(k, b, i), j) == IN_DOUBLE) == wide)
                    bytes += bytes_of_term(b->n, wide);
    }
    return bytes;
}

/* Sums of no terms. */
static lt_status clear_sums(const call *k, const batch *b)
{
    const size_t square = square_of(b) * sizeof *b->sum;
    for (size_t i = 0; i < b->m; i++)
        if (!job_of(k, b, i)->poles)
            LT_CUDA_TRY(k->c, k->c->api->set_async(b->sum + i * square_of(b), 0, square, k->queue));
    return LT_OK;
}

/* Where results go, and what they have besides sums. Lists are sent as parameters of kernels: a copy of pageable memory
 * may wait for what is in the queue. */
static lt_status send_ends(const call *k)
{
    lt_sum_end *to = calloc(k->count, sizeof *to);
    if (!to)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", k->c->ordinal);
    for (size_t i = 0; i < k->count; i++) {
        const lt_rational_job *job = &k->job[k->order[i]];
        to[i] = (lt_sum_end){job->y.data, job->constant, job->exponent, job->scale};
    }
    lt_send(k->queue, k->to, to, k->count * sizeof *to);
    free(to);
    return LT_OK;
}

/* A list's parts of the work memory. */
static void place(lt_inverses *v, lt_carver *memory)
{
    const size_t matrix = (size_t)(v->n * v->n) * (v->wide ? sizeof(double) : sizeof(float));
    const size_t all = (size_t)v->count * matrix, split = (size_t)v->split * matrix;
    v->a = lt_carve(memory, all);
    v->x = lt_carve(memory, all);
    v->made = lt_carve(memory, all);
    v->low = v->split ? lt_carve(memory, split) : v->a; /* else nothing is written there */
    v->x_low = v->split ? lt_carve(memory, split) : v->x;
    v->bad = lt_carve(memory, (size_t)v->count * sizeof *v->bad);
}

static lt_leaf_work leaf_work(const call *k, lt_carver *memory)
{
    size_t elements = 0;
    for (int i = 0; i < k->lists; i++) {
        const size_t side = (size_t)lt_inverse_side(k->list[i].n);
        elements += (size_t)k->list[i].count * side * side;
    }
    const size_t bytes = elements * (k->list[0].wide ? sizeof(double) : sizeof(float));
    return (lt_leaf_work){.a = lt_carve(memory, bytes),
                          .x = lt_carve(memory, bytes),
                          .a_at = lt_carve(memory, k->terms * sizeof(void *)),
                          .x_at = lt_carve(memory, k->terms * sizeof(void *)),
                          .info = lt_carve(memory, k->terms * sizeof(int))};
}

/* Adds the lot's terms to their sums: split ones and others for themselves, as each of the two has a sum's together. */
static lt_status run_lot(call *k)
{
    lt_carver memory = {.begin = k->work};
    lt_term *term = lt_carve(&memory, k->terms * sizeof *term);
    if (!k->terms)
        return LT_OK;
    lt_send(k->queue, term, k->term, k->terms * sizeof *term);
    lt_term *of_list = term;
    for (int i = 0; i < k->lists; of_list += k->list[i++].count) {
        place(&k->list[i], &memory);
        lt_term_begin(k->queue, of_list, &k->list[i]);
    }
    const lt_leaf_work leaves = leaf_work(k, &memory);
    LT_ASSERT(memory.used <= k->capacity);
    LT_TRY(lt_inverses_run(k->c, k->list, k->lists, &leaves));
    of_list = term;
    for (int i = 0; i < k->lists; of_list += k->list[i++].count) {
        const lt_inverses *v = &k->list[i];
        if (v->split)
            lt_terms_add(k->queue, of_list, v, 0, v->split);
        if (v->split < v->count)
            lt_terms_add(k->queue, of_list, v, v->split, v->count - v->split);
    }
    k->lists = 0;
    k->terms = k->used = 0;
    k->last = NULL;
    return LT_OK;
}

/* To the lot, or to the next one if it is full. */
static lt_status add_term(call *k, const batch *b, kind how, const lt_term *term)
{
    const bool wide = how == IN_DOUBLE;
    const size_t bytes = bytes_of_term(b->n, wide);
    if (k->terms == MOST_TERMS || k->used + PADDING + bytes > k->capacity
        || (b != k->last && k->lists == LT_INVERSE_LISTS))
        LT_TRY(run_lot(k));
    if (b != k->last) {
        k->list[k->lists++] = (lt_inverses){.n = b->n, .wide = wide, .a_wide = b->wide};
        k->used += PADDING;
    }
    k->last = b;
    k->list[k->lists - 1].count++;
    k->list[k->lists - 1].split += how == IN_FLOAT && lt_inverse_has_tf32(b->n);
    k->term[k->terms++] = *term;
    k->used += bytes;
    return LT_OK;
}

/* A batch's terms of that kind, matrix by matrix. */
static lt_status add_terms(call *k, const batch *b, kind how)
{
    for (size_t i = 0; i < b->m; i++) {
        const lt_rational_job *job = job_of(k, b, i);
        bool *has_some = &k->has_some[b->begin + i];
        for (int j = 0; j < job->poles; j++) {
            if (kind_of(k, b, job, j) != how)
                continue;
            const lt_term term = {.a = job->a.data,
                                  .sum = b->sum + i * square_of(b),
                                  .failed = k->failed + b->begin + i,
                                  .shift = job->shift[j],
                                  .weight = job->weight[j],
                                  .scale = job->scale,
                                  .number = j,
                                  .begins = !*has_some};
            *has_some = true;
            LT_TRY(add_term(k, b, how, &term));
        }
    }
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

/* Batches whose sums are in memory together. */
static lt_status run_sums(call *k, const batch *begin, const batch *end)
{
    for (const batch *b = begin; b < end; b++) {
        LT_TRY(clear_sums(k, b));
        LT_TRY(add_terms(k, b, IN_DOUBLE));
    }
    LT_TRY(run_lot(k));
    for (const batch *b = begin; b < end; b++) {
        LT_TRY(add_terms(k, b, IN_FLOAT));
        LT_TRY(add_terms(k, b, BY_TF32));
    }
    LT_TRY(run_lot(k));
    for (const batch *b = begin; b < end; b++)
        lt_sums_store(k->queue, b->sum, k->to + b->begin, (int)b->m, b->n, b->wide,
                      k->failed + b->begin);
    return LT_OK;
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

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void make_batches(call *k, const lt_batch_key *key)
{
    for (size_t i = 0, end; i < k->count; i = end) {
        const lt_batch_key *first = &key[k->order[i]];
        const size_t bytes = (size_t)(first->n * first->n) * sizeof(double);
        end = lt_batch_end(key, k->order, i, k->count, bytes, sums_limit);
        k->batch[k->batches++] = (batch){i, end - i, first->n, first->dtype == LT_F64, NULL};
    }
}

/* Sums from that batch on, as many as may be in memory together; where those end. */
static batch *place_sums(const call *k, batch *begin, lt_carver *memory)
{
    batch *b = begin;
    for (; b < k->batch + k->batches; b++) {
        const size_t bytes = b->m * square_of(b) * sizeof *b->sum;
        if (b > begin && memory->used + bytes > sums_limit)
            break;
        b->sum = lt_carve(memory, bytes);
    }
    return b;
}

/* Bytes of sums, and what their terms work on: all that are together, or at least one. */
static size_t measure(call *k)
{
    size_t sums = 0;
    for (batch *b = k->batch, *end; b < k->batch + k->batches; b = end) {
        lt_carver memory = {0};
        end = place_sums(k, b, &memory);
        sums = larger(sums, memory.used);
        const size_t all =
            larger(bytes_of_terms(k, b, end, true), bytes_of_terms(k, b, end, false));
        const size_t limit = larger(work_limit, bytes_of_term(b->n, true) + PADDING);
        k->capacity = larger(k->capacity, all < limit ? all : limit);
    }
    return sums;
}

static lt_status run_batches(call *k)
{
    lt_carver head = {0};
    void *workspace = NULL;
    const size_t sums = measure(k);
    lt_carve(&head, k->count * sizeof *k->failed);
    lt_carve(&head, k->count * sizeof *k->to);
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, head.used + sums + k->capacity, &workspace));
    head = (lt_carver){.begin = workspace};
    k->failed = lt_carve(&head, k->count * sizeof *k->failed);
    k->to = lt_carve(&head, k->count * sizeof *k->to);
    k->work = head.begin + head.used + sums;
    LT_CUDA_TRY(k->c, k->c->api->set_async(k->failed, 0, k->count * sizeof *k->failed, k->queue));
    LT_TRY(send_ends(k));
    for (batch *b = k->batch, *end; b < k->batch + k->batches; b = end) {
        lt_carver memory = {.begin = head.begin + head.used};
        end = place_sums(k, b, &memory);
        LT_TRY(run_sums(k, b, end));
    }
    return needs_status(k->job, k->count) ? read_status(k->c, k->failed, k->job, k->order, k->count)
                                          : LT_OK;
}

static lt_status run_all(lt_cuda *c, lt_rational_job *job, size_t count, const lt_batch_key *key,
                         const size_t *order)
{
    call k = {.c = c,
              .queue = c->stream[LT_CUDA_MAIN],
              .job = job,
              .order = order,
              .count = count,
              .batch = calloc(count, sizeof *k.batch),
              .has_some = calloc(count, sizeof *k.has_some),
              .term = calloc(MOST_TERMS, sizeof *k.term)};
    lt_status st = LT_OK;
    if (!k.batch || !k.has_some || !k.term)
        st = lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", c->ordinal);
    if (!st) {
        make_batches(&k, key);
        st = run_batches(&k);
    }
    free(k.batch);
    free(k.has_some);
    free(k.term);
    return st;
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
