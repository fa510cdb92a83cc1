/* Values of operations that move elements, and of those that take any leading dimensions, against their
 * formulas on row-major arrays. */

#include "bench.h"

enum { MOST = 512 };

/* 1, 2, 3, ... in row-major order. */
static lt_tensor *numbers(bench *b, lt_shape shape, double *values)
{
    for (int64_t i = 0; i < lt_shape_count(shape); i++)
        values[i] = (double)(i + 1);
    return tensor(b, LT_F64, shape, values);
}

static void assert_values(const lt_tensor *t, lt_shape shape, const double *want)
{
    double got[MOST];
    assert_non_null(t);
    assert_true(lt_shape_equal(lt_tensor_shape(t), shape));
    assert_ok(lt_tensor_read(t, got, lt_tensor_bytes(t)));
    for (int64_t i = 0; i < lt_shape_count(shape); i++)
        assert_near(got[i], want[i], 1e-13 * (1 + fabs(want[i])));
}

static void permute_moves_dimensions(void **state)
{
    double v[MOST], want[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3, 4, 5), v); /* stored channels-last */
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 3; c++)
            for (int h = 0; h < 4; h++)
                for (int w = 0; w < 5; w++)
                    want[((h * 2 + n) * 5 + w) * 3 + c] = v[((n * 3 + c) * 4 + h) * 5 + w];
    assert_values(lt_permute(b->tape, x, (int[]){2, 0, 3, 1}), LT_SHAPE(4, 2, 5, 3), want);
    lt_tensor *there = lt_permute(b->tape, x, (int[]){2, 0, 3, 1});
    assert_values(lt_permute(b->tape, there, (int[]){1, 3, 0, 2}), LT_SHAPE(2, 3, 4, 5), v);
}

static void permute_to_channels_last_order_shares_memory(void **state)
{
    double v[MOST], want[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3, 2, 4), v);
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < 8; i++)
                want[(n * 8 + i) * 3 + c] = v[(n * 3 + c) * 8 + i];
    assert_values(lt_permute(b->tape, x, (int[]){0, 2, 3, 1}), LT_SHAPE(2, 2, 4, 3), want);
}

static void slice_takes_neighbours(void **state)
{
    double v[MOST], want[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 4, 3), v);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 6; i++)
            want[n * 6 + i] = v[n * 12 + 3 + i];
    assert_values(lt_slice(b->tape, x, 1, 1, 2), LT_SHAPE(2, 2, 3), want);
    assert_values(lt_slice(b->tape, x, -2, 1, 2), LT_SHAPE(2, 2, 3), want);
    assert_values(lt_slice(b->tape, x, 0, 1, 1), LT_SHAPE(1, 4, 3), v + 12);
}

static void concat_joins_and_slices_take_apart(void **state)
{
    double v[MOST], w[MOST], want[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3), v), *y = numbers(b, LT_SHAPE(2, 2), w);
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < 5; i++)
            want[n * 5 + i] = i < 3 ? v[n * 3 + i] : w[n * 2 + i - 3];
    lt_tensor *all = lt_concat(b->tape, (lt_tensor *[]){x, y}, 2, -1);
    assert_values(all, LT_SHAPE(2, 5), want);
    assert_values(lt_slice(b->tape, all, 1, 3, 2), LT_SHAPE(2, 2), w);
    lt_tensor *twice = lt_concat(b->tape, (lt_tensor *[]){x, x}, 2, 0);
    assert_values(lt_slice(b->tape, twice, 0, 2, 2), LT_SHAPE(2, 3), v);
}

static void concat_converts_to_the_first_dtype(void **state)
{
    bench *b = *state;
    double v[2] = {1, 2};
    float f[3] = {3, 4, 5};
    double want[5] = {1, 2, 3, 4, 5};
    lt_tensor *x[] = {tensor(b, LT_F64, LT_SHAPE(2), v), tensor(b, LT_F32, LT_SHAPE(3), f)};
    assert_values(lt_concat(b->tape, x, 2, 0), LT_SHAPE(5), want);
}

static void expand_repeats(void **state)
{
    double v[MOST], want[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(3, 1), v);
    for (int i = 0; i < 24; i++)
        want[i] = v[i / 4 % 3];
    assert_values(lt_expand(b->tape, x, LT_SHAPE(2, 3, 4)), LT_SHAPE(2, 3, 4), want);
}

static void embedding_reads_rows(void **state)
{
    double v[MOST], want[MOST];
    int32_t ids[6] = {2, 0, 2, 3, 1, 2};
    bench *b = *state;
    lt_tensor *w = numbers(b, LT_SHAPE(4, 3), v);
    for (int i = 0; i < 18; i++)
        want[i] = v[ids[i / 3] * 3 + i % 3];
    lt_tensor *y = lt_embedding(b->tape, tensor(b, LT_I32, LT_SHAPE(2, 3), ids), w);
    assert_values(y, LT_SHAPE(2, 3, 3), want);
}

