/* Numbers about matrices from their products with a few vectors: residuals of roots, and largest
 * eigenvalues. */

#include "base/parallel.h"
#include "base/rng.h"
#include "optim/shampoo/root/root.h"

#include <math.h>

/* BASIS: blocks of vectors whose span holds what is taken for an eigenvector. Items' rows are a multiple of PART, zeros
 * behind their own. */
enum { VECTORS = 4, MOST_FACTORS = 12, BASIS = 2, BLOCKS = BASIS + 1, PART = 128 };

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

/* Random signs: each eigenvector has the same share in them. */
static lt_status make_start(probe *p, int64_t rows)
{
    const lt_root_set *s = p->set;
    lt_tensor *wide = NULL;
    double *sign = lt_alloc((size_t)(rows * VECTORS), sizeof *sign);
    lt_status st =
        sign ? lt_tensor_new(&wide, s->device, LT_F64, LT_SHAPE(rows, VECTORS)) : LT_E_NOMEM;
    lt_rng rng = {.key = 1};
    for (int64_t i = 0; !st && i < rows * VECTORS; i++)
        sign[i] = lt_rng_u32(&rng) & 1 ? 1 : -1;
    if (!st)
        st = lt_tensor_write(wide, sign, (size_t)(rows * VECTORS) * sizeof *sign);
    if (!st)
        st = lt_tensor_new(&p->start, s->device, s->dtype, LT_SHAPE(rows, VECTORS));
    if (!st)
        st = lt_tensor_copy(p->start, wide);
    lt_tensor_free(&wide);
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

/* Norms of the views to the host. */
static lt_status read_norms(probe *p)
{
    const lt_root_set *s = p->set;
    const lt_view out = lt_tensor_view(p->norms);
    LT_TRY(s->be->frobenius(s->ctx, p->view, s->count, &out));
    return lt_tensor_read(p->norms, p->host, s->count * sizeof *p->host);
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

/* Norms of the chains' ends to the host. */
static lt_status read_ends(probe *p)
{
    for (size_t i = 0; i < p->set->count; i++)
        p->view[i] = vectors(p, end_of(&p->set->item[i]), i);
    return read_norms(p);
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

static lt_status measure(probe *p)
{
    const lt_root_set *s = p->set;
    LT_TRY(run_chains(p, false));
    LT_TRY(subtract_start(p));
    LT_TRY(read_ends(p));
    for (size_t i = 0; i < s->count; i++) {
        lt_root_item *t = &s->item[i];
        int a, b;
        if (!t->job->status && as_fraction(t->job->exponent, &a, &b))
            t->job->residual = p->host[i] / sqrt((double)(t->n * VECTORS));
    }
    return LT_OK;
}

lt_status lt_root_residuals(const lt_root_set *set)
{
    probe p = {0};
    lt_status st = open_probe(&p, set);
    if (!st)
        st = measure(&p);
    close_probe(&p);
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

enum { STEPS = 8, LOOK_STEPS = 4, SIDE = BASIS * VECTORS, COLUMNS = BLOCKS * VECTORS };

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

/* The next block: A over the bound times the one before. Vectors become shorter by sqrt(n) at most. */
static lt_status advance(probe *p, int left, bool first)
{
    const lt_root_set *s = p->set;
    for (size_t i = 0; i < s->count; i++) {
        const double bound = bound_of(&s->item[i]);
        const lt_view y = vectors(p, block_of(left), i);
        p->product[i] =
            (lt_mode_product_job){.g = first ? start_of(p, i) : vectors(p, block_of(left + 1), i),
                                  .y = y,
                                  .m = s->item[i].a};
        p->vec[i] =
            (lt_vec_job){.op = LT_VEC_AXPBY, .alpha = bound > 0 ? 1 / bound : 0, .a = y, .y = y};
    }
    p->count = s->count;
    LT_TRY(multiply(p));
    return s->be->vec(s->ctx, p->vec, s->count, NULL);
}

/* Inner products of all blocks' vectors, [rows / PART, COLUMNS, COLUMNS], in double: the span is nearly that of fewer
 * vectors. Parts have one size, and are summed by the host: one product of long matrices would be a few threads'. */
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

/* The same to the host. */
static lt_status read_products(const probe *p, double *host)
{
    const int64_t parts = p->rows / PART;
    lt_tensor *wide = NULL, *gram = NULL;
    lt_device *device = p->set->device;
    lt_status st = lt_tensor_new(&wide, device, LT_F64, LT_SHAPE(p->rows, COLUMNS));
    if (!st)
        st = lt_tensor_new(&gram, device, LT_F64, LT_SHAPE(parts, COLUMNS, COLUMNS));
    if (!st)
        st = multiply_vectors(p, wide, gram);
    if (!st)
        st = lt_tensor_read(gram, host, lt_tensor_bytes(gram));
    lt_tensor_free(&wide);
    lt_tensor_free(&gram);
    return st;
}

/* Whether x is above all eigenvalues: x V^T V - V^T A V has a Cholesky factor, V the blocks but the last. What f32
 * rounds off a vector is about 1e-6 of it; a direction that is all rounding has no say. */
static bool is_above(double x, const double *product)
{
    const double damping = 1e-8;
    double l[SIDE][SIDE];
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j <= i; j++) {
            const double *a = &product[i * COLUMNS], *b = &product[j * COLUMNS];
            double rest = x * a[j] - (a[j + VECTORS] + b[i + VECTORS]) / 2;
            rest += i == j ? x * damping * a[j] : 0;
            for (int k = 0; k < j; k++)
                rest -= l[i][k] * l[j][k];
            if (i == j && !(rest > 0))
                return false;
            l[i][j] = i == j ? sqrt(rest) : rest / l[j][j];
        }
    return true;
}

typedef struct estimate {
    const probe *p;
    double *product, *value;
} estimate;

/* Where nothing is found, as of zeros, the bound. */
static void find_value(void *context, int64_t i, int64_t end, int64_t chunk)
{
    enum { HALVINGS = 24, SIZE = COLUMNS * COLUMNS };
    const estimate *e = context;
    const lt_root_item *t = &e->p->set->item[i];
    double *first = &e->product[e->p->at[i] / PART * SIZE], low = 0, high = 1;
    for (int64_t k = SIZE; k < (t->n + PART - 1) / PART * SIZE; k++)
        first[k % SIZE] += first[k];
    for (int k = 0; k < HALVINGS; k++) {
        const double x = (low + high) / 2;
        *(is_above(x, first) ? &high : &low) = x;
    }
    e->value[i] = high * bound_of(t);
    (void)end, (void)chunk;
}

static lt_status find_largest(probe *p, int steps, double *value)
{
    estimate e = {.p = p, .value = value};
    e.product = lt_alloc((size_t)(p->rows / PART) * COLUMNS * COLUMNS, sizeof *e.product);
    lt_status st = e.product ? LT_OK : LT_E_NOMEM;
    for (int left = steps; !st && left-- > 0;)
        st = advance(p, left, left == steps - 1);
    if (!st)
        st = read_products(p, e.product);
    if (!st)
        lt_parallel((int64_t)p->set->count, 1, find_value, &e);
    lt_free(e.product);
    return st;
}

lt_status lt_root_largest(const lt_root_set *set, bool looks, double *value)
{
    probe p = {.looks = looks};
    lt_status st = open_probe(&p, set);
    if (!st)
        st = find_largest(&p, looks ? LOOK_STEPS : STEPS, value);
    close_probe(&p);
    return st;
}
