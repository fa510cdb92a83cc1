/* Sums of shifted inverses: y = constant I + sum of weight_j (a + shift_j I)^-1, with the terms of all matrices
 * inverted together (matrix_inverse.c). Terms with small shifts, and the sums, are computed in double. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels.h"

#include <cublas_v2.h>
#include <stdlib.h>

/* Most bytes of a batch of terms that are inverted together. Each batch takes the time of a chain of dependent panels,
 * whatever its size. ResNet-50's terms need 3.4 GiB with blocks of 2048, 2.5 GiB with blocks of 1024; activations
 * take 20 GiB and more. */
static const size_t work_limit = (size_t)1 << 32;
enum { MOST_TERMS = 1024, PADDING = 16 * 256 /* bytes to align a list's parts */ };
/* Terms use a single TF32 product if the shift is at least this multiple of wide_below: norm / shift is below 1000
 * then, because wide_below is 4e-6 norm. */
static const double tf32_from = 250;

/* Precision of a term's products: double; three TF32 products per f32 product; one TF32 product. */
typedef enum kind { IN_DOUBLE, IN_FLOAT, BY_TF32 } kind;

/* Jobs of one size and dtype: order[begin] to order[begin + m - 1] of the call. */
typedef struct batch {
    size_t begin, m;
    int64_t n;
    bool wide;   /* sums in double */
    double *sum; /* [m,n,n] */
} batch;

typedef struct call {
    lt_cuda *c;
    lt_cuda_stream stream;
    lt_rational_job *job;
    size_t count;
    /* arrays [count], all but key in the order of `order` */
    lt_batch_key *key;
    size_t *order;
    size_t *latest;       /* 1 + number of the sum's last term so far; 0: no term */
    lt_sum_end *end, *to; /* on the host, on the device */
    int *found, *failed;  /* on the host, on the device */
    batch *batch;
    size_t batches;
    char *work;
    size_t capacity, used;
    /* the current batch of terms */
    lt_inverses list[LT_INVERSE_LISTS];
    const batch *last; /* batch of the last list */
    int lists;
    size_t terms, before; /* terms of this batch; of earlier ones */
    lt_term *term;
} call;

static size_t matrix_elements(const batch *b)
{
    return (size_t)(b->n * b->n);
}

static const lt_rational_job *batch_job(const call *k, const batch *b, size_t i)
{
    return &k->job[k->order[b->begin + i]];
}

static kind term_precision(const call *k, const batch *b, const lt_rational_job *job, int j)
{
    if (b->wide || job->shift[j] < job->wide_below)
        return IN_DOUBLE;
    const bool rough = job->wide_below > 0 && job->shift[j] >= tf32_from * job->wide_below;
    return k->c->tf32 && rough && lt_inverse_has_tf32(b->n) ? BY_TF32 : IN_FLOAT;
}

/* Returns the bytes of a term: matrices, padded diagonal blocks of two of them, and list items. */
static size_t term_bytes(int64_t n, kind how)
{
    const size_t size = how == IN_DOUBLE ? sizeof(double) : sizeof(float);
    const size_t parts = how == IN_FLOAT && lt_inverse_has_tf32(n) ? 5 : 3;
    const size_t side = (size_t)lt_inverse_padded_side(n);
    return size * (parts * (size_t)(n * n) + 2 * side * side) + sizeof(lt_term) + 2 * sizeof(void *)
           + 2 * sizeof(int);
}

/* Sends the description of the results, as parameters of kernels: a copy of pageable memory may wait for the stream.
 * Returns whether a job's status must be read back. */
static bool send_result_descriptions(const call *k)
{
    bool needs = false;
    for (size_t i = 0; i < k->count; i++) {
        lt_rational_job *job = &k->job[k->order[i]];
        job->status = LT_OK;
        needs = needs || !job->scale;
        k->end[i] = (lt_sum_end){job->y.data, job->constant, job->exponent, job->scale, job->poles};
    }
    lt_send_list(k->stream, k->to, k->end, k->count * sizeof *k->to);
    return needs;
}

/* Assigns workspace to a list. */
static void assign_list_workspace(lt_inverses *v, lt_carver *memory)
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

static lt_leaf_work carve_leaf_work(const call *k, lt_carver *memory)
{
    size_t elements = 0;
    for (int i = 0; i < k->lists; i++) {
        const size_t side = (size_t)lt_inverse_padded_side(k->list[i].n);
        elements += (size_t)k->list[i].count * side * side;
    }
    const size_t bytes = elements * (k->list[0].wide ? sizeof(double) : sizeof(float));
    return (lt_leaf_work){.a = lt_carve(memory, bytes),
                          .x = lt_carve(memory, bytes),
                          .a_at = lt_carve(memory, k->terms * sizeof(void *)),
                          .x_at = lt_carve(memory, k->terms * sizeof(void *)),
                          .info = lt_carve(memory, k->terms * sizeof(int))};
}

