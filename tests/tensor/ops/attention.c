/* Attention against its formula composed of products and softmax, values and gradients; rotary positions
 * against their property; inputs that both reject. */

#include "base/rng.h"
#include "bench.h"

enum { MOST = 4096 };

static void draw(lt_rng *rng, double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = 2 * lt_rng_uniform(rng) - 1;
}

/* Copies [T,d] of head h of image n out of x [B,T,heads*d], and back. */
static void gather(const double *x, const int64_t s[4], int64_t n, int64_t h, double *to)
{
    for (int64_t i = 0; i < s[1]; i++)
        for (int64_t c = 0; c < s[3]; c++)
            to[i * s[3] + c] = x[((n * s[1] + i) * s[2] + h) * s[3] + c];
}

static void add_back(const double *from, const int64_t s[4], int64_t n, int64_t h, double *x)
{
    for (int64_t i = 0; i < s[1]; i++)
        for (int64_t c = 0; c < s[3]; c++)
            x[((n * s[1] + i) * s[2] + h) * s[3] + c] += from[i * s[3] + c];
}

typedef struct attention_row {
    const char *name;
    int64_t batch, queries, keys, d;
    lt_attention_config config;
    double other_scale; /* scale of the composed form: a control that must differ; 0: the same */
} attention_row;

/* A head's operands: q, k, v, and the gradient of y. */
enum { Q, K, V, DY, OPERANDS };

static lt_tensor *mask(bench *b, const attention_row *r)
{
    double values[MOST];
    for (int64_t i = 0; i < r->queries; i++)
        for (int64_t j = 0; j < r->keys; j++) {
            const int64_t more = r->config.lower_right ? r->keys - r->queries : 0;
            const bool seen = !r->config.causal || j <= i + more;
            values[i * r->keys + j] = seen ? 0 : -1e30;
        }
    return tensor(b, LT_F64, LT_SHAPE(r->queries, r->keys), values);
}

/* All heads: shapes [B,T,heads,d], operands, and the expected results. */
typedef struct all_heads {
    int64_t shape[OPERANDS][4];
    double *x[OPERANDS], *y, *dx[OPERANDS];
} all_heads;

