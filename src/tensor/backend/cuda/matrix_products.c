/* Contractions of Shampoo: gram and mode_product, batched over jobs of equal sizes with cuBLAS; what is around the
 * products is one kernel for all sizes. Gradients come with any strides: they are gathered to matrices first. What is
 * gathered by rows is the transpose of the matrix in cuBLAS's order, what is gathered by columns the matrix. What lies
 * as a matrix already is used where it lies. Products with a few vectors, bound by reading the matrix, are a kernel of
 * our own, one for all sizes.
 *
 * Where a gradient is not finite nothing may change: zeros are gathered and the coefficients become 0
 * and 1, or the result is not scattered. */

#include "matrices.h"

#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

static const size_t limit = (size_t)256 << 20; /* bytes of gathered matrices at once */

/* A job: where its parts lie. */
typedef struct piece {
    lt_fold from, to; /* g; y, data NULL: a gram job */
    void *matrix;     /* m, or f */
    bool gathers, scatters;
} piece;

/* One call's jobs. */
typedef struct call {
    lt_cuda *c;
    const int32_t *finite;
    lt_batch_key *key;
    piece *piece;
    lt_narrow *narrow[2]; /* of floats, of doubles */
    size_t *order, count, narrows[2];
} call;

static void close_call(call *k)
{
    free(k->key);
    free(k->piece);
    free(k->narrow[0]);
    free(k->narrow[1]);
    free(k->order);
}

static lt_status open_call(call *k, lt_cuda *c, const char *name, size_t count,
                           const lt_scalars *scalars)
{
    const size_t some = count ? count : 1;
    *k = (call){.c = c, .finite = scalars ? &scalars->finite : NULL};
    LT_TRY(lt_cuda_begin(c, name));
    k->key = calloc(some, sizeof *k->key);
    k->piece = calloc(some, sizeof *k->piece);
    k->order = calloc(some, sizeof *k->order);
    for (int wide = 0; wide < 2; wide++)
        k->narrow[wide] = calloc(some, sizeof **k->narrow);
    if (!k->key || !k->piece || !k->order || !k->narrow[0] || !k->narrow[1])
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

static bool is_aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}

/* Whether element number i of the gathered matrix lies at place i, where a product may read it. */
static bool is_matrix(const lt_fold *f)
{
    bool flat = f->extent[0] == 1 || f->stride[0] == 1;
    for (int d = 1; d < LT_MAX_DIMS; d++)
        flat = flat && f->extent[d] == 1;
    return flat && is_aligned(f->data);
}

/* TF32's kernels read 16 bytes at a time wherever the matrix begins: cuBLAS sees sizes, not pointers. */
static lt_status set_math(const call *k, const size_t *index, size_t m)
{
    bool tf32 = k->c->tf32;
    for (size_t i = 0; i < m; i++)
        tf32 = tf32 && is_aligned(k->piece[index[i]].matrix);
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

/* The lists of some batches, on the host and on the device: the same layout. */
typedef struct lists {
    lt_gather *from, *to;
    void **a, **b, **out; /* pointers to matrices */
    void *coefficients;
    size_t bytes; /* of all above */
    char *work;   /* gathered matrices, and those to scatter */
    int gathers, scatters;
    int64_t gather_blocks, scatter_blocks;
} lists;

/* Jobs that go through the work memory together: order[begin] to order[end - 1]. */
typedef struct group {
    size_t begin, end, gathers, scatters, bytes;
} group;

static lists lay_out(lt_carver *v, const group *g, bool work)
{
    const size_t m = g->end - g->begin;
    lists l = {0};
    l.from = lt_carve(v, g->gathers * sizeof *l.from);
    l.to = lt_carve(v, g->scatters * sizeof *l.to);
    l.a = lt_carve(v, m * sizeof(void *));
    l.b = lt_carve(v, m * sizeof(void *));
    l.out = lt_carve(v, m * sizeof(void *));
    l.bytes = v->used;
    l.coefficients = lt_carve(v, 2 * sizeof(double));
    l.work = lt_carve(v, work ? g->bytes : 0);
    return l;
}

/* Memory for the lists, on the device and on the host. */
static lt_status place(const call *k, const group *g, lists *there, lists *here)
{
    lt_carver count = {0};
    void *workspace = NULL;
    (void)lay_out(&count, g, true);
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, count.used, &workspace));
    lt_carver device = {.begin = workspace};
    *there = lay_out(&device, g, true);
    char *host = calloc(there->bytes, 1);
    if (!host)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for %zu jobs", k->c->ordinal,
                       g->end - g->begin);
    lt_carver mirror = {.begin = host};
    *here = lay_out(&mirror, g, false);
    return LT_OK;
}

