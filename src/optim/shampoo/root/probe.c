/* Numbers about matrices from their products with a few vectors: residuals of roots, and largest
 * eigenvalues. */

#include "base/parallel.h"
#include "base/rng.h"
#include "optim/shampoo/root/stack.h"

#include <math.h>
#include <string.h>

/* BASIS: blocks of vectors whose span holds what is taken for an eigenvector. Items' rows are a multiple of PART, zeros
 * behind their own. */
enum { VECTORS = LT_RITZ_VECTORS, MOST_FACTORS = 12, BASIS = 2, BLOCKS = BASIS + 1, PART = 128 };

/* Blocks of vectors [n, VECTORS] for each item: a product reads one and writes another. */
typedef struct probe {
    const lt_root_set *set;
    lt_tensor *block, *start; /* [BLOCKS, rows, VECTORS] */
    lt_tensor *norms;
    int64_t *at, rows; /* the first row of each item in a block; of all of them */
    bool looks;        /* at old roots */
    double *host;
    lt_mode_product_job *product;
    lt_vec_job *vec;
    lt_view *view;
    size_t count; /* jobs of the next call */
} probe;

static int64_t most_rows(const lt_root_set *s)
{
    int64_t most = 1;
    for (size_t i = 0; i < s->count; i++)
        most = s->item[i].n > most ? s->item[i].n : most;
    return most;
}

/* Random signs: each eigenvector has the same share in them. Copied without waiting for the device, as
 * lt_tensor_write() would: the memory may be used again when a copy returns. */
static lt_status make_start(probe *p, int64_t rows)
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

static lt_status open_probe(probe *p, const lt_root_set *s)
{
    p->set = s;
    p->at = lt_alloc(s->count, sizeof *p->at);
    p->host = lt_alloc(s->count, sizeof *p->host);
    p->product = lt_alloc(s->count, sizeof *p->product);
    p->vec = lt_alloc(s->count, sizeof *p->vec);
    p->view = lt_alloc(s->count, sizeof *p->view);
    if (!p->at || !p->host || !p->product || !p->vec || !p->view)
        return LT_E_NOMEM;
    for (size_t i = 0; i < s->count; i++) {
        p->at[i] = p->rows;
        p->rows += (s->item[i].n + PART - 1) / PART * PART;
    }
    LT_TRY(lt_tensor_new(&p->block, s->device, s->dtype, LT_SHAPE(BLOCKS, p->rows, VECTORS)));
    LT_TRY(lt_tensor_new(&p->norms, s->device, LT_F64, LT_SHAPE((int64_t)s->count)));
    return make_start(p, most_rows(s));
}

static void close_probe(probe *p)
{
    lt_tensor_free(&p->block);
    lt_tensor_free(&p->start);
    lt_tensor_free(&p->norms);
    lt_free(p->at);
    lt_free(p->host);
    lt_free(p->product);
    lt_free(p->vec);
    lt_free(p->view);
}

/* The item's vectors. */
static lt_view vectors(const probe *p, int which, size_t item)
{
    const lt_shape shape = LT_SHAPE(p->set->item[item].n, VECTORS);
    return lt_root_part(p->block, (which * p->rows + p->at[item]) * VECTORS, shape);
}

static lt_view start_of(const probe *p, size_t item)
{
    return lt_root_part(p->start, 0, LT_SHAPE(p->set->item[item].n, VECTORS));
}

/* --- Products with VECTORS vectors ---
 *
 * They are bound by reading the matrix: on the host a loop that reads it once, as it lies, takes a part of the time
 * of a product of packed panels. Sums have another order there, so new roots, which an epsilon goes into, are
 * not made of them. */

typedef float row __attribute__((vector_size(VECTORS * sizeof(float)), may_alias));

/* Rows together: their sums hide the latency of an addition. */
static void multiply_one(const float *m, int64_t n, const row *x, row *y)
{
    enum { TOGETHER = 8 };
    int64_t i = 0;
    for (; i + TOGETHER <= n; i += TOGETHER) {
        row sum[TOGETHER] = {{0}};
        for (int64_t j = 0; j < n; j++)
            for (int k = 0; k < TOGETHER; k++)
                sum[k] += m[(i + k) * n + j] * x[j];
        for (int k = 0; k < TOGETHER; k++)
            y[i + k] = sum[k];
    }
    for (; i < n; i++) {
        row sum = {0};
        for (int64_t j = 0; j < n; j++)
            sum += m[i * n + j] * x[j];
        y[i] = sum;
    }
}

