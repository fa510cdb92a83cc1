/* Functions of lather/ext/matrix.h against their formulas in double. */

#include "fixture.h"
#include "tensor/tensor.h"

#include "lather/ext/matrix.h"
#include "lather/ext/optim.h"
#include "lather/ext/vec.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 64, SIDE = 8 };

typedef struct row {
    const char *name, *device;
    lt_shape shape;
    int dim;
    int block; /* rows of a factor's block; 0: [n,n] */
    bool f64;
} row;

static const row rows[] = {
    {"1 x 1", "ref", {2, {1, 1}}, 0, 0, true},
    {"1 x n", "ref", {2, {1, 6}}, 0, 0, true},
    {"1 x n along n", "ref", {2, {1, 6}}, 1, 0, true},
    {"a matrix along rows", "ref", {2, {4, 7}}, 0, 0, true},
    {"a matrix along columns", "ref", {2, {7, 4}}, 1, 0, true},
    {"three dimensions along the middle one", "ref", {3, {2, 5, 3}}, 1, 0, true},
    {"a vector", "ref", {1, {5}}, 0, 0, true},
    {"blocks that fit", "ref", {2, {6, 5}}, 0, 3, true},
    {"blocks, the last one shorter", "ref", {2, {8, 5}}, 0, 3, true},
    {"blocks along columns", "ref", {2, {5, 8}}, 1, 3, true},
    {"a matrix on cpu", "cpu", {2, {4, 7}}, 0, 0, false},
    {"1 x 1 on cpu", "cpu", {2, {1, 1}}, 0, 0, false},
    {"blocks on cpu", "cpu", {2, {8, 5}}, 0, 3, false},
    {"three dimensions on cpu", "cpu", {3, {2, 5, 3}}, 1, 0, false},
};

typedef struct problem {
    const row *row;
    lt_device *device;
    lt_tensor *x, *y, *factor, *out;
    double value[MOST];
    int n, block;
    double bound;
    lt_scalars scalars;
} problem;

static lt_tensor *tensor_of(const problem *p, lt_shape shape)
{
    lt_tensor *t = NULL;
    assert_ok(lt_tensor_new(&t, p->device, lt_device_master_dtype(p->device), shape));
    return t;
}

static void open_on(problem *p, const row *r, lt_device *device)
{
    *p = (problem){.row = r,
                   .device = device,
                   .bound = r->f64 ? 1e-12 : 2e-5,
                   .scalars = {.finite = 1, .applied = 3}};
    p->n = (int)r->shape.dim[r->dim];
    p->block = r->block ? r->block : p->n;
    const int k = (p->n + p->block - 1) / p->block;
    const lt_shape factor = r->block ? LT_SHAPE(k, p->block, p->block) : LT_SHAPE(p->n, p->n);
    p->x = tensor_of(p, r->shape);
    p->y = tensor_of(p, r->shape);
    p->factor = tensor_of(p, factor);
    p->out = tensor_of(p, factor);
    for (int i = 0; i < lt_shape_count(r->shape); i++)
        p->value[i] = sin(1 + 1.7 * i + 0.3 * i * i);
    put(p->x, p->value);
}

static void open_problem(problem *p, const row *r)
{
    const lt_device_config config = {.f64 = r->f64, .threads = 1};
    lt_device *device = NULL;
    assert_ok(lt_device_open(&device, r->device, &config));
    open_on(p, r, device);
}

static void free_tensors(problem *p)
{
    lt_tensor_free(&p->x);
    lt_tensor_free(&p->y);
    lt_tensor_free(&p->factor);
    lt_tensor_free(&p->out);
}

static void close_problem(problem *p)
{
    free_tensors(p);
    lt_device_close(&p->device);
}

/* Returns the element of an array at row i and rest k of its unfolding. */
static int at(const problem *p, int i, int k)
{
    int inner = 1;
    for (int d = p->row->dim + 1; d < p->row->shape.ndim; d++)
        inner *= (int)p->row->shape.dim[d];
    return (k / inner * p->n + i) * inner + k % inner;
}

static int rest(const problem *p)
{
    return (int)lt_shape_count(p->row->shape) / p->n;
}

/* Spreads a factor to [n,n], with zeros outside of its blocks. */
static void get_factor(const problem *p, const lt_tensor *f, double full[SIDE][SIDE])
{
    double packed[MOST * 4];
    get(f, packed);
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j < p->n; j++) {
            const int b = p->block, first = i / b * b, used = p->n - first < b ? p->n - first : b;
            full[i][j] = i / b != j / b ? 0 : packed[first * b + (i - first) * used + j - first];
        }
}