/* Computes y and gradients of one head from other operations, added at the head's position. */
static void compose(bench *b, const attention_row *r, const all_heads *all, int64_t n, int64_t h)
{
    double part[MOST];
    lt_tensor *in[OPERANDS];
    const int64_t g = h / (r->config.heads / r->config.kv_heads);
    const double scale = r->other_scale > 0 ? r->other_scale : r->config.scale;
    for (int i = Q; i < OPERANDS; i++) {
        gather(all->x[i], all->shape[i], n, i == K || i == V ? g : h, part);
        in[i] = tensor(b, LT_F64, LT_SHAPE(all->shape[i][1], r->d), part);
        if (i != DY)
            in[i] = lt_tape_variable(b->tape, in[i]);
    }
    lt_tensor *scores = lt_matmul(b->tape, in[Q], in[K], (lt_matmul_config){.transpose_b = true});
    scores = lt_add(b->tape, lt_scale(b->tape, scores, scale), mask(b, r));
    lt_tensor *out = lt_matmul(b->tape, lt_softmax(b->tape, scores), in[V],
                               (lt_matmul_config){.transpose_b = false});
    assert_non_null(out);
    lt_tape_keep(b->tape, out);
    lt_tensor *loss = lt_sum(b->tape, lt_mul(b->tape, out, in[DY]), (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(b->tape, loss, 1));
    assert_ok(lt_tensor_read(out, part, lt_tensor_bytes(out)));
    add_back(part, all->shape[Q], n, h, all->y);
    for (int i = Q; i <= V; i++) {
        lt_tensor *grad = lt_tape_gradient(b->tape, in[i]);
        assert_non_null(grad);
        assert_ok(lt_tensor_read(grad, part, lt_tensor_bytes(grad)));
        add_back(part, all->shape[i], n, i == Q ? h : g, all->dx[i]);
    }
    lt_tape_reset(b->tape, LT_PASS_TRAIN);
}

static double largest_difference(const double *a, const double *c, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fabs(a[i] - c[i]) <= most ? most : fabs(a[i] - c[i]);
    return most;
}

/* Runs lt_attention(); returns the largest difference from y and dx. */
static double compare(bench *b, const attention_row *r, const all_heads *all)
{
    double got[MOST], most;
    lt_tensor *in[OPERANDS];
    for (int i = Q; i < OPERANDS; i++) {
        const int64_t *s = all->shape[i];
        in[i] = tensor(b, LT_F64, LT_SHAPE(s[0], s[1], s[2] * s[3]), all->x[i]);
        if (i != DY)
            in[i] = lt_tape_variable(b->tape, in[i]);
    }
    lt_tensor *out = lt_attention(b->tape, in[Q], in[K], in[V], r->config);
    assert_ok(lt_tape_status(b->tape));
    lt_tape_keep(b->tape, out);
    lt_tensor *loss = lt_sum(b->tape, lt_mul(b->tape, out, in[DY]), (lt_reduce_config){.dims = 0});
    assert_ok(lt_tape_backward(b->tape, loss, 1));
    assert_ok(lt_tensor_read(out, got, lt_tensor_bytes(out)));
    most = largest_difference(got, all->y, lt_tensor_count(out));
    for (int i = Q; i <= V; i++) {
        assert_ok(lt_tensor_read(lt_tape_gradient(b->tape, in[i]), got, lt_tensor_bytes(in[i])));
        const double apart = largest_difference(got, all->dx[i], lt_tensor_count(in[i]));
        most = apart <= most ? most : apart;
    }
    return most;
}

static const attention_row rows[] = {
    {"one token", 2, 1, 1, 3, {2, 2, false, 1, false}, 0},
    {"odd T", 2, 5, 5, 3, {2, 2, false, 0.6, false}, 0},
    {"odd T, causal", 2, 7, 7, 4, {3, 3, true, 0.5, false}, 0},
    {"fewer queries, causal", 1, 3, 9, 4, {2, 2, true, 0.5, true}, 0},
    {"fewer queries, causal from the upper left", 2, 3, 9, 4, {2, 2, true, 0.5, false}, 0},
    {"fewer keys", 1, 9, 3, 4, {2, 2, false, 0.5, false}, 0},
    {"one head of k and v for three", 1, 5, 5, 4, {3, 1, false, 0.5, false}, 0},
    {"two heads of k and v for four, causal", 2, 5, 6, 2, {4, 2, true, 0.7, true}, 0},
    {"one query", 1, 1, 17, 8, {2, 1, true, 0.3, true}, 0},
    {"control: another scale", 1, 5, 5, 4, {2, 2, true, 0.5, false}, 0.5000001},
};

static void draw_row(lt_rng *rng, const attention_row *r, all_heads *all)
{
    static double values[OPERANDS][MOST], grads[OPERANDS][MOST], y[MOST];
    for (int i = Q; i < OPERANDS; i++) {
        const bool of_keys = i == K || i == V;
        const int64_t shape[] = {r->batch, of_keys ? r->keys : r->queries,
                                 of_keys ? r->config.kv_heads : r->config.heads, r->d};
        memcpy(all->shape[i], shape, sizeof shape);
        all->x[i] = values[i];
        all->dx[i] = grads[i];
        draw(rng, all->x[i], MOST);
        memset(all->dx[i], 0, sizeof grads[i]);
    }
    all->y = y;
    memset(y, 0, sizeof y);
}

static void free_tensors(bench *b)
{
    while (b->count)
        lt_tensor_free(&b->made[--b->count]);
}

static void equals_the_composed_form(void **state)
{
    bench *b = *state;
    lt_rng rng = {.key = 11};
    for (size_t n = 0; n < COUNT_OF(rows); n++) {
        const attention_row *r = &rows[n];
        all_heads all;
        draw_row(&rng, r, &all);
        for (int64_t i = 0; i < r->batch * r->config.heads; i++) {
            compose(b, r, &all, i / r->config.heads, i % r->config.heads);
            free_tensors(b);
        }
        const double apart = compare(b, r, &all);
        lt_tape_reset(b->tape, LT_PASS_TRAIN);
        free_tensors(b);
        if ((apart <= 1e-13) != (r->other_scale == 0))
            fail_msg("%s: apart by %g", r->name, apart);
    }
}

/* Returns the error of v's gradient in f32, with scores of about `size`, relative to its largest element in
 * double. */
static double error_at(const char *device, double size)
{
    enum { T = 64, D = 16, COUNT = T * D };
    double x[4][COUNT], dv[2][COUNT], worst = 0, most = 0;
    lt_rng rng = {.key = 5};
    for (int i = Q; i <= DY; i++)
        for (int j = 0; j < COUNT; j++) /* f32 numbers */
            x[i][j] = (double)(float)((2 * lt_rng_uniform(&rng) - 1) * (i <= K ? sqrt(size) : 1.0));
    for (int f64 = 0; f64 < 2; f64++) {
        lt_device *d = NULL;
        lt_tape *tape = NULL;
        lt_tensor *t[4] = {NULL}, *in[4];
        assert_ok(lt_device_open(&d, f64 ? "ref" : device, &(lt_device_config){.f64 = f64}));
        assert_ok(lt_tape_new(&tape, d));
        lt_tape_reset(tape, LT_PASS_TRAIN);
        for (int i = Q; i <= DY; i++) {
            lt_tensor *wide = NULL;
            assert_ok(lt_tensor_new(&t[i], d, f64 ? LT_F64 : LT_F32, LT_SHAPE(1, T, D)));
            assert_ok(lt_tensor_new(&wide, d, LT_F64, LT_SHAPE(1, T, D)));
            assert_ok(lt_tensor_write(wide, x[i], sizeof x[i]));
            assert_ok(lt_tensor_copy(t[i], wide));
            lt_tensor_free(&wide);
            in[i] = i == DY ? t[i] : lt_tape_variable(tape, t[i]);
        }
        lt_tensor *y = lt_attention(tape, in[Q], in[K], in[V], (lt_attention_config){.heads = 1});
        lt_tensor *loss = lt_sum(tape, lt_mul(tape, y, in[DY]), (lt_reduce_config){.dims = 0});
        assert_ok(lt_tape_backward(tape, loss, 1));
        lt_tensor *wide = NULL;
        assert_ok(lt_tensor_new(&wide, d, LT_F64, LT_SHAPE(1, T, D)));
        assert_ok(lt_tensor_copy(wide, lt_tape_gradient(tape, in[V])));
        assert_ok(lt_tensor_read(wide, dv[f64], sizeof dv[f64]));
        lt_tensor_free(&wide);
        lt_tape_free(&tape);
        for (int i = Q; i <= DY; i++)
            lt_tensor_free(&t[i]);
        lt_device_close(&d);
    }
    for (int j = 0; j < COUNT; j++) {
        most = fmax(most, fabs(dv[1][j]));
        worst = fabs(dv[0][j] - dv[1][j]) <= worst ? worst : fabs(dv[0][j] - dv[1][j]);
    }
    return worst / most;
}

/* PyTorch's fused kernel has 3e-7, 3e-6, 1e-5, 5e-8, 5e-8. The log-sum has the scores' magnitude, and its
 * rounding matters if several scores are close to the largest; with a single one, as for the last two sizes,
 * nothing is lost. */
static void large_scores_keep_their_digits(void **state)
{
    (void)state;
    static const double bounds[][2] = {
        {1, 1e-6}, {200, 5e-6}, {1800, 6e-5}, {2e6, 2e-7}, {2e8, 2e-7}};
    for (size_t i = 0; i < COUNT_OF(bounds); i++) {
        const double cpu = error_at("cpu", bounds[i][0]), ref = error_at("ref", bounds[i][0]);
        if (!(cpu <= bounds[i][1]) || !(ref <= bounds[i][1]))
            fail_msg("scores of %g: %g on cpu, %g on ref", bounds[i][0], cpu, ref);
    }
}

/* Products of rotated rows depend only on the distance of their positions. */
static void rotary_keeps_products_of_equal_distance(void **state)
{
    bench *b = *state;
    lt_rng rng = {.key = 11};
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        double x[24], y[24], product[2] = {0};
        draw(&rng, x, 12);
        memcpy(x + 12, x, 12 * sizeof *x); /* rows 0 and 1, then the same 5 positions later */
        for (int i = 0; i < 2; i++) {
            const lt_rotary_config config = {
                .heads = 1, .first = 5 * i, .interleaved = interleaved};
            lt_tensor *out = lt_rotary(
                b->tape, tensor(b, LT_F64, LT_SHAPE(1, 2, 6), x + (ptrdiff_t)12 * i), config);
            assert_ok(lt_tape_status(b->tape));
            assert_ok(lt_tensor_read(out, y + (ptrdiff_t)12 * i, 12 * sizeof *y));
            for (int c = 0; c < 6; c++)
                product[i] += y[12 * i + c] * y[12 * i + 6 + c];
        }
        assert_near(product[0], product[1], 1e-14);
        assert_true(fabs(y[6] - y[18]) > 1e-3); /* though the rows themselves differ */
        for (int c = 0; c < 6; c++)
            assert_near(y[c], x[c], 0); /* position 0 is unchanged */
    }
}

