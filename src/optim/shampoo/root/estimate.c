/* Estimates from products of matrices with a few random vectors: residuals of roots, and largest eigenvalues. */

#include "base/rng.h"
#include "optim/shampoo/root/work_matrices.h"

#include <math.h>
#include <string.h>

/* BASIS: blocks of vectors that span the Ritz subspace. An item's rows are padded with zeros to a multiple of PART. */
enum { VECTORS = LT_RITZ_VECTORS, MOST_FACTORS = 12, BASIS = 2, BLOCKS = BASIS + 1, PART = 128 };

/* Blocks of vectors [n, VECTORS] per item: a product reads one block and writes another. */
typedef struct estimate {
    const lt_root_set *set;
    lt_tensor *block, *start; /* [BLOCKS, rows, VECTORS] */
    int64_t *at, rows;        /* first row of each item in a block; rows of all items */
    lt_mode_product_job *product;
    lt_vec_job *vec;
    lt_view *view;
    size_t count; /* jobs of the next backend call */
} estimate;

static int64_t most_rows(const lt_root_set *s)
{
    int64_t most = 1;
    for (size_t i = 0; i < s->count; i++)
        most = s->item[i].n > most ? s->item[i].n : most;
    return most;
}

/* Makes start vectors of random signs, in which all eigenvectors have equal expected weight. Copies without waiting
 * for the device, unlike lt_tensor_write(): a backend's copy returns once the host memory may be reused. */
static lt_status make_random_vectors(estimate *p, int64_t rows)
{
    const lt_root_set *s = p->set;
    const size_t count = (size_t)(rows * VECTORS), size = lt_dtype_size(s->dtype);
    char *sign = lt_alloc(count, size);
    lt_status st =
        sign ? lt_tensor_new(&p->start, s->device, s->dtype, LT_SHAPE(rows, VECTORS)) : LT_E_NOMEM;
    lt_rng rng = {.key = 1};
    for (size_t i = 0; !st && i < count; i++) {
        const double wide = lt_rng_u32(&rng) & 1 ? 1 : -1;
        const float narrow = (float)wide;
        memcpy(sign + i * size, s->dtype == LT_F64 ? (const void *)&wide : &narrow, size);
    }
    if (!st)
        st = s->be->copy(s->ctx, lt_tensor_view(p->start).data, sign, count * size, LT_COPY_IN);
    lt_free(sign);
    return st;
}

static lt_status open_estimate(estimate *p, const lt_root_set *s)
{
    p->set = s;
    LT_TRY(LT_ALLOC(&p->at, s->count));
    LT_TRY(LT_ALLOC(&p->product, s->count));
    LT_TRY(LT_ALLOC(&p->vec, s->count));
    LT_TRY(LT_ALLOC(&p->view, s->count));
    for (size_t i = 0; i < s->count; i++) {
        p->at[i] = p->rows;
        p->rows += (s->item[i].n + PART - 1) / PART * PART;
    }
    LT_TRY(lt_tensor_new(&p->block, s->device, s->dtype, LT_SHAPE(BLOCKS, p->rows, VECTORS)));
    return make_random_vectors(p, most_rows(s));
}

static void close_estimate(estimate *p)
{
    lt_tensor_free(&p->block);
    lt_tensor_free(&p->start);
    lt_free(p->at);
    lt_free(p->product);
    lt_free(p->vec);
    lt_free(p->view);
}

/* Returns an item's vectors in a block. */
static lt_view block_vectors(const estimate *p, int which, size_t item)
{
    const lt_shape shape = LT_SHAPE(p->set->item[item].n, VECTORS);
    return lt_root_part_view(p->block, (which * p->rows + p->at[item]) * VECTORS, shape);
}

static lt_view start_vectors(const estimate *p, size_t item)
{
    return lt_root_part_view(p->start, 0, LT_SHAPE(p->set->item[item].n, VECTORS));
}

/* --- Residuals --- */

/* Sets small p and q with p / q equal to the exponent; returns false if impossible. */
static bool as_fraction(double exponent, int *p, int *q)
{
    for (*q = 1; *q < MOST_FACTORS; ++*q) {
        *p = (int)lround(exponent * *q);
        if (*p > 0 && *p + *q <= MOST_FACTORS && fabs(*p - exponent * *q) < 1e-9)
            return true;
    }
    return false;
}

/* Returns true if factor number step, from the right, of R^(q/2) A^p R^(q/2) is A. With A in the middle the
 * rounding errors of R are amplified least. */
static bool is_step_by_matrix(int step, int p, int q)
{
    return step >= q / 2 && step < q / 2 + p;
}