/* Sets a factor of gradients with full rank. */
static void fill_factor(problem *p)
{
    double g[MOST];
    for (int t = 1; t <= 2 * SIDE; t++) {
        for (int i = 0; i < lt_shape_count(p->row->shape); i++)
            g[i] = cos(5.0 * t + 2.3 * i * t + 0.7 * i);
        put(p->x, g);
        assert_ok(lt_matrix_gram(p->factor, 0.9, 0.1, p->x, p->row->dim, &p->scalars));
    }
    put(p->x, p->value);
}

static void multiply(int n, double a[SIDE][SIDE], double b[SIDE][SIDE], double out[SIDE][SIDE])
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            out[i][j] = 0;
            for (int k = 0; k < n; k++)
                out[i][j] += a[i][k] * b[k][j];
        }
}

/* --- Products --- */

static void gram_is_decayed_and_weighted(void **state)
{
    problem p;
    double f[SIDE][SIDE];
    open_problem(&p, *state);
    for (int t = 0; t < 2; t++)
        assert_ok(lt_matrix_gram(p.factor, 0.5, 0.25, p.x, p.row->dim, &p.scalars));
    get_factor(&p, p.factor, f);
    for (int i = 0; i < p.n; i++)
        for (int j = 0; j < p.n; j++) {
            double sum = 0;
            for (int k = 0; k < rest(&p) && i / p.block == j / p.block; k++)
                sum += p.value[at(&p, i, k)] * p.value[at(&p, j, k)];
            assert_near(f[i][j], 0.375 * sum, p.bound * 10);
        }
    close_problem(&p);
}

static void product_is_along_its_dimension(void **state)
{
    problem p;
    double f[SIDE][SIDE], got[MOST], m[MOST * 4];
    open_problem(&p, *state);
    for (int i = 0; i < lt_tensor_count(p.factor); i++)
        m[i] = cos(0.3 * i * i); /* not symmetric */
    put(p.factor, m);
    get_factor(&p, p.factor, f);
    for (int transposed = 0; transposed < 2; transposed++) {
        assert_ok(transposed
                      ? lt_matrix_mode_product_transposed(p.y, p.factor, p.x, p.row->dim, NULL)
                      : lt_matrix_mode_product(p.y, p.factor, p.x, p.row->dim, NULL));
        get(p.y, got);
        for (int i = 0; i < p.n; i++)
            for (int k = 0; k < rest(&p); k++) {
                double sum = 0;
                for (int j = 0; j < p.n; j++)
                    sum += (transposed ? f[j][i] : f[i][j]) * p.value[at(&p, j, k)];
                assert_near(got[at(&p, i, k)], sum, p.bound * 10);
            }
    }
    close_problem(&p);
}

static void block_is_copied(void **state)
{
    problem p;
    double f[SIDE][SIDE], got[MOST];
    open_problem(&p, *state);
    fill_factor(&p);
    get_factor(&p, p.factor, f);
    for (int b = 0; b * p.block < p.n; b++) {
        lt_tensor *copy = NULL;
        const int first = b * p.block, left = p.n - first, used = left < p.block ? left : p.block;
        assert_ok(lt_matrix_copy_block(&copy, p.factor, used == p.n ? 0 : p.n, (size_t)b));
        assert_true(lt_shape_equal(lt_tensor_shape(copy), LT_SHAPE(used, used)));
        get(copy, got);
        for (int i = 0; i < used * used; i++)
            assert_near(got[i], f[first + i / used][first + i % used], 0);
        lt_tensor_free(&copy);
    }
    close_problem(&p);
}

/* --- Norms --- */

static void rescaled_takes_the_length(void **state)
{
    problem p;
    double y[MOST], got[MOST], of_x = 0, of_y = 0;
    const int count = (int)lt_shape_count(((const row *)*state)->shape);
    open_problem(&p, *state);
    for (int i = 0; i < count; i++) {
        y[i] = 3 + i;
        of_x += p.value[i] * p.value[i];
        of_y += y[i] * y[i];
    }
    put(p.y, y);
    assert_ok(lt_matrix_rescale(p.y, p.x, &p.scalars));
    get(p.y, got);
    for (int i = 0; i < count; i++)
        assert_near(got[i], y[i] * sqrt(of_x / of_y), p.bound * 10);
    assert_ok(lt_tensor_fill(p.y, 0));
    assert_ok(lt_matrix_rescale(p.y, p.x, &p.scalars));
    get(p.y, got);
    assert_near(got[0], 0, 0);
    lt_tensor *norm = NULL;
    assert_ok(lt_tensor_new(&norm, p.device, LT_F64, LT_SHAPE(1)));
    assert_ok(lt_matrix_norm(norm, p.x));
    get(norm, got);
    assert_near(got[0], sqrt(of_x), p.bound);
    lt_tensor_free(&norm);
    close_problem(&p);
}

