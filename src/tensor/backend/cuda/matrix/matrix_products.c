/* Shampoo's contractions, gram and mode_product: cuBLAS's batched products for jobs of equal size, and kernels around
 * them for jobs of all sizes. Gradients have any strides: unless they are contiguous matrices, they are gathered
 * first, row-major, which is the transpose for cuBLAS, or column-major. Products with a few vectors, bound by reading
 * the matrix, and products along a dimension of a few elements, bound by reading the tensor, are done by kernels of
 * this project.
 *
 * A large gram matrix is computed in tiles on and above the diagonal, which are then mirrored.
 *
 * If a gradient is not finite, results must not change: zeros are gathered and the coefficients become 0 and 1, or
 * the result is not scattered. Operands that are always finite are not gathered. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels.h"

#include <cublas_v2.h>
#include <stdlib.h>
#include <string.h>

static const size_t limit = (size_t)256 << 20; /* bytes of gathered matrices at once */

/* A job's operands. */
typedef struct piece {
    lt_unfolding from, to; /* g; y, data NULL: a gram job */
    void *matrix;          /* m, or f */
    bool gathers, scatters;
    int cuts; /* tiles along a dimension of f; 0: a product */
} piece;

/* One call's jobs. */
typedef struct call {
    lt_cuda *c;
    const int32_t *finite;
    lt_batch_key *key;
    piece *piece;
    lt_narrow *narrow[2]; /* lists of floats, of doubles */
    lt_short *brief[2];
    size_t *order, count, narrows[2], briefs[2];
} call;

static void close_call(call *k)
{
    free(k->key);
    free(k->piece);
    for (int wide = 0; wide < 2; wide++) {
        free(k->narrow[wide]);
        free(k->brief[wide]);
    }
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
    for (int wide = 0; wide < 2; wide++) {
        k->narrow[wide] = calloc(some, sizeof **k->narrow);
        k->brief[wide] = calloc(some, sizeof **k->brief);
    }
    if (!k->key || !k->piece || !k->order || !k->narrow[0] || !k->narrow[1] || !k->brief[0]
        || !k->brief[1])
        return lt_fail(LT_E_NOMEM, "cuda:%d: %s: no memory for %zu jobs", c->ordinal, name, count);
    return LT_OK;
}

/* Returns the stride of gathered matrices in elements. */
static int64_t matrix_stride(const lt_batch_key *key)
{
    enum { WANTED = 4 }; /* aligned to 16 bytes, as TF32 requires */
    return (key->n * key->rest + WANTED - 1) / WANTED * WANTED;
}

static size_t matrix_stride_bytes(const lt_batch_key *key)
{
    return (size_t)matrix_stride(key) * lt_dtype_size(key->dtype);
}

static bool is_aligned(const void *data)
{
    return (uintptr_t)data % 16 == 0;
}

/* Returns whether element i is at offset i, so that a product can read it in place. */
static bool is_contiguous_matrix(const lt_unfolding *f)
{
    bool flat = f->size[0] == 1 || f->stride[0] == 1;
    for (int d = 1; d < LT_MAX_DIMS; d++)
        flat = flat && f->size[d] == 1;
    return flat && is_aligned(f->data);
}

/* TF32 kernels read 16 bytes at a time, and cuBLAS does not check the alignment of matrices in a list. */
static lt_status set_math_mode(const call *k, const size_t *index, size_t m)
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

/* Lists of several batches, with the same layout on host and device. */
typedef struct lists {
    lt_gather *from, *to;
    lt_mirror *mirror;
    void **a, **b, **out; /* pointers to matrices */
    void *coefficients;
    size_t bytes; /* bytes of the arrays above */
    char *work;   /* gathered matrices and those to scatter */
    int gathers, scatters, mirrors;
    int64_t gather_blocks, scatter_blocks, mirror_blocks;
} lists;