/* Inverts the current batch's terms and adds them to their sums. */
static lt_status run_term_batch(call *k)
{
    lt_carver memory = {.begin = k->work};
    lt_term *term = lt_carve(&memory, k->terms * sizeof *term);
    if (!k->terms)
        return LT_OK;
    lt_send_list(k->stream, term, k->term, k->terms * sizeof *term);
    lt_term *of_list = term;
    for (int i = 0; i < k->lists; of_list += k->list[i++].count) {
        assign_list_workspace(&k->list[i], &memory);
        lt_term_begin(k->stream, of_list, &k->list[i]);
    }
    const lt_leaf_work leaves = carve_leaf_work(k, &memory);
    LT_ASSERT(memory.used <= k->capacity);
    LT_TRY(lt_inverses_run(k->list, k->lists, &leaves));
    of_list = term;
    for (int i = 0; i < k->lists; of_list += k->list[i++].count)
        lt_terms_add(k->stream, of_list, &k->list[i]);
    k->before += k->terms;
    k->lists = 0;
    k->terms = k->used = 0;
    k->last = NULL;
    return LT_OK;
}

/* Adds a term to the current batch of terms, or to a new one if it is full. place: the job's index in `order`. */
static lt_status add_term(call *k, const batch *b, kind how, size_t place, lt_term term)
{
    size_t *latest = &k->latest[place];
    const size_t bytes = term_bytes(b->n, how);
    const size_t list = b != k->last ? PADDING : 0;
    if (k->terms == MOST_TERMS || k->used + list + bytes > k->capacity
        || (list && k->lists == LT_INVERSE_LISTS))
        LT_TRY(run_term_batch(k));
    if (b != k->last) {
        k->list[k->lists++] =
            (lt_inverses){.c = k->c, .n = b->n, .wide = how == IN_DOUBLE, .a_wide = b->wide};
        k->used += PADDING;
    }
    k->last = b;
    k->list[k->lists - 1].count++;
    k->list[k->lists - 1].split += how == IN_FLOAT && lt_inverse_has_tf32(b->n);
    term.begins = !*latest;
    term.head = *latest <= k->before;
    if (!term.head)
        k->term[*latest - 1 - k->before].next = (int64_t)(k->before + k->terms - (*latest - 1));
    k->term[k->terms++] = term;
    *latest = k->before + k->terms;
    k->used += bytes;
    return LT_OK;
}

/* Adds a batch's terms of that precision, matrix by matrix. */
static lt_status add_terms(call *k, const batch *b, kind how)
{
    for (size_t i = 0; i < b->m; i++) {
        const lt_rational_job *job = batch_job(k, b, i);
        const size_t at = b->begin + i;
        for (int j = 0; j < job->poles; j++) {
            if (term_precision(k, b, job, j) != how)
                continue;
            const lt_term term = {.a = job->a.data,
                                  .sum = b->sum + i * matrix_elements(b),
                                  .failed = k->failed + at,
                                  .shift = job->shift[j],
                                  .weight = job->weight[j],
                                  .scale = job->scale,
                                  .number = j};
            LT_TRY(add_term(k, b, how, at, term));
        }
    }
    return LT_OK;
}

/* Reads back the status of all jobs. */
static lt_status read_status(const call *k)
{
    const lt_cuda *c = k->c;
    const size_t bytes = k->count * sizeof *k->found;
    LT_CUDA_TRY(c, "cudaMemcpyAsync",
                c->api->copy_async(k->found, k->failed, bytes, LT_COPY_OUT, k->stream));
    LT_CUDA_TRY(c, "cudaStreamSynchronize", c->api->stream_sync(k->stream));
    for (size_t i = 0; i < k->count; i++) {
        lt_rational_job *one = &k->job[k->order[i]];
        if (k->found[i] && !one->scale)
            one->status =
                lt_fail(LT_E_ARG, "rational: the matrix plus %g I is not positive definite",
                        one->shift[k->found[i] - 1]);
    }
    return LT_OK;
}

static lt_status run_batches(call *k)
{
    const batch *end = k->batch + k->batches;
    for (const batch *b = k->batch; b < end; b++)
        LT_TRY(add_terms(k, b, IN_DOUBLE));
    LT_TRY(run_term_batch(k));
    for (const batch *b = k->batch; b < end; b++) {
        LT_TRY(add_terms(k, b, IN_FLOAT));
        LT_TRY(add_terms(k, b, BY_TF32));
    }
    LT_TRY(run_term_batch(k));
    for (const batch *b = k->batch; b < end; b++)
        lt_sums_store(k->stream, b->sum, k->to + b->begin, (int)b->m, b->n, b->wide,
                      k->failed + b->begin);
    return LT_OK;
}