/* --- Eigenvectors and roots --- */

static lt_matrix_root_job job_of(const problem *p, bool warm)
{
    return (lt_matrix_root_job){
        .factor = p->factor, .out = p->out, .n = p->n, .warm = warm, .param = "w"};
}

static const lt_matrix_root_config root_config = {.optim = "test", .exponent = 0.5, .beta2 = 0.5};

/* R A R = I of A = F / (1 - beta2^3), with another exponent and an epsilon too. */
static void root_inverts_its_factor(void **state)
{
    problem p;
    double f[SIDE][SIDE], r[SIDE][SIDE], ra[SIDE][SIDE], got[SIDE][SIDE];
    const double epsilon = 0.01, correction = 1 - 0.125;
    open_problem(&p, *state);
    fill_factor(&p);
    get_factor(&p, p.factor, f);
    for (int quarter = 0; quarter < 2; quarter++) {
        lt_matrix_root_job job = job_of(&p, false);
        lt_matrix_root_config c = root_config;
        c.exponent = quarter ? 0.25 : 0.5;
        c.epsilon = epsilon;
        c.epsilon_rule = LT_EPSILON_AFTER;
        assert_ok(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars));
        assert_ok(job.status);
        get_factor(&p, p.out, r);
        if (quarter) {
            multiply(p.n, r, r, got);
            memcpy(r, got, sizeof r);
        }
        for (int i = 0; i < p.n; i++)
            for (int j = 0; j < p.n; j++)
                ra[i][j] = f[i][j] / correction + (i == j ? epsilon : 0);
        multiply(p.n, r, ra, got);
        multiply(p.n, got, r, ra);
        for (int i = 0; i < p.n; i++)
            for (int j = 0; j < p.n; j++)
                assert_near(ra[i][j], i == j, p.bound * 10);
    }
    close_problem(&p);
}

/* Q^T A Q is diagonal, by both solvers. */
static void basis_makes_its_factor_diagonal(void **state)
{
    problem p;
    double f[SIDE][SIDE], q[SIDE][SIDE], t[SIDE][SIDE], d[SIDE][SIDE];
    open_problem(&p, *state);
    fill_factor(&p);
    get_factor(&p, p.factor, f);
    for (int k = 0; k < 3;
         k++) { /* eigh; qr from its basis; qr from none, which begins with eigh */
        lt_matrix_root_job job = job_of(&p, k == 1);
        lt_matrix_root_config c = root_config;
        c.solver = k ? LT_ROOT_QR : LT_ROOT_EIGH;
        assert_ok(lt_matrix_eigenbases(&c, &job, 1, &p.scalars));
        assert_ok(job.status);
        get_factor(&p, p.out, q);
        multiply(p.n, f, q, t);
        for (int i = 0; i < p.n; i++)
            for (int j = 0; j < p.n; j++) {
                d[i][j] = 0;
                for (int l = 0; l < p.n; l++)
                    d[i][j] += q[l][i] * t[l][j];
                if (i != j)
                    assert_near(d[i][j], 0, p.bound * 10);
            }
    }
    close_problem(&p);
}

static void eigenvectors_give_the_matrix(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n += 2) {
        problem p;
        double l[SIDE], q[MOST], a[MOST];
        const row r = {"", "cpu", {2, {n, 7}}, 0, 0, false};
        open_problem(&p, &r);
        lt_tensor *values = tensor_of(&p, LT_SHAPE(n));
        fill_factor(&p);
        get(p.factor, a);
        assert_ok(lt_matrix_eigh(values, p.out, p.factor));
        get(values, l);
        get(p.out, q);
        for (int i = 0; i < n * n; i++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += q[i / n * n + k] * l[k] * q[i % n * n + k];
            assert_near(a[i], sum, 1e-5);
        }
        for (int k = 1; k < n; k++)
            assert_true(l[k - 1] <= l[k]);
        lt_tensor_free(&values);
        close_problem(&p);
    }
}