/* Jobs that share the workspace: order[begin] to order[end - 1]. */
typedef struct group {
    size_t begin, end, gathers, scatters, mirrors, products, bytes;
} group;

/* Returns the number of a job's products: tiles on and above the diagonal of f. */
static size_t count_products(const piece *p)
{
    return p->cuts ? (size_t)(p->cuts * (p->cuts + 1) / 2) : 1;
}

static lists lay_out_lists(lt_carver *v, const group *g, bool work)
{
    const size_t m = g->products;
    lists l = {0};
    l.from = lt_carve(v, g->gathers * sizeof *l.from);
    l.to = lt_carve(v, g->scatters * sizeof *l.to);
    l.mirror = lt_carve(v, g->mirrors * sizeof *l.mirror);
    l.a = lt_carve(v, m * sizeof(void *));
    l.b = lt_carve(v, m * sizeof(void *));
    l.out = lt_carve(v, m * sizeof(void *));
    l.bytes = v->used;
    l.coefficients = lt_carve(v, 2 * sizeof(double));
    l.work = lt_carve(v, work ? g->bytes : 0);
    return l;
}

/* Allocates the lists on the device and on the host. */
static lt_status allocate_lists(const call *k, const group *g, lists *there, lists *here)
{
    lt_carver count = {0};
    void *workspace = NULL;
    (void)lay_out_lists(&count, g, true);
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, count.used, &workspace));
    lt_carver device = {.begin = workspace};
    *there = lay_out_lists(&device, g, true);
    char *host = calloc(there->bytes, 1);
    if (!host)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for %zu jobs", k->c->ordinal,
                       g->end - g->begin);
    lt_carver mirror = {.begin = host};
    *here = lay_out_lists(&mirror, g, false);
    return LT_OK;
}

/* Appends an unfolding to a list and returns its matrix, the next one in the workspace. */
static void *append_unfolding(lt_gather *list, int *count, int64_t *blocks, const lt_unfolding *f,
                              char **work, size_t bytes)
{
    void *matrix = *work;
    lt_gather_append(list, count, blocks, f, matrix);
    *work += bytes;
    return matrix;
}

/* Lists the tiles of f = A A^T, column-major: tile (i, j), j <= i, is the product of A's parts i and j. Returns the
 * end of the list. */
static size_t fill_tiles(const lt_batch_key *key, const piece *p, char *a, lists *here, size_t at)
{
    const size_t element = lt_dtype_size(key->dtype);
    const size_t side = (size_t)(key->n / p->cuts) * element;
    const size_t part = key->by_columns ? side : side * (size_t)key->rest;
    for (size_t i = 0; i < (size_t)p->cuts; i++)
        for (size_t j = 0; j <= i; j++, at++) {
            here->a[at] = a + i * part;
            here->b[at] = a + j * part;
            here->out[at] = (char *)p->matrix + i * side + j * side * (size_t)key->n;
        }
    return at;
}

static void append_mirror(const lt_batch_key *key, const piece *p, lists *there, lists *here)
{
    lt_mirror *item = &here->mirror[there->mirrors++];
    *item = (lt_mirror){
        .f = p->matrix, .n = key->n, .cuts = p->cuts, .first_block = there->mirror_blocks};
    there->mirror_blocks += lt_mirror_blocks(item);
}

static void fill_lists(const call *k, const group *g, lists *there, lists *here)
{
    char *work = there->work;
    for (size_t i = g->begin, at = 0; i < g->end; i++) {
        const piece *p = &k->piece[k->order[i]];
        const lt_batch_key *key = &k->key[k->order[i]];
        void *a = p->gathers ? append_unfolding(here->from, &there->gathers, &there->gather_blocks,
                                                &p->from, &work, matrix_stride_bytes(key))
                             : p->from.data;
        if (p->cuts > 1)
            append_mirror(key, p, there, here);
        if (p->cuts) {
            at = fill_tiles(key, p, a, here, at);
            continue;
        }
        here->a[at] = a;
        here->b[at] = p->matrix;
        here->out[at++] = p->scatters
                              ? append_unfolding(here->to, &there->scatters, &there->scatter_blocks,
                                                 &p->to, &work, matrix_stride_bytes(key))
                              : p->to.data;
    }
}