/* Queues step number step of item i's chain of products. */
static void queue_chain_product(estimate *p, size_t i, int step)
{
    const lt_root_item *t = &p->set->item[i];
    int a, b;
    if (t->job->status || !as_fraction(t->job->exponent, &a, &b) || step >= a + b)
        return;
    p->product[p->count++] = (lt_mode_product_job){
        .g = step ? block_vectors(p, step % 2, i) : start_vectors(p, i),
        .y = block_vectors(p, (step + 1) % 2, i),
        .m = is_step_by_matrix(step, a, b) ? t->a : t->result,
        .dim = 0,
    };
}

/* Returns the block that the item's chain of products ends in. */
static int chain_end_block(const lt_root_item *t)
{
    int a, b;
    return as_fraction(t->job->exponent, &a, &b) && (a + b) % 2;
}

/* Subtracts its start from the end of each chain, in place. */
static lt_status subtract_start(estimate *p)
{
    const lt_root_set *s = p->set;
    size_t count = 0;
    for (size_t i = 0; i < s->count; i++) {
        int a, b;
        if (s->item[i].job->status || !as_fraction(s->item[i].job->exponent, &a, &b))
            continue;
        p->vec[count++] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                       .alpha = -1,
                                       .beta = 1,
                                       .a = start_vectors(p, i),
                                       .y = block_vectors(p, chain_end_block(&s->item[i]), i)};
    }
    return count ? s->be->vec(s->ctx, p->vec, count, NULL) : LT_OK;
}

/* Queues the norms of the chains' ends. */
static lt_status queue_chain_end_norms(const estimate *p, const lt_view *norms)
{
    for (size_t i = 0; i < p->set->count; i++)
        p->view[i] = block_vectors(p, chain_end_block(&p->set->item[i]), i);
    return p->set->be->frobenius(p->set->ctx, p->view, p->set->count, norms);
}

static lt_status run_product_chains(estimate *p)
{
    const lt_root_set *s = p->set;
    for (int step = 0; step < MOST_FACTORS; step++) {
        p->count = 0;
        for (size_t i = 0; i < s->count; i++)
            queue_chain_product(p, i, step);
        if (!p->count)
            break;
        LT_TRY(s->be->mode_product(s->ctx, p->product, p->count, NULL));
    }
    return LT_OK;
}

lt_status lt_root_enqueue_residuals(const lt_root_set *set, const lt_view *norms)
{
    estimate p = {0};
    lt_status st = open_estimate(&p, set);
    if (!st)
        st = run_product_chains(&p);
    if (!st)
        st = subtract_start(&p);
    if (!st)
        st = queue_chain_end_norms(&p, norms);
    close_estimate(&p);
    return st;
}

void lt_root_set_residuals(const lt_root_set *set, const double *norm)
{
    int a, b;
    for (size_t i = 0; i < set->count; i++) {
        const lt_root_item *t = &set->item[i];
        if (!t->job->status && as_fraction(t->job->exponent, &a, &b))
            t->job->residual = norm[i] / sqrt((double)(t->n * VECTORS));
    }
}

/* Reads the number per item that `queue` computes on the device to the host. */
static lt_status queue_and_read_numbers(const lt_root_set *set,
                                        lt_status (*queue)(const lt_root_set *, const lt_view *),
                                        double *number)
{
    lt_tensor *tensor = NULL;
    LT_TRY(lt_tensor_new(&tensor, set->device, LT_F64, LT_SHAPE((int64_t)set->count)));
    const lt_view view = lt_tensor_view(tensor);
    lt_status st = queue(set, &view);
    if (!st)
        st = lt_tensor_read(tensor, number, set->count * sizeof *number);
    lt_tensor_free(&tensor);
    return st;
}

lt_status lt_root_compute_residuals(const lt_root_set *set)
{
    double *norm = lt_alloc(set->count, sizeof *norm);
    lt_status st = norm ? queue_and_read_numbers(set, lt_root_enqueue_residuals, norm) : LT_E_NOMEM;
    if (!st)
        lt_root_set_residuals(set, norm);
    lt_free(norm);
    return st;
}

/* --- Largest eigenvalues ---
 *
 * By the Rayleigh-Ritz method on the span of the last BASIS blocks of a block Krylov sequence: the
 * largest eigenvalue of the matrix restricted to that subspace. Golub & Underwood, "The block Lanczos
 * method for computing eigenvalues", 1977. Never too large up to rounding; less than 5 % too small
 * after STEPS products on the matrices of tests/optim/test_roots.c, for which a power method needs
 * twice the products. */

enum { STEPS = 8, COLUMNS = LT_RITZ_COLUMNS };

/* Returns an upper bound of the largest eigenvalue, damping included. */
static double eigenvalue_bound(const lt_root_item *t)
{
    return t->norm + t->epsilon;
}

/* Returns the block that the product writes after which `left` products remain; the last product writes the last
 * block. */
static int output_block(int left)
{
    return BASIS * (left + 1) % BLOCKS;
}