/* Item number (*count)++ of a list; where its matrix lies. */
static void *append(lt_gather *list, int *count, int64_t *blocks, const lt_fold *f, char **work,
                    size_t bytes)
{
    lt_gather *item = &list[(*count)++];
    *item = (lt_gather){
        .fold = *f, .matrix = *work, .elements = f->n * f->rest, .first_block = *blocks};
    *blocks += (item->elements + LT_GATHER_BLOCK - 1) / LT_GATHER_BLOCK;
    *work += bytes;
    return item->matrix;
}

static void fill(const call *k, const group *g, lists *there, lists *here)
{
    char *work = there->work;
    for (size_t i = g->begin; i < g->end; i++) {
        const piece *p = &k->piece[k->order[i]];
        const size_t at = i - g->begin, bytes = bytes_apart(&k->key[k->order[i]]);
        here->a[at] = p->gathers ? append(here->from, &there->gathers, &there->gather_blocks,
                                          &p->from, &work, bytes)
                                 : p->from.data;
        here->b[at] = p->matrix;
        here->out[at] = p->scatters  ? append(here->to, &there->scatters, &there->scatter_blocks,
                                              &p->to, &work, bytes)
                        : p->to.data ? p->to.data
                                     : p->matrix;
    }
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

/* The products of a batch, whose lists begin where l's do. */
typedef lt_status multiply_fn(const call *k, const lt_batch_key *key, const lists *l, int m);

/* Jobs of all sizes and one dtype that the work memory holds. */
static group group_from(const call *k, size_t begin)
{
    const lt_dtype dtype = k->key[k->order[begin]].dtype;
    group g = {.begin = begin};
    for (g.end = begin; g.end < k->count; g.end++) {
        const piece *p = &k->piece[k->order[g.end]];
        const lt_batch_key *key = &k->key[k->order[g.end]];
        const size_t more = ((size_t)p->gathers + p->scatters) * bytes_apart(key);
        if (key->dtype != dtype || (g.end > begin && g.bytes + more > limit))
            break;
        g.bytes += more;
        g.gathers += p->gathers;
        g.scatters += p->scatters;
    }
    return g;
}

static lt_status multiply_all(const call *k, const group *g, const lists *there,
                              multiply_fn *multiply)
{
    const lt_batch_key *last = NULL;
    for (size_t i = g->begin, next; i < g->end; i = next) {
        const lt_batch_key *key = &k->key[k->order[i]];
        const size_t at = i - g->begin;
        lists l = *there;
        next = lt_batch_end(k->key, k->order, i, g->end, 0, limit);
        l.a += at;
        l.b += at;
        l.out += at;
        LT_TRY(set_math(k, k->order + i, next - i));
        if (!k->piece[k->order[i]].to.data
            && !(last && key->dtype == last->dtype && key->alpha == last->alpha
                 && key->beta == last->beta))
            lt_coefficients(k->c->stream[LT_CUDA_MAIN], key->dtype == LT_F64, key->alpha, key->beta,
                            k->finite, there->coefficients);
        LT_TRY(multiply(k, key, &l, (int)(next - i)));
        last = key;
    }
    return LT_OK;
}

static lt_status run_group(const call *k, const group *g, multiply_fn *multiply)
{
    const bool wide = k->key[k->order[g->begin]].dtype == LT_F64;
    lt_cuda_stream queue = k->c->stream[LT_CUDA_MAIN];
    lists there = {0}, here = {0};
    LT_TRY(place(k, g, &there, &here));
    fill(k, g, &there, &here);
    lt_send(queue, there.from, here.from, there.bytes);
    free(here.from);
    if (there.gathers)
        lt_fold_gather(queue, there.from, there.gathers, there.gather_blocks, wide, k->finite);
    LT_TRY(multiply_all(k, g, &there, multiply));
    if (there.scatters)
        lt_fold_scatter(queue, there.to, there.scatters, there.scatter_blocks, wide, k->finite);
    return LT_OK;
}

static lt_status run_groups(const call *k, multiply_fn *multiply)
{
    LT_TRY(lt_batch_sort(k->key, k->count, k->order));
    for (size_t i = 0; i < k->count;) {
        const group g = group_from(k, i);
        LT_TRY(run_group(k, &g, multiply));
        i = g.end;
    }
    return lt_cuda_end(k->c);
}

static lt_status run_gram(call *k, const lt_gram_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lt_fold f = lt_fold_of(&job[i].g, job[i].dim, &job[i].g);
        LT_TRY(check_views(k, &job[i].g, &job[i].f));
        k->key[i] = (lt_batch_key){.n = f.n,
                                   .rest = f.rest,
                                   .by_columns = f.by_columns,
                                   .dtype = job[i].g.dtype,
                                   .alpha = job[i].alpha,
                                   .beta = job[i].beta};
        k->piece[i] =
            (piece){.from = f, .matrix = job[i].f.data, .gathers = k->finite || !is_matrix(&f)};
    }
    k->count = count;
    return run_groups(k, multiply_gram);
}