typedef struct bad_row {
    lt_shape q, k, v;
    lt_attention_config config;
    lt_status want;
    const char *message;
} bad_row;

#define NONE       \
    {              \
        .ndim = -1 \
    }
#define ROW(...)        \
    {                   \
        3,              \
        {               \
            __VA_ARGS__ \
        }               \
    }
/* clang-format off */
static const bad_row bad[] = {
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 4}, LT_E_SHAPE, "q [2,3,6], want [B,T,C] with C a multiple of 4"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 0}, LT_E_ARG, "0 heads"},
    {ROW(2, 3, 6), ROW(2, 3, 4), ROW(2, 3, 4), {.heads = 3, .kv_heads = 2}, LT_E_ARG, "got 3 heads and 2 kv_heads"},
    {ROW(2, 3, 6), ROW(2, 3, 6), NONE, {.heads = 2}, LT_E_ARG, "v is NULL"},
    {ROW(2, 3, 6), NONE, ROW(2, 3, 6), {.heads = 2}, LT_E_ARG, "k is NULL"},
    {ROW(2, 3, 6), ROW(2, 3, 4), ROW(2, 3, 4), {.heads = 2}, LT_E_SHAPE, "k [2,3,4], v [2,3,4], want both [2,T,6]"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 4, 6), {.heads = 2}, LT_E_SHAPE, "v [2,4,6]"},
    {ROW(2, 3, 6), ROW(1, 3, 6), ROW(1, 3, 6), {.heads = 2}, LT_E_SHAPE, "want both [2,T,6]"},
    {ROW(2, 3, 6), ROW(2, 2, 6), ROW(2, 2, 6), {.heads = 2, .causal = true}, LT_E_SHAPE, "2 keys for 3 queries"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 2, .scale = -1}, LT_E_ARG, "scale -1"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 2, .scale = (double)INFINITY}, LT_E_ARG, "scale inf"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 2, .kv_heads = -1}, LT_E_ARG, "got 2 heads and -1 kv_heads"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 2, .kv_heads = 4}, LT_E_ARG, "got 2 heads and 4 kv_heads"},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 1, .kv_heads = 1, .scale = 1e-300}, LT_OK, ""},
    {ROW(2, 3, 6), ROW(2, 3, 6), ROW(2, 3, 6), {.heads = 6, .kv_heads = 6}, LT_OK, ""},
    {ROW(2, 3, 6), ROW(2, 3, 1), ROW(2, 3, 1), {.heads = 6, .kv_heads = 1}, LT_OK, ""},
    {ROW(2, 3, 8), NONE, NONE, {.heads = 2}, LT_E_SHAPE, "packed q, k and v [2,3,8], want [B,T,C] with C a multiple of 6"},
    {{2, {3, 6}}, NONE, NONE, {.heads = 2}, LT_E_SHAPE, "packed q, k and v [3,6]"},
};
/* clang-format on */