/* Queues the products of a batch of m, whose lists begin at those of l; one: any of its jobs. */
typedef lt_status multiply_fn(const call *k, const lt_batch_key *key, const piece *one,
                              const lists *l, int m);

static lt_status multiply_gram(const call *k, const lt_batch_key *key, const piece *one,
                               const lists *l, int m)
{
    lt_cuda *c = k->c;
    const int n = (int)key->n, rest = (int)key->rest, lead = key->by_columns ? n : rest;
    const int side = n / one->cuts;
    const cublasOperation_t left = key->by_columns ? CUBLAS_OP_N : CUBLAS_OP_T;
    const cublasOperation_t right = key->by_columns ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_CUBLAS_TRY(c, cublasSetPointerMode(c->cublas, CUBLAS_POINTER_MODE_DEVICE));
    LT_WIDE_TRY(LT_CUBLAS_TRY, c, key->dtype == LT_F64, cublas, gemmBatched, c->cublas, left, right,
                side, side, rest, l->coefficients, (void *)l->a, lead, (void *)l->b, lead,
                (void *)((char *)l->coefficients + lt_dtype_size(key->dtype)), (void *)l->out, n,
                m);
    return LT_OK;
}

/* Returns the jobs of one dtype, from `begin`, that fit into the workspace. */
static group next_group(const call *k, size_t begin)
{
    const lt_dtype dtype = k->key[k->order[begin]].dtype;
    group g = {.begin = begin};
    for (g.end = begin; g.end < k->count; g.end++) {
        const piece *p = &k->piece[k->order[g.end]];
        const lt_batch_key *key = &k->key[k->order[g.end]];
        const size_t more = ((size_t)p->gathers + p->scatters) * matrix_stride_bytes(key);
        if (key->dtype != dtype || (g.end > begin && g.bytes + more > limit))
            break;
        g.bytes += more;
        g.gathers += p->gathers;
        g.scatters += p->scatters;
        g.mirrors += p->cuts > 1;
        g.products += count_products(p);
    }
    return g;
}

static lt_status multiply_batches(const call *k, const group *g, const lists *there,
                                  multiply_fn *multiply)
{
    const lt_batch_key *last = NULL;
    for (size_t i = g->begin, at = 0, next; i < g->end; i = next) {
        const lt_batch_key *key = &k->key[k->order[i]];
        const piece *one = &k->piece[k->order[i]];
        lists l = *there;
        next = lt_batch_end(k->key, k->order, i, g->end, 0, limit);
        l.a += at;
        l.b += at;
        l.out += at;
        LT_TRY(set_math_mode(k, k->order + i, next - i));
        if (one->cuts
            && !(last && key->dtype == last->dtype && key->alpha == last->alpha
                 && key->beta == last->beta))
            lt_coefficients(k->c->stream[LT_CUDA_MAIN], key->dtype == LT_F64, key->alpha, key->beta,
                            k->finite, there->coefficients);
        const size_t m = (next - i) * count_products(one);
        LT_TRY(multiply(k, key, one, &l, (int)m));
        at += m;
        last = key;
    }
    return LT_OK;
}

