/* Linear layers on meshes compared with products of the whole matrices by definition, and communicated elements compared
 * with the closed forms. */

#include "full.h"
#include "mesh_ranks.h"
#include "near.h"

#include "lather/detail/mesh_cost.h"
#include "lather/ops.h"

#include <stdio.h>
#include <stdlib.h>

enum { X, W, B, DY, W2, B2 }; /* matrices; those of w are [outputs, inputs] */

typedef struct task {
    int64_t rows, in, out, last; /* last: outputs of a second layer */
    element_fn *value;
    bool bias, depth,
        wrong; /* depth: dw is summed over depth; wrong: control, an error is expected */
} task;

typedef double product_fn(const task *c, int64_t row, int64_t column);

/* y, dx, dw, db of the whole layer. */
static double y_at(const task *c, int64_t m, int64_t n)
{
    double sum = c->bias ? c->value(B, 0, n) : 0;
    for (int64_t k = 0; k < c->in; k++)
        sum += c->value(X, m, k) * c->value(W, n, k);
    return sum;
}

static double dx_at(const task *c, int64_t m, int64_t k)
{
    double sum = 0;
    for (int64_t n = 0; n < c->out; n++)
        sum += c->value(DY, m, n) * c->value(W, n, k);
    return sum;
}

static double dw_at(const task *c, int64_t n, int64_t k)
{
    double sum = 0;
    for (int64_t m = 0; m < c->rows; m++)
        sum += c->value(DY, m, n) * c->value(X, m, k);
    return sum;
}

static double db_at(const task *c, int64_t row, int64_t n)
{
    double sum = 0;
    (void)row;
    for (int64_t m = 0; m < c->rows; m++)
        sum += c->value(DY, m, n);
    return sum;
}

/* Integers: exact. Fractions in f32: relative error at most 1e-6 sqrt(terms), in the norm. */
static lt_status compare(const mesh_rank *r, const char *name, const lt_tensor *t, box b,
                         product_fn *at)
{
    const task *c = r->context;
    double *got = malloc((size_t)(b.rows * b.columns) * sizeof *got), error = 0, norm = 0;
    lt_status st = t ? read_doubles(t, got) : lt_fail(LT_E_ARG, "missing %s", name);
    for (int64_t i = 0; i < b.rows * b.columns && !st; i++) {
        const int64_t m = b.row + i / b.columns, n = b.column + i % b.columns;
        const double want = at(c, m, n), off = got[i] - want;
        error += off * off;
        norm += want * want;
        if (c->value == whole_number && !(off == 0))
            st = lt_fail(LT_E_SHAPE, "%s[%lld,%lld] is %.9g, want %.9g", name, (long long)m,
                         (long long)n, got[i], want);
    }
    free(got);
    if (!st && !(sqrt(error) <= 1e-6 * sqrt((double)c->in) * sqrt(norm)))
        st = lt_fail(LT_E_SHAPE, "%s is off by %g of %g", name, sqrt(error), sqrt(norm));
    return st;
}

/* --- Two dimensions and depth --- */

/* The loss is the sum of y * dy over all ranks. */
static lt_status backward(mesh_rank *r, lt_tensor *y, lt_tensor *dy)
{
    lt_tape_keep(r->tape, y);
    lt_tensor *loss = lt_sum(r->tape, lt_mul(r->tape, y, dy), (lt_reduce_config){0});
    LT_TRY(lt_tape_status(r->tape));
    return lt_tape_backward(r->tape, loss, 1);
}

static lt_status run_summa(mesh_rank *r, const blocks *o, lt_tensor *const t[4])
{
    const task *c = r->context;
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    lt_tensor *v[3];
    for (int i = 0; i < 3; i++)
        v[i] = lt_tape_variable(r->tape, t[i]);
    lt_tensor *y = lt_linear_summa(
        r->tape, v[X], v[W], c->bias ? v[B] : NULL,
        (lt_summa_config){.row = lt_mesh_group(r->mesh, LT_MESH_ROW),
                          .column = lt_mesh_group(r->mesh, LT_MESH_COLUMN),
                          .depth = c->depth ? lt_mesh_group(r->mesh, LT_MESH_REPLICAS) : NULL,
                          .in = c->in,
                          .out = c->out});
    LT_TRY(backward(r, y, t[DY]));
    LT_TRY(compare(r, "y", y, o->y, y_at));
    LT_TRY(compare(r, "dx", lt_tape_gradient(r->tape, v[X]), o->x, dx_at));
    LT_TRY(compare(r, "dw", lt_tape_gradient(r->tape, v[W]), o->w, dw_at));
    return c->bias ? compare(r, "db", lt_tape_gradient(r->tape, v[B]), o->b, db_at) : LT_OK;
}