static const row plain = {"", "ref", {2, {4, 3}}, 0, 0, true};

/* Zeros, a skipped step and a failure have no result: the identity at first, then what there is. */
static void without_result_the_old_one_remains(void **state)
{
    (void)state;
    problem p;
    double r[SIDE][SIDE], old[SIDE][SIDE];
    open_problem(&p, &plain);
    lt_matrix_root_job job = job_of(&p, false);
    assert_ok(lt_matrix_inverse_roots(&root_config, &job, 1, &p.scalars));
    assert_int_equal(job.status, LT_END);
    get_factor(&p, p.out, r);
    for (int i = 0; i < 16; i++)
        assert_near(r[i / 4][i % 4], i / 4 == i % 4, 0);
    fill_factor(&p);
    lt_matrix_root_config c = root_config;
    c.epsilon = 1e-3;
    assert_ok(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars));
    assert_ok(job.status);
    get_factor(&p, p.out, old);
    job.warm = true;
    p.scalars.finite = 0;
    assert_ok(lt_tensor_fill(p.factor, 7));
    assert_ok(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars));
    assert_int_equal(job.status, LT_END);
    get_factor(&p, p.out, r);
    assert_memory_equal(r[0], old[0], 4 * sizeof(double));
    p.scalars.finite = 1; /* rank 1 and no epsilon */
    c.epsilon = 0;
    c.epsilon_rule = LT_EPSILON_AFTER;
    assert_ok(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars));
    get_factor(&p, p.out, r);
    if (job.status)
        assert_memory_equal(r[0], old[0], 4 * sizeof(double));
    close_problem(&p);
}

static void several_factors_are_solved_at_once(void **state)
{
    (void)state;
    problem p[3];
    double one[SIDE][SIDE] = {{0}}, all[SIDE][SIDE] = {{0}};
    static const row three[3] = {{"", "ref", {2, {2, 5}}, 0, 0, true},
                                 {"", "ref", {2, {7, 5}}, 0, 3, true},
                                 {"", "ref", {2, {5, 6}}, 1, 0, true}};
    lt_matrix_root_job job[3];
    lt_matrix_root_config c = root_config;
    c.epsilon = 1e-2;
    open_problem(&p[0], &three[0]);
    for (int i = 0; i < 3; i++) {
        if (i)
            open_on(&p[i], &three[i], p[0].device);
        fill_factor(&p[i]);
        job[i] = job_of(&p[i], false);
    }
    assert_ok(lt_matrix_inverse_roots(&c, job, 3, &p[0].scalars));
    for (int i = 0; i < 3; i++) {
        assert_ok(job[i].status);
        get_factor(&p[i], p[i].out, all);
        assert_ok(lt_matrix_inverse_roots(&c, &job[i], 1, &p[0].scalars));
        get_factor(&p[i], p[i].out, one);
        for (int k = 0; k < p[i].n * p[i].n; k++)
            assert_near(all[k / p[i].n][k % p[i].n], one[k / p[i].n][k % p[i].n], 0);
    }
    assert_ok(lt_matrix_inverse_roots(&c, job, 0, NULL));
    free_tensors(&p[1]);
    free_tensors(&p[2]);
    close_problem(&p[0]);
}

/* --- Skipped steps, and what does not fit --- */

static void skipped_step_leaves_the_output(void **state)
{
    (void)state;
    problem p;
    double got[MOST];
    open_problem(&p, &plain);
    p.scalars.finite = 0;
    assert_ok(lt_tensor_fill(p.factor, 2));
    assert_ok(lt_tensor_fill(p.y, 3));
    assert_ok(lt_matrix_gram(p.factor, 0.5, 1, p.x, 0, &p.scalars));
    assert_ok(lt_matrix_mode_product(p.y, p.factor, p.x, 0, &p.scalars));
    assert_ok(lt_matrix_rescale(p.y, p.x, &p.scalars));
    assert_ok(lt_vec_correct_bias(p.y, p.x, 0.9, &p.scalars));
    get(p.factor, got);
    assert_near(got[1], 2, 0);
    get(p.y, got);
    assert_near(got[1], 3, 0);
    close_problem(&p);
}