/* Divides a product by the bound or, on the device, by the norm. */
static void divide_by_bound(const lt_root_set *s, const lt_root_item *t, lt_vec_job *job)
{
    const double bound = eigenvalue_bound(t);
    job->alpha = bound > 0 ? 1 / bound : 0;
    if (!t->norm_at)
        return;
    job->alpha = 1;
    job->factor = (lt_vec_factor){.over = t->inverse_at, .under = s->device_one};
}

/* Computes the next block: A / bound times the previous one. Vectors shrink by sqrt(n) at most. */
static lt_status compute_next_block(estimate *p, int left, bool first)
{
    const lt_root_set *s = p->set;
    for (size_t i = 0; i < s->count; i++) {
        const lt_view y = block_vectors(p, output_block(left), i);
        p->product[i] = (lt_mode_product_job){
            .g = first ? start_vectors(p, i) : block_vectors(p, output_block(left + 1), i),
            .y = y,
            .m = s->item[i].a};
        p->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY, .a = y, .y = y};
        divide_by_bound(s, &s->item[i], &p->vec[i]);
    }
    LT_TRY(s->be->mode_product(s->ctx, p->product, s->count, NULL));
    return s->be->vec(s->ctx, p->vec, s->count, NULL);
}

/* Computes the inner products of all blocks' vectors, [rows / PART, COLUMNS, COLUMNS], in double because the
 * vectors are nearly dependent. Parts have equal sizes: a product of long matrices would occupy few threads. */
static lt_status compute_inner_products(const estimate *p, const lt_tensor *wide,
                                        const lt_tensor *gram)
{
    const lt_root_set *s = p->set;
    const size_t count = (size_t)(p->rows / PART);
    const lt_view from = lt_tensor_view(p->block);
    lt_view to = lt_tensor_view(wide);
    lt_gram_job *job = NULL;
    LT_TRY(LT_ALLOC(&job, count));
    for (size_t i = 0; i < count; i++)
        job[i] = (lt_gram_job){
            .g = lt_root_part_view(wide, (int64_t)i * PART * COLUMNS, LT_SHAPE(PART, COLUMNS)),
            .f =
                lt_root_part_view(gram, (int64_t)i * COLUMNS * COLUMNS, LT_SHAPE(COLUMNS, COLUMNS)),
            .dim = 1,
            .alpha = 1};
    to.shape = from.shape;
    to.stride[0] = VECTORS;
    to.stride[1] = COLUMNS;
    to.stride[2] = 1;
    lt_status st = s->be->cast(s->ctx, &from, &to);
    if (!st)
        st = s->be->gram(s->ctx, job, count, NULL);
    lt_free(job);
    return st;
}

/* Computes the Ritz values (estimates of extreme eigenvalues) from the inner products, relative to the bounds. */
static lt_status solve_ritz_problem(const estimate *p, const lt_tensor *gram, const lt_view *value)
{
    const lt_root_set *s = p->set;
    lt_ritz_job *job = NULL;
    LT_TRY(LT_ALLOC(&job, s->count));
    for (size_t i = 0; i < s->count; i++) {
        lt_view product = lt_tensor_view(gram);
        product.data = (double *)product.data + p->at[i] / PART * COLUMNS * COLUMNS;
        product.shape.dim[0] = (s->item[i].n + PART - 1) / PART;
        job[i] = (lt_ritz_job){product, s->item[i].norm_at, (double *)value->data + i};
    }
    lt_status st = s->be->ritz(s->ctx, job, s->count);
    lt_free(job);
    return st;
}

static lt_status estimate_largest(estimate *p, const lt_view *value)
{
    lt_tensor *wide = NULL, *gram = NULL;
    lt_device *device = p->set->device;
    lt_status st = lt_tensor_new(&wide, device, LT_F64, LT_SHAPE(p->rows, COLUMNS));
    if (!st)
        st = lt_tensor_new(&gram, device, LT_F64, LT_SHAPE(p->rows / PART, COLUMNS, COLUMNS));
    for (int left = STEPS; !st && left-- > 0;)
        st = compute_next_block(p, left, left == STEPS - 1);
    if (!st)
        st = compute_inner_products(p, wide, gram);
    if (!st)
        st = solve_ritz_problem(p, gram, value);
    lt_tensor_free(&wide);
    lt_tensor_free(&gram);
    return st;
}

lt_status lt_root_enqueue_largest(const lt_root_set *set, const lt_view *value)
{
    estimate p = {0};
    lt_status st = open_estimate(&p, set);
    if (!st)
        st = estimate_largest(&p, value);
    close_estimate(&p);
    return st;
}

lt_status lt_root_estimate_largest(const lt_root_set *set, double *value)
{
    LT_TRY(queue_and_read_numbers(set, lt_root_enqueue_largest, value));
    for (size_t i = 0; i < set->count; i++)
        value[i] *= eigenvalue_bound(&set->item[i]);
    return LT_OK;
}