static lt_status summa(mesh_rank *r)
{
    const task *c = r->context;
    const blocks o = blocks_of(r, c->rows, c->in, c->out);
    lt_tensor *t[4] = {NULL};
    lt_status st = make_box(r, &t[X], o.x, X, c->value, false);
    if (!st)
        st = make_box(r, &t[W], o.w, W, c->value, false);
    if (!st)
        st = make_box(r, &t[B], o.b, B, c->value, true);
    if (!st)
        st = make_box(r, &t[DY], o.y, DY, c->value, false);
    if (!st)
        st = run_summa(r, &o, t);
    for (int i = 0; i < 4; i++)
        lt_tensor_free(&t[i]);
    return st;
}

static void play(lt_mesh_config g, task c, lt_status (*fn)(mesh_rank *), uint64_t *bytes)
{
    char why[MESH_WHY];
    g.force = true;
    const mesh_rank model = {.config = &g, .context = &c, .fn = fn};
    const int ranks = g.data * g.depth * g.rows * g.columns;
    lt_status st = play_mesh(ranks, false, model, bytes, why);
    if (!c.wrong && st)
        fail_msg("%d x %d x %d x %d, %lld rows, %lld inputs, %lld outputs: %s", g.data, g.depth,
                 g.rows, g.columns, (long long)c.rows, (long long)c.in, (long long)c.out, why);
    if (c.wrong && !(st && strstr(why, "dw[")))
        fail_msg("a wrong gradient is not found, but: '%s'", why);
}

static const int sizes[] = {1, 2, 4, 8, 9, 12, 16, 18, 27};

/* Calls fn for every mesh of that many ranks with a square grid. */
static void each_grid(int ranks, void (*fn)(lt_mesh_config g))
{
    for (int q = 1; q * q <= ranks; q++)
        for (int depth = 1; depth * q * q <= ranks; depth++)
            if (ranks % (q * q * depth) == 0)
                fn((lt_mesh_config){ranks / (q * q * depth), depth, q, q, false});
}

/* Sizes that the grid divides evenly, and others. */
static lt_status even_and_uneven(mesh_rank *r)
{
    const task *any = r->context;
    const lt_mesh_config g = lt_mesh_config_of(r->mesh);
    const int parts = g.data * g.depth * g.rows;
    task even = *any, uneven = *any;
    even.rows = 2 * parts, even.in = 3 * g.columns, even.out = 2 * g.columns;
    uneven.rows = parts + 2, uneven.in = 7, uneven.out = 5;
    r->context = &even;
    lt_status st = summa(r);
    r->context = &uneven;
    if (!st)
        st = summa(r);
    r->context = any;
    return st;
}

static void play_sizes(lt_mesh_config g)
{
    play(g, (task){.value = whole_number, .bias = true, .depth = true}, even_and_uneven, NULL);
}

static void equal_serial(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        each_grid(sizes[i], play_sizes);
}

static void near_in_f32(void **state)
{
    (void)state;
    const task c = {37, 129, 61, 0, fraction, true, true, false};
    play((lt_mesh_config){1, 2, 2, 2, false}, c, summa, NULL);
    play((lt_mesh_config){2, 1, 3, 3, false}, c, summa, NULL);
}

/* Control: without its sum over depth the gradient of w lacks the rows of the other depths. */
static void depth_is_summed(void **state)
{
    (void)state;
    const task c = {8, 4, 4, 0, whole_number, false, false, true};
    play((lt_mesh_config){1, 2, 2, 2, false}, c, summa, NULL);
}

/* --- Communicated elements --- */