static void message_names_what_does_not_fit(void **state)
{
    (void)state;
    problem p, other;
    open_problem(&p, &plain);
    open_problem(&other, &plain);
    lt_tensor *five = tensor_of(&p, LT_SHAPE(5, 5)), *four = tensor_of(&p, LT_SHAPE(4));
    lt_tensor *blocks = tensor_of(&p, LT_SHAPE(3, 2, 2));
    lt_tensor *f32 = NULL;
    assert_ok(lt_tensor_new(&f32, p.device, LT_F32, LT_SHAPE(4, 3)));
    assert_fails(lt_matrix_gram(five, 1, 1, p.x, 0, NULL), LT_E_SHAPE,
                 "gram: factor [5,5] does not fit dimension 0 of [4,3]");
    assert_fails(lt_matrix_gram(p.factor, 1, 1, p.x, 2, NULL), LT_E_SHAPE, "dimension 2 of [4,3]");
    assert_fails(lt_matrix_gram(p.factor, 1, 1, p.x, -1, NULL), LT_E_SHAPE, "dimension -1");
    assert_fails(lt_matrix_gram(blocks, 1, 1, p.x, 0, NULL), LT_E_SHAPE, "factor [3,2,2]");
    assert_fails(lt_matrix_gram(four, 1, 1, p.x, 0, NULL), LT_E_SHAPE, "factor [4]");
    assert_fails(lt_matrix_gram(p.factor, 1, 1, f32, 0, NULL), LT_E_ARG, "f64 and f32");
    assert_fails(lt_matrix_gram(p.factor, 1, 1, other.x, 0, NULL), LT_E_ARG, "one device");
    assert_fails(lt_matrix_mode_product(five, p.factor, p.x, 0, NULL), LT_E_SHAPE,
                 "shapes [4,3] and [5,5] differ");
    assert_fails(lt_matrix_mode_product(p.y, five, p.x, 0, NULL), LT_E_SHAPE, "factor [5,5]");
    assert_fails(lt_matrix_mode_product(p.x, p.factor, p.x, 0, NULL), LT_E_ARG, "same tensor");
    assert_fails(lt_matrix_norm(p.y, p.x), LT_E_ARG, "the output is f64 [4,3]");
    assert_fails(lt_matrix_eigh(four, p.out, five), LT_E_SHAPE, "factor [5,5]");
    assert_fails(lt_matrix_eigh(four, five, p.factor), LT_E_SHAPE, "[4,4] and [5,5] differ");
    assert_fails(lt_matrix_copy_block(&f32, p.factor, 4, 1), LT_E_SHAPE, "has no block 1");
    assert_fails(lt_matrix_gram(NULL, 1, 1, p.x, 0, NULL), LT_E_ARG, "gram: a tensor is NULL");
    assert_fails(lt_matrix_mode_product(p.y, NULL, p.x, 0, NULL), LT_E_ARG, "a tensor is NULL");
    assert_fails(lt_matrix_rescale(p.y, NULL, NULL), LT_E_ARG, "rescale: a tensor is NULL");
    assert_fails(lt_matrix_norm(NULL, p.x), LT_E_ARG, "norm: a tensor is NULL");
    assert_fails(lt_matrix_eigh(four, NULL, p.factor), LT_E_ARG, "eigh: a tensor is NULL");
    assert_fails(lt_matrix_copy_block(&f32, NULL, 4, 0), LT_E_ARG, "copy_block: a tensor is NULL");
    assert_fails(lt_vec_lerp(p.y, NULL, 1, NULL), LT_E_ARG, "vec: a tensor is NULL");
    assert_fails(lt_vec_lerp(NULL, p.x, 1, NULL), LT_E_ARG, "vec: a tensor is NULL");
    assert_fails(lt_vec_rsqrt(p.y, 1, p.x, 1, NULL, 0, NULL), LT_E_ARG, "vec: a tensor is NULL");
    assert_fails(lt_vec_axpby(p.factor, 1, p.x, 0, NULL), LT_E_SHAPE,
                 "vec: shapes [4,3] and [4,4] differ");
    lt_tensor_free(&five);
    lt_tensor_free(&four);
    lt_tensor_free(&blocks);
    lt_tensor_free(&f32);
    close_problem(&other);
    close_problem(&p);
}

static bool same_shape(const lt_optim *self, const lt_slot *slot, int index, lt_shape *shape)
{
    (void)self, (void)slot, (void)index, (void)shape;
    return false;
}