static void multiply_some(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const probe *p = context;
    for (int64_t i = begin; i < end; i++) {
        const lt_mode_product_job *job = &p->product[i];
        multiply_one(job->m.data, job->m.shape.dim[0], job->g.data, job->y.data);
    }
}

/* The next call's products. */
static lt_status multiply(probe *p)
{
    const lt_root_set *s = p->set;
    if (!p->looks || !s->be->host_memory || s->dtype != LT_F32)
        return s->be->mode_product(s->ctx, p->product, p->count, NULL);
    lt_parallel((int64_t)p->count, 1, multiply_some, p);
    return LT_OK;
}

/* --- Residuals --- */

/* exponent = p / q in small numbers; false: it is not. */
static bool as_fraction(double exponent, int *p, int *q)
{
    for (*q = 1; *q < MOST_FACTORS; ++*q) {
        *p = (int)lround(exponent * *q);
        if (*p > 0 && *p + *q <= MOST_FACTORS && fabs(*p - exponent * *q) < 1e-9)
            return true;
    }
    return false;
}

/* Whether factor number step, from the right, of R^(q/2) A^p R^(q/2) is A: with A in the middle the
 * rounding of R is magnified least. */
static bool is_factor(int step, int p, int q)
{
    return step >= q / 2 && step < q / 2 + p;
}

static bool multiplies_matrix(const lt_root_item *t, int step)
{
    int a, b;
    return as_fraction(t->job->exponent, &a, &b) && is_factor(step, a, b);
}

/* Item i takes part in step number step of its chain; *to: where the result goes. */
static bool make_step(probe *p, size_t i, int step)
{
    const lt_root_item *t = &p->set->item[i];
    int a, b;
    if (t->job->status || !as_fraction(t->job->exponent, &a, &b) || step >= a + b)
        return false;
    p->product[p->count++] = (lt_mode_product_job){
        .g = step ? vectors(p, step % 2, i) : start_of(p, i),
        .y = vectors(p, (step + 1) % 2, i),
        .m = is_factor(step, a, b) ? t->a : t->result,
        .dim = 0,
    };
    return true;
}

/* The block that the item's chain ends in. */
static int end_of(const lt_root_item *t)
{
    int a, b;
    return as_fraction(t->job->exponent, &a, &b) && (a + b) % 2;
}

/* The end of each chain minus its start, in its place. */
static lt_status subtract_start(probe *p)
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
                                       .a = start_of(p, i),
                                       .y = vectors(p, end_of(&s->item[i]), i)};
    }
    return count ? s->be->vec(s->ctx, p->vec, count, NULL) : LT_OK;
}

/* Norms of the chains' ends. */
static lt_status queue_ends(const probe *p, const lt_view *norms)
{
    for (size_t i = 0; i < p->set->count; i++)
        p->view[i] = vectors(p, end_of(&p->set->item[i]), i);
    return p->set->be->frobenius(p->set->ctx, p->view, p->set->count, norms);
}

/* The same to the host. */
static lt_status read_ends(probe *p)
{
    const lt_view norms = lt_tensor_view(p->norms);
    LT_TRY(queue_ends(p, &norms));
    return lt_tensor_read(p->norms, p->host, p->set->count * sizeof *p->host);
}

/* damps: matrices are without epsilon, which comes to their products. */
static lt_status run_chains(probe *p, bool damps)
{
    const lt_root_set *s = p->set;
    for (int step = 0; step < MOST_FACTORS; step++) {
        size_t added = 0;
        p->count = 0;
        for (size_t i = 0; i < s->count; i++)
            if (make_step(p, i, step) && damps && multiplies_matrix(&s->item[i], step))
                p->vec[added++] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                               .alpha = s->item[i].epsilon,
                                               .beta = 1,
                                               .a = p->product[p->count - 1].g,
                                               .y = p->product[p->count - 1].y};
        if (!p->count)
            break;
        LT_TRY(multiply(p));
        if (added)
            LT_TRY(s->be->vec(s->ctx, p->vec, added, NULL));
    }
    return LT_OK;
}