static void count_formula(lt_mesh_config g)
{
    const task c = {g.depth * g.rows + 3, 9, 6, 0, whole_number, false, true, false};
    lt_mesh_cost cost;
    uint64_t bytes;
    if (g.data > 1)
        return;
    play(g, c, summa, &bytes);
    g.force = true;
    assert_ok(lt_mesh_cost_linear(&cost, &g, (double)c.rows, (double)c.in, (double)c.out));
    if (g.rows > 1) { /* 3(q-1)(MC + dCK) + 2(d-1)CK */
        const int64_t q = g.rows, d = g.depth, weights = c.in * c.out;
        const int64_t want = 3 * (q - 1) * (c.rows * c.in + d * weights) + 2 * (d - 1) * weights;
        assert_int_equal(bytes, 4 * want);
    }
    assert_near((double)bytes, 4 * (cost.forward + cost.dx + cost.dw + cost.depth), 0);
}

static void count(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        each_grid(sizes[i], count_formula);
}

/* Bytes of the four products of a transformer's layer. */
static double layer_bytes(lt_mesh_config g, int64_t rows, int64_t h)
{
    static const int product[][2] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
    uint64_t sum = 0, bytes;
    double cost;
    for (size_t i = 0; i < COUNT_OF(product); i++) {
        const task c = {rows, product[i][0] * h, product[i][1] * h, 0, whole_number, false, true,
                        false};
        play(g, c, summa, &bytes);
        sum += bytes;
    }
    assert_ok(lt_mesh_cost_layer(&cost, &g, (double)rows, (double)h));
    assert_near((double)sum, 4 * cost * g.depth * g.rows * g.columns, 1e-9 * (double)sum);
    return (double)sum;
}

/* The published ratio is 1.45 at 64 ranks; the formulas give it at 8.6 rows per feature, on 16 ranks at 6.3. */
static void ratio(int flat, int deep, int depth, int64_t rows, int64_t h)
{
    const double two = layer_bytes((lt_mesh_config){1, 1, flat, flat, false}, rows, h);
    const double with_depth = layer_bytes((lt_mesh_config){1, depth, deep, deep, true}, rows, h);
    printf("%d x %d: %.0f bytes, %d x %d x %d: %.0f, ratio %.4f\n", flat, flat, two, deep, deep,
           depth, with_depth, two / with_depth);
    assert_near(two / with_depth, 1.45, 0.0145);
}

static void ratio_16(void **state)
{
    (void)state;
    ratio(4, 2, 4, 101, 16);
}

static void ratio_64(void **state)
{
    (void)state;
    ratio(8, 4, 4, 138, 16);
}

/* --- 1-D: all-gather, product, product, reduce-scatter --- */

static double hidden_at(const task *c, int64_t m, int64_t n)
{
    return y_at(c, m, n);
}

static double last_at(const task *c, int64_t m, int64_t n)
{
    double sum = c->value(B2, 0, n);
    for (int64_t k = 0; k < c->out; k++)
        sum += hidden_at(c, m, k) * c->value(W2, n, k);
    return sum;
}

static double dhidden_at(const task *c, int64_t m, int64_t k)
{
    double sum = 0;
    for (int64_t n = 0; n < c->last; n++)
        sum += c->value(DY, m, n) * c->value(W2, n, k);
    return sum;
}

static double dfirst_at(const task *c, int64_t m, int64_t k)
{
    double sum = 0;
    for (int64_t n = 0; n < c->out; n++)
        sum += dhidden_at(c, m, n) * c->value(W, n, k);
    return sum;
}

static double dw1_at(const task *c, int64_t n, int64_t k)
{
    double sum = 0;
    for (int64_t m = 0; m < c->rows; m++)
        sum += dhidden_at(c, m, n) * c->value(X, m, k);
    return sum;
}

static double db1_at(const task *c, int64_t row, int64_t n)
{
    double sum = 0;
    (void)row;
    for (int64_t m = 0; m < c->rows; m++)
        sum += dhidden_at(c, m, n);
    return sum;
}

static double dw2_at(const task *c, int64_t n, int64_t k)
{
    double sum = 0;
    for (int64_t m = 0; m < c->rows; m++)
        sum += c->value(DY, m, n) * hidden_at(c, m, k);
    return sum;
}