static lt_status run_group(const call *k, const group *g, multiply_fn *multiply)
{
    const bool wide = k->key[k->order[g->begin]].dtype == LT_F64;
    lt_cuda_stream stream = k->c->stream[LT_CUDA_MAIN];
    lists there = {0}, here = {0};
    LT_TRY(allocate_lists(k, g, &there, &here));
    fill_lists(k, g, &there, &here);
    lt_send_list(stream, there.from, here.from, there.bytes);
    free(here.from);
    if (there.gathers)
        lt_unfolding_gather(stream, there.from, there.gathers, there.gather_blocks, wide,
                            k->finite);
    LT_TRY(multiply_batches(k, g, &there, multiply));
    if (there.scatters)
        lt_unfolding_scatter(stream, there.to, there.scatters, there.scatter_blocks, wide,
                             k->finite);
    if (there.mirrors)
        lt_mirror_tiles(stream, there.mirror, there.mirrors, there.mirror_blocks, wide, k->finite);
    return LT_OK;
}

static lt_status run_groups(const call *k, multiply_fn *multiply)
{
    LT_TRY(lt_batch_sort(k->key, k->count, k->order));
    for (size_t i = 0; i < k->count;) {
        const group g = next_group(k, i);
        LT_TRY(run_group(k, &g, multiply));
        i = g.end;
    }
    return lt_cuda_end(k->c);
}

/* Runs the jobs along a dimension of a few elements. */
static lt_status run_short_jobs(const call *k, bool wide, bool gram)
{
    const size_t count = k->briefs[wide], bytes = lt_cuda_pad_bytes(count * sizeof **k->brief);
    const lt_short *item = k->brief[wide], *last = &item[count - 1];
    const int64_t blocks = last->first_block + last->blocks;
    const size_t partial = gram ? (size_t)blocks * LT_SHORT_PAIRS * sizeof(double) : 0;
    lt_cuda_stream stream = k->c->stream[LT_CUDA_MAIN];
    void *list = NULL;
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, bytes + partial, &list));
    lt_send_list(stream, list, item, count * sizeof *item);
    if (gram)
        lt_short_grams(stream, list, (int)count, blocks, (double *)((char *)list + bytes), wide,
                       k->finite);
    else
        lt_short_products(stream, list, (int)count, blocks, wide, k->finite);
    return LT_OK;
}

static lt_status run_all_short_jobs(const call *k, bool gram)
{
    for (int wide = 0; wide < 2; wide++)
        if (k->briefs[wide])
            LT_TRY(run_short_jobs(k, wide, gram));
    return LT_OK;
}

/* Returns the number of tiles along a dimension of f. Tiles on and above the diagonal are (cuts + 1) / (2 cuts) of
 * the arithmetic; copying the others moves 8 bytes per element, which takes as long as LONG multiplications. A side
 * of 256 is needed for a product to be bound by arithmetic, not by reading its factors. */
static int choose_tile_count(const call *k, const lt_unfolding *f, lt_dtype dtype)
{
    enum { MOST = 8, SIDE = 256, LONG = 128, LONG_OF_TF32 = 512, ALIGNED = 4 };
    const bool tf32 = k->c->tf32 && dtype == LT_F32;
    int cuts = MOST;
    if (f->rest < (tf32 ? LONG_OF_TF32 : LONG))
        return 1;
    /* NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result) */
    while (cuts > 1 && (f->n % (cuts * ALIGNED) || f->n / cuts < SIDE))
        cuts--;
    return cuts;
}

static lt_status run_gram(call *k, const lt_gram_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lt_unfolding f = lt_unfold(&job[i].g, job[i].dim, &job[i].g);
        const bool wide = job[i].g.dtype == LT_F64;
        const lt_short brief = {
            .from = f, .matrix = job[i].f.data, .alpha = job[i].alpha, .beta = job[i].beta};
        LT_TRY(check_views(k, &job[i].g, &job[i].f));
        if ((!k->finite || job[i].finite)
            && lt_short_try_append(k->brief[wide], &k->briefs[wide], &brief))
            continue;
        k->piece[k->count] =
            (piece){.from = f,
                    .matrix = job[i].f.data,
                    .gathers = (k->finite && !job[i].finite) || !is_contiguous_matrix(&f),
                    .cuts = choose_tile_count(k, &f, job[i].g.dtype)};
        k->key[k->count++] = (lt_batch_key){.n = f.n,
                                            .rest = f.rest,
                                            .by_columns = f.by_columns,
                                            .dtype = job[i].g.dtype,
                                            .alpha = job[i].alpha,
                                            .beta = job[i].beta};
    }
    LT_TRY(run_all_short_jobs(k, true));
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