static lt_status make_batches(call *k)
{
    for (size_t i = 0; i < k->count; i++) {
        const lt_view *a = &k->job[i].a;
        k->key[i] = (lt_batch_key){.n = a->shape.dim[0], .rest = 1, .dtype = a->dtype};
        LT_TRY(lt_check_matrix_dtype(k->c, a->dtype));
    }
    LT_TRY(lt_batch_sort(k->key, k->count, k->order));
    for (size_t i = 0, end; i < k->count; i = end) {
        const lt_batch_key *first = &k->key[k->order[i]];
        end = lt_batch_end(k->key, k->order, i, k->count, 0, 0);
        k->batch[k->batches++] = (batch){i, end - i, first->n, first->dtype == LT_F64, NULL};
    }
    return LT_OK;
}

/* Returns the bytes of a batch of terms: all terms in double, or all others if that is more, up to work_limit, but
 * at least those of a term of the first batch, whose matrices are the largest. */
static size_t choose_capacity(const call *k)
{
    const size_t one = term_bytes(k->batch->n, IN_DOUBLE) + PADDING;
    const size_t limit = work_limit > one ? work_limit : one;
    size_t bytes[] = {k->batches * PADDING, k->batches * PADDING};
    for (const batch *b = k->batch; b < k->batch + k->batches; b++)
        for (size_t i = 0; i < b->m; i++)
            for (int j = 0; j < batch_job(k, b, i)->poles; j++) {
                const kind how = term_precision(k, b, batch_job(k, b, i), j);
                bytes[how == IN_DOUBLE] += term_bytes(b->n, how);
            }
    const size_t all = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    return all < limit ? all : limit;
}

static size_t lay_out_device(call *k, char *begin)
{
    lt_carver v = {.begin = begin};
    k->failed = lt_carve(&v, k->count * sizeof *k->failed);
    k->to = lt_carve(&v, k->count * sizeof *k->to);
    for (batch *b = k->batch; b < k->batch + k->batches; b++)
        b->sum = lt_carve(&v, b->m * matrix_elements(b) * sizeof *b->sum);
    k->work = lt_carve(&v, k->capacity);
    return v.used;
}

/* Lays out the lists on the host. */
static size_t lay_out_host_lists(call *k, char *begin)
{
    lt_carver v = {.begin = begin};
    k->key = lt_carve(&v, k->count * sizeof *k->key);
    k->order = lt_carve(&v, k->count * sizeof *k->order);
    k->latest = lt_carve(&v, k->count * sizeof *k->latest);
    k->end = lt_carve(&v, k->count * sizeof *k->end);
    k->found = lt_carve(&v, k->count * sizeof *k->found);
    k->batch = lt_carve(&v, k->count * sizeof *k->batch);
    k->term = lt_carve(&v, MOST_TERMS * sizeof *k->term);
    return v.used;
}

/* Allocates the workspace; halves the batches of terms until the device has the memory. */
static lt_status get_workspace(call *k, void **out)
{
    const size_t one = term_bytes(k->batch->n, IN_DOUBLE) + PADDING;
    lt_status st;
    while ((st = lt_cuda_workspace(k->c, LT_CUDA_MAIN, lay_out_device(k, NULL), out)) == LT_E_NOMEM
           && k->capacity / 2 >= one)
        k->capacity /= 2;
    return st;
}

static lt_status run_rational(call *k)
{
    void *workspace = NULL;
    LT_TRY(make_batches(k));
    k->capacity = choose_capacity(k);
    LT_TRY(get_workspace(k, &workspace));
    lay_out_device(k, workspace);
    LT_CUDA_TRY(k->c, "cudaMemsetAsync",
                k->c->api->set_async(k->failed, 0, k->count * sizeof *k->failed, k->stream));
    LT_CUBLAS_TRY(k->c, cublasSetPointerMode(k->c->cublas, CUBLAS_POINTER_MODE_HOST));
    const bool needs_status = send_result_descriptions(k);
    LT_TRY(run_batches(k));
    return needs_status ? read_status(k) : LT_OK;
}

static lt_status rational(void *ctx, lt_rational_job *job, size_t count)
{
    lt_cuda *c = ctx;
    call k = {.c = c, .stream = c->stream[LT_CUDA_MAIN], .job = job, .count = count};
    LT_TRY(lt_cuda_begin(c, "rational"));
    char *lists = calloc(1, lay_out_host_lists(&k, NULL));
    if (!lists)
        return lt_fail(LT_E_NOMEM, "cuda:%d: rational: no memory", c->ordinal);
    lay_out_host_lists(&k, lists);
    lt_status st = count ? run_rational(&k) : LT_OK;
    free(lists);
    return st ? st : lt_cuda_end(c);
}

void lt_cuda_install_rational(lt_backend *be)
{
    be->rational = rational;
}
