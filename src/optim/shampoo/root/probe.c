/* Numbers about matrices from their products with a few vectors: residuals of roots, and largest
 * eigenvalues. */

#include "base/parallel.h"
#include "base/rng.h"
#include "optim/shampoo/root/root.h"

#include <math.h>

enum { VECTORS = 4, MOST_FACTORS = 12 };

/* Blocks of vectors [n, VECTORS] for each item, twice: what a product reads and what it writes. */
typedef struct probe {
    const lt_root_set *set;
    lt_tensor *block[2], *start;
    lt_tensor *norms; /* of two lists of views */
    int64_t *at;      /* the first row of each item in a block */
    bool looks;       /* at old roots */
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
    int64_t rows = 0;
    p->set = s;
    p->at = lt_alloc(s->count, sizeof *p->at);
    p->host = lt_alloc(2 * s->count, sizeof *p->host);
    p->product = lt_alloc(s->count, sizeof *p->product);
    p->vec = lt_alloc(s->count, sizeof *p->vec);
    p->view = lt_alloc(s->count, sizeof *p->view);
    if (!p->at || !p->host || !p->product || !p->vec || !p->view)
        return LT_E_NOMEM;
    for (size_t i = 0; i < s->count; i++) {
        p->at[i] = rows;
        rows += s->item[i].n;
    }
    for (int k = 0; k < 2; k++)
        LT_TRY(lt_tensor_new(&p->block[k], s->device, s->dtype, LT_SHAPE(rows, VECTORS)));
    LT_TRY(lt_tensor_new(&p->norms, s->device, LT_F64, LT_SHAPE(2 * (int64_t)s->count)));
    return make_start(p, most_rows(s));
}

static void close_probe(probe *p)
{
    lt_tensor_free(&p->block[0]);
    lt_tensor_free(&p->block[1]);
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
    return lt_root_part(p->block[which], p->at[item] * VECTORS, shape);
}

static lt_view start_of(const probe *p, size_t item)
{
    return lt_root_part(p->start, 0, LT_SHAPE(p->set->item[item].n, VECTORS));
}

/* Norms of the listed views, the first or the second list. */
static lt_status find_norms(probe *p, size_t first)
{
    const lt_root_set *s = p->set;
    const lt_view out = lt_root_part(p->norms, (int64_t)first, LT_SHAPE((int64_t)s->count));
    return s->be->frobenius(s->ctx, p->view, s->count, &out);
}

/* The same, and both lists' to the host. */
static lt_status read_norms(probe *p, size_t first)
{
    LT_TRY(find_norms(p, first));
    return lt_tensor_read(p->norms, p->host, 2 * p->set->count * sizeof *p->host);
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
    return read_norms(p, 0);
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

/* --- Largest eigenvalues, by the power method on VECTORS vectors at once --- */

enum { POWER_STEPS = 16, LOOK_STEPS = 4 };

/* Block 1: A times block 0, or the start. */
static lt_status apply(probe *p, bool first)
{
    const lt_root_set *s = p->set;
    for (size_t i = 0; i < s->count; i++) {
        p->view[i] = vectors(p, 1, i);
        p->product[i] = (lt_mode_product_job){
            .g = first ? start_of(p, i) : vectors(p, 0, i), .y = p->view[i], .m = s->item[i].a};
    }
    p->count = s->count;
    return multiply(p);
}

/* Block 0: block 1 over the items' numbers. */
static lt_status divide(probe *p, double (*number)(const probe *p, size_t i))
{
    const lt_root_set *s = p->set;
    for (size_t i = 0; i < s->count; i++) {
        const double x = number(p, i);
        p->vec[i] = (lt_vec_job){.op = LT_VEC_AXPBY,
                                 .alpha = x > 0 ? 1 / x : 0,
                                 .a = vectors(p, 1, i),
                                 .y = vectors(p, 0, i)};
    }
    return s->be->vec(s->ctx, p->vec, s->count, NULL);
}

static double norm_of_vectors(const probe *p, size_t i)
{
    return p->host[i];
}

static lt_status iterate(probe *p, int steps, double *value)
{
    const lt_root_set *s = p->set;
    for (int step = 0; step < steps; step++) {
        LT_TRY(apply(p, step == 0));
        LT_TRY(read_norms(p, 0));
        for (size_t i = 0; i < s->count; i++)
            value[i] = p->host[i] / (step ? 1 : sqrt((double)(s->item[i].n * VECTORS)));
        LT_TRY(divide(p, norm_of_vectors));
    }
    return LT_OK;
}

static double norm_of_matrix(const probe *p, size_t i)
{
    return p->set->item[i].norm;
}

/* The same but for rounding, with one read-back: over |A| the vectors become shorter by sqrt(n) in a step at most. */
static lt_status iterate_queued(probe *p, int steps, double *value)
{
    const lt_root_set *s = p->set;
    for (int step = 0; step < steps; step++) {
        LT_TRY(apply(p, step == 0));
        if (step == steps - 2)
            LT_TRY(find_norms(p, 0));
        if (step < steps - 1)
            LT_TRY(divide(p, norm_of_matrix));
    }
    LT_TRY(read_norms(p, s->count));
    for (size_t i = 0; i < s->count; i++) {
        const double before = p->host[i], after = p->host[s->count + i];
        value[i] = before > 0 ? after / before * s->item[i].norm : 0;
    }
    return LT_OK;
}

lt_status lt_root_largest(const lt_root_set *set, bool looks, double *value)
{
    probe p = {.looks = looks};
    lt_status st = open_probe(&p, set);
    const int steps = looks ? LOOK_STEPS : POWER_STEPS;
    if (!st)
        st = set->be->host_memory ? iterate(&p, steps, value) : iterate_queued(&p, steps, value);
    close_probe(&p);
    return st;
}