/* The factors of a column-major unfolding are exchanged: it is multiplied from the left. */
static lt_status multiply_mode(const call *k, const lt_batch_key *key, const piece *p,
                               const lists *l, int m)
{
    (void)p;
    lt_cuda *c = k->c;
    const bool columns = key->by_columns, wide = key->dtype == LT_F64;
    const lt_factor one = lt_make_factor(wide, 1), zero = lt_make_factor(wide, 0);
    const int n = (int)key->n, rest = (int)key->rest, rows = columns ? n : rest;
    const cublasOperation_t op = key->transpose != columns ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t left = columns ? op : CUBLAS_OP_N, right = columns ? CUBLAS_OP_N : op;
    void **const a = columns ? l->b : l->a, **const b = columns ? l->a : l->b;
    LT_CUBLAS_TRY(c, cublasSetPointerMode(c->cublas, CUBLAS_POINTER_MODE_HOST));
    LT_WIDE_TRY(LT_CUBLAS_TRY, c, wide, cublas, gemmBatched, c->cublas, left, right, rows,
                columns ? rest : n, n, (const void *)&one, (void *)a, rows, (void *)b, n,
                (const void *)&zero, (void *)l->out, rows, m);
    return LT_OK;
}

/* Moves a product with LT_NARROW contiguous vectors to the list of these. */
static bool try_append_narrow(call *k, const lt_mode_product_job *job, const piece *p)
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
    lt_cuda_stream stream = k->c->stream[LT_CUDA_MAIN];
    void *list = NULL;
    LT_TRY(lt_cuda_workspace(k->c, LT_CUDA_MAIN, bytes, &list));
    lt_send_list(stream, list, k->narrow[wide], bytes);
    lt_narrow_products(stream, list, (int)count,
                       last->first_block + (last->n + LT_NARROW_ROWS - 1) / LT_NARROW_ROWS, wide);
    return LT_OK;
}

static bool try_append_short(call *k, const lt_mode_product_job *job, const piece *p)
{
    const bool wide = job->g.dtype == LT_F64;
    const lt_short brief = {
        .from = p->from, .to = p->to, .matrix = p->matrix, .transpose = job->transpose};
    return lt_short_try_append(k->brief[wide], &k->briefs[wide], &brief);
}

static lt_status run_mode_products(call *k, const lt_mode_product_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const lt_unfolding f = lt_unfold(&job[i].g, job[i].dim, &job[i].g);
        piece p = {
            .from = f, .to = lt_unfold(&job[i].y, job[i].dim, &job[i].g), .matrix = job[i].m.data};
        LT_TRY(check_views(k, &job[i].g, &job[i].y));
        LT_TRY(check_views(k, &job[i].g, &job[i].m));
        p.gathers = !is_contiguous_matrix(&p.from);
        p.scatters = k->finite || !is_contiguous_matrix(&p.to);
        if (try_append_narrow(k, &job[i], &p) || try_append_short(k, &job[i], &p))
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
    LT_TRY(run_all_short_jobs(k, false));
    return run_groups(k, multiply_mode);
}

static lt_status mode_product(void *ctx, const lt_mode_product_job *job, size_t count,
                              const lt_scalars *scalars)
{
    call k;
    lt_status st = open_call(&k, ctx, "mode_product", count, scalars);
    if (!st)
        st = run_mode_products(&k, job, count);
    close_call(&k);
    return st;
}

void lt_cuda_install_products_of_matrices(lt_backend *be)
{
    be->gram = gram;
    be->mode_product = mode_product;
}