static void what_has_no_memory_is_refused(void **state)
{
    (void)state;
    problem p;
    fixture f;
    lt_tensor *meta = NULL;
    const int64_t stride[LT_MAX_DIMS] = {3, 1};
    open_problem(&p, &plain);
    assert_ok(lt_tensor_new_meta(&meta, p.device, LT_F64, LT_SHAPE(4, 3), stride));
    assert_fails(lt_matrix_gram(p.factor, 1, 1, meta, 0, NULL), LT_E_ARG, "gram: a tensor has no");
    lt_tensor_free(&meta);
    close_problem(&p);
    const lt_optim_ops ops = {.name = "mine",
                              .bytes = sizeof(lt_optim),
                              .slot_state = {"m"},
                              .state_shape = same_shape,
                              .elementwise = true};
    fixture_open(&f, true);
    fixture_add(&f, "w", LT_SHAPE(2, 2));
    assert_fails(lt_optim_new(&f.optim, &ops, &f.list, 0, LT_DECAY_ALL), LT_E_ARG,
                 "mine: ops.elementwise excludes ops.state_shape");
    fixture_close(&f);
}

static void bad_roots_are_refused(void **state)
{
    (void)state;
    problem p;
    open_problem(&p, &plain);
    fill_factor(&p);
    lt_tensor *five = tensor_of(&p, LT_SHAPE(5, 5));
    lt_matrix_root_job job = job_of(&p, false), wrong = job_of(&p, false);
    lt_matrix_root_config c = root_config;
    wrong.out = five;
    assert_fails(lt_matrix_inverse_roots(&c, &wrong, 1, &p.scalars), LT_E_SHAPE,
                 "w: shapes [4,4] and [5,5] differ");
    wrong = job_of(&p, false);
    wrong.n = 9;
    assert_fails(lt_matrix_inverse_roots(&c, &wrong, 1, &p.scalars), LT_E_SHAPE,
                 "test: w: factor [4,4] does not fit 9 rows");
    assert_fails(lt_matrix_inverse_roots(&c, &job, 1, NULL), LT_E_ARG, "not 0 without scalars");
    c.beta2 = 2;
    assert_fails(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars), LT_E_ARG, "beta2 2 is not");
    c = root_config;
    c.exponent = 0;
    assert_fails(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars), LT_E_ARG, "test: exponent 0");
    c = root_config;
    c.epsilon = -1;
    assert_fails(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars), LT_E_ARG, "test: epsilon -1");
    c = root_config;
    c.solver = LT_ROOT_NEWTON_DB;
    c.exponent = 0.3;
    assert_fails(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars), LT_E_ARG,
                 "test: root_solver newton_db: exponent 0.3 is not 1/2 or 1/4");
    c.solver = (lt_root_solver)77;
    assert_fails(lt_matrix_inverse_roots(&c, &job, 1, &p.scalars), LT_E_ARG, "root_solver 77");
    assert_ok(lt_tensor_fill(p.factor, (double)NAN));
    p.scalars.attempt = 12;
    assert_fails(lt_matrix_inverse_roots(&root_config, &job, 1, &p.scalars), LT_E_ARG,
                 "test: w block 0, dimension 0: the factor is not finite at step 12");
    lt_tensor *values = tensor_of(&p, LT_SHAPE(4));
    assert_fails(lt_matrix_eigh(values, p.out, p.factor), LT_E_ARG, "finite");
    lt_tensor_free(&values);
    lt_tensor_free(&five);
    close_problem(&p);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction test;
    } each[] = {
        {"gram", gram_is_decayed_and_weighted},    {"mode product", product_is_along_its_dimension},
        {"copied block", block_is_copied},         {"length", rescaled_takes_the_length},
        {"inverse root", root_inverts_its_factor}, {"eigenbasis", basis_makes_its_factor_diagonal}};
    enum { ALL = COUNT_OF(rows) * COUNT_OF(each), OTHERS = 7 };
    static char name[ALL][96];
    struct CMUnitTest tests[ALL + OTHERS] = {
        cmocka_unit_test(eigenvectors_give_the_matrix),
        cmocka_unit_test(without_result_the_old_one_remains),
        cmocka_unit_test(several_factors_are_solved_at_once),
        cmocka_unit_test(skipped_step_leaves_the_output),
        cmocka_unit_test(message_names_what_does_not_fit),
        cmocka_unit_test(bad_roots_are_refused),
        cmocka_unit_test(what_has_no_memory_is_refused),
    };
    for (size_t i = 0; i < ALL; i++) {
        const row *r = &rows[i / COUNT_OF(each)];
        snprintf(name[i], sizeof name[i], "%s: %s", each[i % COUNT_OF(each)].name, r->name);
        tests[OTHERS + i] = row_test(name[i], each[i % COUNT_OF(each)].test, r);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