lt_status lt_root_queue_residuals(const lt_root_set *set, const lt_view *norms)
{
    probe p = {0};
    lt_status st = open_probe(&p, set);
    if (!st)
        st = run_chains(&p, false);
    if (!st)
        st = subtract_start(&p);
    if (!st)
        st = queue_ends(&p, norms);
    close_probe(&p);
    return st;
}

void lt_root_take_residuals(const lt_root_set *set, const double *norm)
{
    int a, b;
    for (size_t i = 0; i < set->count; i++) {
        const lt_root_item *t = &set->item[i];
        if (!t->job->status && as_fraction(t->job->exponent, &a, &b))
            t->job->residual = norm[i] / sqrt((double)(t->n * VECTORS));
    }
}

/* A number per item, as queue makes them on the device, to the host. */
static lt_status read_numbers(const lt_root_set *set,
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

lt_status lt_root_residuals(const lt_root_set *set)
{
    double *norm = lt_alloc(set->count, sizeof *norm);
    lt_status st = norm ? read_numbers(set, lt_root_queue_residuals, norm) : LT_E_NOMEM;
    if (!st)
        lt_root_take_residuals(set, norm);
    lt_free(norm);
    return st;
}

/* --- Old roots --- */

bool lt_root_has_residual(double exponent)
{
    int p, q;
    return as_fraction(exponent, &p, &q);
}

/* Of |x|, |y| and |y - x|, where y is to be c x: |y - c x| / |c x| of the best c, or of 1. HUGE_VAL: none is
 * above 0. */
static double misfit(double x, double y, double apart, bool any_length)
{
    const double product = (x * x + y * y - apart * apart) / 2;
    if (!any_length)
        return apart / x;
    return product > 0 ? sqrt(fmax(x * x * y * y / (product * product) - 1, 0)) : HUGE_VAL;
}

static lt_status measure_drifts(probe *p, bool any_length)
{
    const lt_root_set *s = p->set;
    int a, b;
    LT_TRY(run_chains(p, true));
    LT_TRY(read_ends(p));
    for (size_t i = 0; i < s->count; i++)
        s->item[i].job->residual = p->host[i];
    LT_TRY(subtract_start(p));
    LT_TRY(read_ends(p));
    for (size_t i = 0; i < s->count; i++) {
        const lt_root_item *t = &s->item[i];
        const double x = sqrt((double)(t->n * VECTORS));
        t->job->residual = as_fraction(t->job->exponent, &a, &b)
                               ? misfit(x, t->job->residual, p->host[i], any_length) / b
                               : HUGE_VAL;
    }
    return LT_OK;
}

lt_status lt_root_drifts(const lt_root_set *set, bool any_length)
{
    probe p = {.looks = true};
    for (size_t i = 0; i < set->count; i++)
        set->item[i].result = set->item[i].old;
    lt_status st = open_probe(&p, set);
    if (!st)
        st = measure_drifts(&p, any_length);
    close_probe(&p);
    return st;
}

/* --- Largest eigenvalues ---
 *
 * By the method of Rayleigh and Ritz, from the products of a block of vectors with the first powers of the matrix: the
 * largest eigenvalue of what the matrix is to the span of the last BASIS blocks but one. Golub & Underwood, "The block
 * Lanczos method for computing eigenvalues", 1977. Never too large but for rounding; what tests/optim/test_roots.c has
 * is less than 5 % too small after STEPS products, twice of which a power method's norms take for that. */

enum { STEPS = 8, LOOK_STEPS = 4, COLUMNS = LT_RITZ_COLUMNS };

/* At least the largest eigenvalue, epsilon's share of it too. */
static double bound_of(const lt_root_item *t)
{
    return t->norm + t->epsilon;
}

/* The block that is written when so many products are left: the last one's is the last block. */
static int block_of(int left)
{
    return BASIS * (left + 1) % BLOCKS;
}

/* The product over the bound, or on the device over the norm. */
static void divide_by_bound(const lt_root_set *s, const lt_root_item *t, lt_vec_job *job)
{
    const double bound = bound_of(t);
    job->alpha = bound > 0 ? 1 / bound : 0;
    if (!t->norm_at)
        return;
    job->alpha = 1;
    job->factor = (lt_vec_factor){.over = t->inverse_at, .under = s->queued_one};
}

/* The next block: A over the bound times the one before. Vectors become shorter by sqrt(n) at most. */
static lt_status advance(probe *p, int left, bool first)
{
    const lt_root_set *s = p->set;
    for (size_t i = 0; i < s->count; i++) {
        const lt_view y = vectors(p, block_of(left), i);
        p->product[i] =
            (lt_mode_product_job){.g = first ? start_of(p, i) : vectors(p, block_of(left + 1), i),
                                  .y = y,
                                  .m = s->item[i].a};
        p->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY, .a = y, .y = y};
        divide_by_bound(s, &s->item[i], &p->vec[i]);
    }
    p->count = s->count;
    LT_TRY(multiply(p));
    return s->be->vec(s->ctx, p->vec, s->count, NULL);
}