static lt_status run_mlp(mesh_rank *r, const box b[6], lt_tensor *const t[6])
{
    static product_fn *const gradient[] = {dfirst_at, dw1_at, db1_at, NULL, dw2_at, db_at};
    static const char *const name[] = {"dx", "dw1", "db1", "", "dw2", "db2"};
    const task *c = r->context;
    lt_process_group *row = lt_mesh_group(r->mesh, LT_MESH_ROW);
    lt_tensor *v[6];
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    for (int i = 0; i < 6; i++)
        v[i] = lt_tape_variable(r->tape, t[i]);
    lt_tensor *hidden = lt_linear_column_parallel(r->tape, v[X], v[W], v[B], row, c->rows);
    lt_tensor *y = lt_linear_row_parallel(r->tape, hidden, v[W2], v[B2], row);
    LT_TRY(backward(r, y, t[DY]));
    LT_TRY(compare(r, "y", y, b[DY], last_at));
    for (int i = 0; i < 6; i++)
        if (gradient[i])
            LT_TRY(compare(r, name[i], lt_tape_gradient(r->tape, v[i]), b[i], gradient[i]));
    return LT_OK;
}

static lt_status mlp(mesh_rank *r)
{
    const task *c = r->context;
    const int t = lt_mesh_config_of(r->mesh).columns;
    lt_tensor *tensor[6] = {NULL};
    int64_t row, rows, unit, units;
    cut(c->rows, t, r->j, &row, &rows);
    cut(c->out, t, r->j, &unit, &units);
    const box b[6] = {[X] = {row, rows, 0, c->in},      [W] = {unit, units, 0, c->in},
                      [B] = {0, 1, unit, units},        [DY] = {row, rows, 0, c->last},
                      [W2] = {0, c->last, unit, units}, [B2] = {0, 1, 0, c->last}};
    lt_status st = LT_OK;
    for (int i = 0; i < 6 && !st; i++)
        st = make_box(r, &tensor[i], b[i], i, c->value, i == B || i == B2);
    if (!st)
        st = run_mlp(r, b, tensor);
    for (int i = 0; i < 6; i++)
        lt_tensor_free(&tensor[i]);
    return st;
}

/* Bytes: per layer 2(t-1)M times the features, each way, and the second layer's bias. */
static void equal_serial_1d(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const int t = sizes[i];
        const task c = {t + 3, 4, t + 1, 3, whole_number, true, true, false};
        uint64_t bytes;
        play((lt_mesh_config){1, 1, 1, t, false}, c, mlp, &bytes);
        assert_int_equal(bytes, 4 * (uint64_t)(t - 1)
                                    * (uint64_t)(2 * c.rows * (c.in + c.last) + 2 * c.last));
    }
}

/* --- Overlap with products --- */

/* A group of 3 whose collectives transfer nothing. */
typedef struct lonely {
    lt_process_group base;
    int begun, waited, most; /* most: maximum in flight */
} lonely;

static lt_status begin_alone(lt_process_group *self, const lt_collective_call *call, void **request)
{
    lonely *l = (lonely *)self;
    if (call->what == LT_COLLECTIVE_REDUCE && call->out.data)
        memcpy(call->out.data, call->in.data,
               (size_t)lt_shape_count(call->in.shape) * lt_dtype_size(call->in.dtype));
    l->begun++;
    l->most = l->begun - l->waited > l->most ? l->begun - l->waited : l->most;
    *request = l;
    return LT_OK;
}

static lt_status wait_alone(lt_process_group *self, void **request)
{
    ((lonely *)self)->waited += *request != NULL;
    *request = NULL;
    return LT_OK;
}