static lt_status gram(void *ctx, const lt_gram_job *job, size_t count, const lt_scalars *scalars)
{
    call k;
    lt_status st = open_call(&k, ctx, "gram", count, scalars);
    if (!st)
        st = run_gram(&k, job, count);
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

/* A product with LT_NARROW vectors that lie as matrices: to the list of these. */
static bool take_narrow(call *k, const lt_mode_product_job *job, const piece *p)
{
    const bool wide = job->g.dtype == LT_F64;
    lt_narrow *list = k->narrow[wide], *last = &list[k->narrows[wide]];
    if (p->from.rest != LT_NARROW || p->from.by_columns || p->gathers || p->scatters
        || job->transpose)
        return false;
    *last = (lt_narrow){.m = p->matrix, .x = p->from.data, .y = p->to.data, .n = p->from.n};
    if (last > list)
        last->first_block =
            last[-1].first_block + (last[-1].n + LT_NARROW_ROWS - 1) / LT_NARROW_ROWS;
    k->narrows[wide]++;
    return true;
}

static lt_status run_narrow(const call *k, bool wide)
{
    const size_t count = k->narrows[wide], bytes = count * sizeof **k->narrow;
    const lt_narrow *last = &k->narrow[wide][count - 1];
    lt_cuda_stream queue = k->c->stream[LT_CUDA_MAIN];
    void *list = NULL;
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, bytes, &list));
    lt_send(queue, list, k->narrow[wide], bytes);
    lt_narrow_products(queue, list, (int)count,
                       last->first_block + (last->n + LT_NARROW_ROWS - 1) / LT_NARROW_ROWS, wide);
    return LT_OK;
}

static lt_status run_mode(call *k, const lt_mode_product_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lt_fold f = lt_fold_of(&job[i].g, job[i].dim, &job[i].g);
        piece p = {
            .from = f, .to = lt_fold_of(&job[i].y, job[i].dim, &job[i].g), .matrix = job[i].m.data};
        LT_TRY(check_views(k, &job[i].g, &job[i].y));
        LT_TRY(check_views(k, &job[i].g, &job[i].m));
        p.gathers = !is_matrix(&p.from);
        p.scatters = k->finite || !is_matrix(&p.to);
        if (take_narrow(k, &job[i], &p))
            continue;
        k->piece[k->count] = p;
        k->key[k->count++] = (lt_batch_key){.n = f.n,
                                            .rest = f.rest,
                                            .by_columns = f.by_columns,
                                            .dtype = job[i].g.dtype,
                                            .transpose = job[i].transpose};
    }
    for (int wide = 0; wide < 2; wide++)
        if (k->narrows[wide])
            LT_TRY(run_narrow(k, wide));
    return run_groups(k, multiply_mode);
}

static lt_status mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    call k;
    lt_status st = open_call(&k, ctx, "mode_product", count, scalars);
    if (!st)
        st = run_mode(&k, job, count);
    close_call(&k);
    return st;
}

void lt_cuda_install_products_of_matrices(lt_backend *be)
{
    be->gram = gram;
    be->mode_product = mode_product;
}