static void refuses_what_does_not_fit(void **state)
{
    bench *b = *state;
    const double zeros[64] = {0};
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        const lt_shape shape[] = {bad[i].q, bad[i].k, bad[i].v};
        lt_tensor *x[3] = {NULL};
        for (int n = 0; n < 3; n++)
            if (shape[n].ndim >= 0)
                x[n] = tensor(b, LT_F64, shape[n], zeros);
        const bool made = lt_attention(b->tape, x[0], x[1], x[2], bad[i].config) != NULL;
        assert_int_equal(made, !bad[i].want);
        assert_int_equal(lt_tape_status(b->tape), bad[i].want);
        assert_true(made || strstr(lt_error_message(), bad[i].message));
        lt_tape_reset(b->tape, LT_PASS_TRAIN);
    }
}

static void rotary_refuses_what_does_not_fit(void **state)
{
    bench *b = *state;
    const double zeros[18] = {0};
    lt_tensor *x = tensor(b, LT_F64, LT_SHAPE(1, 3, 6), zeros);
    assert_null(lt_rotary(b->tape, x, (lt_rotary_config){.heads = 2}));
    assert_fails(lt_tape_status(b->tape), LT_E_SHAPE,
                 "x [1,3,6], want [B,T,C] with C a multiple of 4");
    lt_tape_reset(b->tape, LT_PASS_TRAIN);
    assert_null(lt_rotary(b->tape, x, (lt_rotary_config){.heads = 1, .first = -1}));
    assert_fails(lt_tape_status(b->tape), LT_E_ARG, "first position -1");
    lt_tape_reset(b->tape, LT_PASS_TRAIN);
    assert_null(lt_rotary(b->tape, x, (lt_rotary_config){.heads = 1, .base = -2}));
    assert_fails(lt_tape_status(b->tape), LT_E_ARG, "base -2");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, bench_open, bench_close)
    const struct CMUnitTest tests[] = {
        TEST(equals_the_composed_form),
        TEST(rotary_keeps_products_of_equal_distance),
        cmocka_unit_test(large_scores_keep_their_digits),
        TEST(refuses_what_does_not_fit),
        TEST(rotary_refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