/* Inner products of all blocks' vectors, [rows / PART, COLUMNS, COLUMNS], in double: the span is nearly that of fewer
 * vectors. Parts have one size: one product of long matrices would be a few threads'. */
static lt_status multiply_vectors(const probe *p, const lt_tensor *wide, const lt_tensor *gram)
{
    const lt_root_set *s = p->set;
    const size_t count = (size_t)(p->rows / PART);
    const lt_view from = lt_tensor_view(p->block);
    lt_view to = lt_tensor_view(wide);
    lt_gram_job *job = lt_alloc(count, sizeof *job);
    if (!job)
        return LT_E_NOMEM;
    for (size_t i = 0; i < count; i++)
        job[i] = (lt_gram_job){
            .g = lt_root_part(wide, (int64_t)i * PART * COLUMNS, LT_SHAPE(PART, COLUMNS)),
            .f = lt_root_part(gram, (int64_t)i * COLUMNS * COLUMNS, LT_SHAPE(COLUMNS, COLUMNS)),
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

/* From the blocks' products the values, in units of the bounds that the host has. */
static lt_status solve_small(const probe *p, const lt_tensor *gram, const lt_view *value)
{
    const lt_root_set *s = p->set;
    lt_ritz_job *job = lt_alloc(s->count, sizeof *job);
    if (!job)
        return LT_E_NOMEM;
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

static lt_status find_largest(probe *p, int steps, const lt_view *value)
{
    lt_tensor *wide = NULL, *gram = NULL;
    lt_device *device = p->set->device;
    lt_status st = lt_tensor_new(&wide, device, LT_F64, LT_SHAPE(p->rows, COLUMNS));
    if (!st)
        st = lt_tensor_new(&gram, device, LT_F64, LT_SHAPE(p->rows / PART, COLUMNS, COLUMNS));
    for (int left = steps; !st && left-- > 0;)
        st = advance(p, left, left == steps - 1);
    if (!st)
        st = multiply_vectors(p, wide, gram);
    if (!st)
        st = solve_small(p, gram, value);
    lt_tensor_free(&wide);
    lt_tensor_free(&gram);
    return st;
}

static lt_status queue_largest(const lt_root_set *set, bool looks, const lt_view *value)
{
    probe p = {.looks = looks};
    lt_status st = open_probe(&p, set);
    if (!st)
        st = find_largest(&p, looks ? LOOK_STEPS : STEPS, value);
    close_probe(&p);
    return st;
}

lt_status lt_root_queue_largest(const lt_root_set *set, const lt_view *value)
{
    return queue_largest(set, false, value);
}

static lt_status queue_looks(const lt_root_set *set, const lt_view *value)
{
    return queue_largest(set, true, value);
}

lt_status lt_root_largest(const lt_root_set *set, bool looks, double *value)
{
    LT_TRY(read_numbers(set, looks ? queue_looks : lt_root_queue_largest, value));
    for (size_t i = 0; i < set->count; i++)
        value[i] *= bound_of(&set->item[i]);
    return LT_OK;
}