/* Counts the requests in flight in a 1-D layer, forward and backward. */
static lt_status flights(mesh_rank *r)
{
    lonely one = {.base = {1, 3, begin_alone, wait_alone}}, two = one;
    lt_tensor *x = NULL, *y = NULL;
    LT_TRY(make_box(r, &x, (box){0, 2, 0, 2}, X, whole_number, false));
    LT_TRY(make_box(r, &y, (box){0, 6, 0, 2}, X, whole_number, false));
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    lt_tensor *v = lt_tape_variable(r->tape, x), *w = lt_tape_variable(r->tape, y);
    lt_tensor *h = lt_linear_column_parallel(r->tape, v, x, NULL, &one.base, 6);
    const int gathered = one.most;
    lt_tensor *z = lt_linear_row_parallel(r->tape, w, x, NULL, &two.base);
    const int scattered = two.most;
    one.most = two.most = 0;
    lt_tensor *loss = lt_add(r->tape, lt_sum(r->tape, h, (lt_reduce_config){0}),
                             lt_sum(r->tape, z, (lt_reduce_config){0}));
    lt_status st = lt_tape_status(r->tape);
    if (!st)
        st = lt_tape_backward(r->tape, loss, 1);
    lt_tape_reset(r->tape, LT_PASS_EVAL);
    lt_tensor_free(&x);
    lt_tensor_free(&y);
    if (!st && (gathered != 3 || scattered != 3 || one.most != 3 || two.most != 3))
        st = lt_fail(LT_E_ARG, "in flight, want 3: %d, %d; backward %d, %d", gathered, scattered,
                     one.most, two.most);
    if (!st && (one.begun != one.waited || two.begun != two.waited || one.begun != 6))
        st = lt_fail(LT_E_ARG, "%d and %d begun, %d and %d waited for", one.begun, two.begun,
                     one.waited, two.waited);
    return st;
}

static void requests_are_in_flight_together(void **state)
{
    (void)state;
    play((lt_mesh_config){1, 1, 1, 1, false}, (task){.value = whole_number}, flights, NULL);
}

/* --- Invalid arguments --- */

static lt_status wrong_shapes(mesh_rank *r)
{
    const task *c = r->context;
    lt_tensor *x = NULL;
    LT_TRY(make_box(r, &x, (box){0, 2, 0, 3}, X, c->value, false));
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    lt_process_group *row = lt_mesh_group(r->mesh, LT_MESH_ROW);
    const lt_summa_config config = {row, lt_mesh_group(r->mesh, LT_MESH_COLUMN), NULL, 9, 4, false};
    lt_status st = lt_linear_summa(r->tape, x, x, NULL, config) ? LT_OK : lt_tape_status(r->tape);
    char place[64];
    snprintf(place, sizeof place, "at row %d, column %d of 2 x 2 ranks, want [..,",
             config.column->rank, row->rank);
    const bool named = st == LT_E_SHAPE && strstr(lt_error_message(), place);
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    st = lt_group_allgather(r->tape, x, row, 7) ? LT_OK : lt_tape_status(r->tape);
    const bool rows = st == LT_E_SHAPE && strstr(lt_error_message(), "of the 7 rows");
    lt_tape_reset(r->tape, LT_PASS_TRAIN);
    st = lt_linear_column_parallel(r->tape, x, x, NULL, row, 7) ? LT_OK : lt_tape_status(r->tape);
    const bool pieces = st == LT_E_SHAPE && strstr(lt_error_message(), "7 rows in all");
    lt_tensor_free(&x);
    return named && rows && pieces
               ? LT_OK
               : lt_fail(LT_E_ARG, "wrong shapes: %d %d %d", named, rows, pieces);
}

static void refuse(void **state)
{
    (void)state;
    play((lt_mesh_config){1, 1, 2, 2, false}, (task){.value = whole_number}, wrong_shapes, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"grids with depth: y, dx, dw, db equal one rank's exactly", equal_serial, NULL, NULL,
         NULL},
        {"1-D: results equal one rank's, and bytes the formula", equal_serial_1d, NULL, NULL, NULL},
        {"f32 results are close to those in double", near_in_f32, NULL, NULL, NULL},
        {"control: a gradient that is not summed over depth is found", depth_is_summed, NULL, NULL,
         NULL},
        {"elements sent equal 3(q-1)(MC + dCK) + 2(d-1)CK", count, NULL, NULL, NULL},
        {"16 ranks: 2-D sends 1.45 times as much as depth 4", ratio_16, NULL, NULL, NULL},
        {"1-D: all requests are in flight during the first product",
         requests_are_in_flight_together, NULL, NULL, NULL},
        {"invalid shapes are named", refuse, NULL, NULL, NULL},
        /* The last row runs in ./check --full only. */
        {"64 ranks: 2-D sends 1.45 times as much as depth 4", ratio_64, NULL, NULL, NULL},
    };
    return _cmocka_run_group_tests("mesh linear", tests, COUNT_OF(tests) - !test_full(), NULL,
                                   NULL);
}