static void linear_takes_leading_dimensions(void **state)
{
    double v[MOST], u[MOST], want[MOST], turned[MOST];
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 3, 2, 4), v), *w = numbers(b, LT_SHAPE(5, 4), u);
    for (int n = 0; n < 12; n++)
        for (int k = 0; k < 5; k++) {
            want[n * 5 + k] = 0;
            for (int c = 0; c < 4; c++)
                want[n * 5 + k] += v[n * 4 + c] * u[k * 4 + c];
        }
    for (int i = 0; i < 20; i++)
        turned[i % 4 * 5 + i / 4] = u[i];
    assert_values(lt_linear(b->tape, x, w, NULL), LT_SHAPE(2, 3, 2, 5), want);
    lt_tensor *wt = tensor(b, LT_F64, LT_SHAPE(4, 5), turned);
    lt_linear_config config = {.in_out = true};
    assert_values(lt_linear_as(b->tape, x, wt, NULL, config), LT_SHAPE(2, 3, 2, 5), want);
}

/* Ignored rows have no effect; if all are ignored, the loss is 0. */
static void ignored_labels_leave_the_mean(void **state)
{
    double v[MOST], kept[MOST], with = 0, without = -1, none = -1;
    int32_t labels[4] = {1, LT_IGNORED_LABEL, LT_IGNORED_LABEL, 2}, rest[2] = {1, 2};
    int32_t nothing[2] = {LT_IGNORED_LABEL, LT_IGNORED_LABEL};
    bench *b = *state;
    lt_tensor *x = numbers(b, LT_SHAPE(2, 2, 3), v);
    memcpy(kept, v, 3 * sizeof *v);
    memcpy(kept + 3, v + 9, 3 * sizeof *v);
    kept[4] = v[10] = 7;
    assert_ok(lt_tensor_write(x, v, 12 * sizeof *v));
    lt_tensor *few = tensor(b, LT_F64, LT_SHAPE(2, 3), kept);
    lt_tensor *all = tensor(b, LT_I32, LT_SHAPE(2, 2), labels);
    assert_ok(lt_tensor_item(lt_softmax_xent(b->tape, x, all, 0.1), &with));
    lt_tensor *two = tensor(b, LT_I32, LT_SHAPE(2), rest);
    assert_ok(lt_tensor_item(lt_softmax_xent(b->tape, few, two, 0.1), &without));
    lt_tensor *gone = tensor(b, LT_I32, LT_SHAPE(2), nothing);
    assert_ok(lt_tensor_item(lt_softmax_xent(b->tape, few, gone, 0.1), &none));
    assert_near(with, without, 1e-14);
    assert_true(with > 0);
    assert_near(none, 0, 0);
}

static int open_ref_f32(void **state)
{
    return bench_open_as(state, false);
}

/* In a 16-bit pass the rows of an f32 table are rounded. */
static void embedding_has_the_dtype_of_the_pass(void **state)
{
    bench *b = *state;
    float table[4] = {1, 1.00390625F, 3, -1.01171875F}; /* two are between bf16 numbers */
    double want[4] = {3, -1.015625, 1, 1};
    int32_t ids[2] = {1, 0};
    double got[4];
    lt_pass pass = LT_PASS_EVAL;
    pass.dtype = LT_BF16;
    lt_tape_reset(b->tape, pass);
    lt_tensor *w = tensor(b, LT_F32, LT_SHAPE(2, 2), table);
    lt_tensor *y = lt_embedding(b->tape, tensor(b, LT_I32, LT_SHAPE(2), ids), w);
    assert_int_equal(lt_tensor_dtype(y), LT_BF16);
    float wide[4];
    assert_ok(lt_tensor_read(lt_cast(b->tape, y, LT_F32), wide, sizeof wide));
    for (int i = 0; i < 4; i++) {
        got[i] = (double)wide[i];
        assert_near(got[i], want[i], 0);
    }
}

int main(void)
{
#define ON_REF(f) cmocka_unit_test_setup_teardown(f, bench_open, bench_close)
    const struct CMUnitTest tests[] = {
        ON_REF(permute_moves_dimensions),
        ON_REF(permute_to_channels_last_order_shares_memory),
        ON_REF(slice_takes_neighbours),
        ON_REF(concat_joins_and_slices_take_apart),
        ON_REF(concat_converts_to_the_first_dtype),
        ON_REF(expand_repeats),
        ON_REF(embedding_reads_rows),
        ON_REF(linear_takes_leading_dimensions),
        ON_REF(ignored_labels_leave_the_mean),
        cmocka_unit_test_setup_teardown(embedding_has_the_dtype_of_the_pass, open_ref_f32,
                                        bench_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
