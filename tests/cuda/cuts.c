/* How kernels cut their work: each element belongs to exactly one thread and lies where it should. */

#include "base/rng.h"
#include "near.h"
#include "tensor/backend/cuda/kernels/optim.h"
#include "tensor/backend/cuda/kernels/vec.h"
#include "tensor/backend/cuda/kernels/window.h"
#include "tensor/backend/cuda/norm_sums.h"
#include "tensor/backend/cuda/rows.h"
#include "tensor/backend/cuda/strided_iter.h"

#include <stdlib.h>
#include <string.h>

/* A view of random extents and strides of a permutation of its dimensions, with gaps. */
static lt_view random_view(lt_rng *rng, lt_shape shape)
{
    lt_view v = {.dtype = LT_F32, .shape = shape};
    bool used[LT_MAX_DIMS] = {false};
    for (int64_t step = 1, left = shape.ndim; left > 0; left--) {
        int d = (int)lt_rng_below(rng, (uint32_t)shape.ndim);
        while (used[d])
            d = (d + 1) % shape.ndim;
        used[d] = true;
        v.stride[d] = lt_rng_below(rng, 8) ? step : 0; /* sometimes a repeated dimension */
        step *= shape.dim[d] + (lt_rng_below(rng, 4) == 0);
    }
    return v;
}

static lt_shape random_shape(lt_rng *rng)
{
    lt_shape s = {.ndim = (int)lt_rng_below(rng, LT_MAX_DIMS + 1)};
    for (int d = 0; d < s.ndim; d++)
        s.dim[d] = 1 + lt_rng_below(rng, 5);
    return s;
}

/* Returns the offset in memory of row-major element i of a view. */
static int64_t place(const lt_view *v, int64_t i)
{
    int64_t at = 0;
    for (int d = v->shape.ndim - 1; d >= 0; d--) {
        at += i % v->shape.dim[d] * v->stride[d];
        i /= v->shape.dim[d];
    }
    return at;
}

static void logical_walks_are_in_order(void **state)
{
    (void)state;
    lt_rng rng = {.key = 11};
    for (int round = 0; round < 300; round++) {
        const lt_shape shape = random_shape(&rng);
        const lt_view a = random_view(&rng, shape), b = random_view(&rng, shape);
        const lt_view *const views[] = {&a, &b};
        lt_iter w;
        lt_iter_logical_order(&w, views, 2);
        assert_int_equal(w.count, lt_shape_count(a.shape));
        for (int64_t i = 0; i < w.count; i++) {
            int64_t at[LT_ITER_OPERANDS];
            lt_iter_offsets(&w, i, at);
            assert_int_equal(at[0], place(&a, i));
            assert_int_equal(at[1], place(&b, i));
        }
    }
}

/* A pair of places as one number, for counting. */
static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void walks_meet_the_same_pairs(void **state)
{
    (void)state;
    enum { MOST = 4096, FACTOR = 1 << 20 };
    static int64_t got[MOST], want[MOST];
    lt_rng rng = {.key = 12};
    for (int round = 0; round < 300; round++) {
        const lt_shape shape = random_shape(&rng);
        const lt_view a = random_view(&rng, shape), b = random_view(&rng, shape);
        const lt_view *const views[] = {&a, &b};
        lt_iter w;
        lt_iter_memory_order(&w, views, 2);
        for (int64_t i = 0; i < w.count; i++) {
            int64_t at[LT_ITER_OPERANDS];
            lt_iter_offsets(&w, i, at);
            got[i] = at[0] * FACTOR + at[1];
            want[i] = place(&a, i) * FACTOR + place(&b, i);
        }
        qsort(got, (size_t)w.count, sizeof *got, compare);
        qsort(want, (size_t)w.count, sizeof *want, compare);
        assert_memory_equal(got, want, (size_t)w.count * sizeof *got);
    }
}

static void dense_views_are_one_run(void **state)
{
    (void)state;
    const lt_view nhwc = {.shape = LT_SHAPE(2, 5, 3, 4), .stride = {60, 1, 20, 5}};
    const lt_view nchw = {.shape = LT_SHAPE(2, 5, 3, 4), .stride = {60, 12, 4, 1}};
    const lt_view *const same[] = {&nhwc, &nhwc}, *const other[] = {&nhwc, &nchw};
    lt_iter w;
    lt_iter_memory_order(&w, same, 2);
    assert_int_equal(w.ndim, 1);
    assert_true(lt_iter_is_dense(&w));
    lt_iter_memory_order(&w, other, 2);
    assert_int_equal(w.ndim, 3); /* n, h and w together, c */
    assert_false(lt_iter_is_dense(&w));
}

/* Numbers beyond 32 bits: without memory, as nothing is read. */
static void long_walks_do_not_wrap(void **state)
{
    (void)state;
    const lt_view v = {.shape = LT_SHAPE(70000, 70000), .stride = {1, 70000}};
    const lt_view t = {.shape = LT_SHAPE(70000, 70000), .stride = {70000, 1}};
    const lt_view *const views[] = {&v, &t};
    int64_t at[LT_ITER_OPERANDS];
    lt_iter w;
    lt_iter_logical_order(&w, views, 2);
    lt_iter_offsets(&w, 4899999999, at);
    assert_int_equal(at[0], 4899999999);
    lt_iter_offsets(&w, 4899930001, at); /* row 69999, column 1 */
    assert_int_equal(at[0], 69999 + 70000);
    assert_int_equal(at[1], 4899930001);
}

static void sums_take_every_element_once(void **state)
{
    (void)state;
    enum { MOST = 1 << 14 };
    static int seen[MOST];
    lt_rng rng = {.key = 13};
    for (int round = 0; round < 300; round++) {
        lt_shape shape = random_shape(&rng);
        lt_view x = {.dtype = LT_F32, .shape = shape}, y = {.dtype = LT_F32};
        y.shape = shape;
        int64_t step = 1, outputs = 1;
        for (int d = 0; d < shape.ndim; d++) {
            const int e = round % 2 ? d : shape.ndim - 1 - d;
            x.stride[e] = step;
            step *= shape.dim[e];
            y.shape.dim[e] = lt_rng_below(&rng, 2) ? 1 : shape.dim[e];
            y.stride[e] = outputs;
            outputs *= y.shape.dim[e];
        }
        lt_reduction plan;
        lt_reduction_plan(&plan, &x, &y);
        assert_int_equal(plan.out.count, outputs);
        assert_int_equal(plan.out.count * plan.in.count, step);
        assert_true(plan.chunks * plan.length >= plan.in.count);
        assert_true((plan.chunks - 1) * plan.length < plan.in.count);
        memset(seen, 0, sizeof seen);
        for (int64_t o = 0; o < plan.out.count; o++)
            for (int64_t i = 0; i < plan.in.count; i++) {
                int64_t first[LT_ITER_OPERANDS], at[LT_ITER_OPERANDS];
                lt_iter_offsets(&plan.out, o, first);
                lt_iter_offsets(&plan.in, i, at);
                assert_in_range(first[0] + at[0], 0, step - 1);
                assert_in_range(first[1], 0, outputs - 1);
                seen[first[0] + at[0]]++;
            }
        for (int64_t i = 0; i < step; i++)
            assert_int_equal(seen[i], 1);
    }
}

static void rows_are_cut_into_all_of_them(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 7, 255, 4097, 802816, 3211264};
    static const int64_t channels[] = {1, 3, 8, 64, 72, 256, 264, 2048};
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        for (size_t j = 0; j < COUNT_OF(channels); j++)
            for (int width = 1; width <= LT_VECTOR_WIDTH; width += LT_VECTOR_WIDTH - 1) {
                const lt_row_cut c = lt_partition_rows(counts[i], channels[j], width);
                assert_int_equal(c.lanes * c.lines, LT_ROW_THREADS);
                assert_true(c.tiles * c.lanes * width >= channels[j]);
                assert_true((c.tiles - 1) * c.lanes * width < channels[j]);
                assert_true(c.chunks * c.length >= counts[i]);
                assert_true((c.chunks - 1) * c.length < counts[i]); /* none is empty */
                assert_true(c.chunks >= 1 && c.chunks <= 65535);
            }
}

/* Elements whose offset exceeds 2^31. */
static void places_go_beyond_32_bits(void **state)
{
    (void)state;
    const lt_rows rows = {
        .count = 512 * 112 * 112, .height = 112, .width = 112, .channels = 512, .dense = true};
    lt_rows apart = rows;
    apart.dense = false;
    apart.stride[0] = 112 * 112 * 512;
    apart.stride[1] = 1;
    apart.stride[2] = 112 * 512;
    apart.stride[3] = 512;
    const int64_t last = rows.count - 1;
    assert_true(rows.count * rows.channels > INT32_MAX);
    assert_int_equal(lt_rows_offset(&rows, last, 511), rows.count * rows.channels - 1);
    assert_int_equal(lt_rows_offset(&apart, last, 511), rows.count * rows.channels - 1);
}

/* Batches of 4096 images: still every row once, and a grid that a device launches. */
static void huge_batches_are_cut(void **state)
{
    (void)state;
    const int64_t count = (int64_t)4096 * 224 * 224; /* times 2048 channels: 2^38 elements */
    const lt_row_cut c = lt_partition_rows(count, 2048, LT_VECTOR_WIDTH);
    assert_true(c.chunks * c.length >= count && (c.chunks - 1) * c.length < count);
    assert_true(c.chunks <= 65535 && c.tiles <= 65535);
    lt_view x = {.shape = LT_SHAPE(4096, 64, 224, 224),
                 .stride = {64 * 224 * 224, 1, 224 * 64, 64}};
    lt_view y = {.shape = LT_SHAPE(1, 64, 1, 1), .stride = {64, 1, 64, 64}};
    lt_reduction plan;
    lt_reduction_plan(&plan, &x, &y);
    assert_true(plan.chunks * plan.length >= plan.in.count);
    assert_true((plan.chunks - 1) * plan.length < plan.in.count);
    assert_true(plan.chunks <= 65535);
    assert_int_equal(plan.in.count * plan.out.count, lt_shape_count(x.shape));
}

static void windows_and_pixels_agree(void **state)
{
    (void)state;
    lt_rng rng = {.key = 14};
    for (int round = 0; round < 500; round++) {
        const int kernel = 1 + (int)lt_rng_below(&rng, 5), stride = 1 + (int)lt_rng_below(&rng, 4);
        const int pad = (int)lt_rng_below(&rng, (uint32_t)kernel / 2 + 1);
        const lt_divisor by_stride = lt_make_divisor((uint32_t)stride);
        const int size = kernel + (int)lt_rng_below(&rng, 12);
        const int windows = (size + 2 * pad - kernel) / stride + 1;
        for (int h = 0; h < size; h++) {
            const lt_range mine = lt_windows_with_pixel(h, kernel, by_stride, pad, windows);
            for (int p = 0; p < windows; p++) {
                const lt_range taps = lt_window_taps(p, kernel, stride, pad, size);
                const int tap = h + pad - p * stride;
                const bool there = tap >= taps.first && tap < taps.end;
                assert_int_equal(there, tap >= 0 && tap < kernel);
                assert_int_equal(there, p >= mine.first && p < mine.end);
            }
        }
    }
}

/* All divisors below 2^31 that are next to a power of two, at quotients' borders. */
static void divisors_divide(void **state)
{
    (void)state;
    for (int power = 0; power < 31; power++)
        for (int near = -1; near <= 1; near++) {
            const uint32_t by = (UINT32_C(1) << power) + (uint32_t)near;
            if (by == 0)
                continue;
            const lt_divisor d = lt_make_divisor(by);
            for (uint32_t multiple = INT32_MAX / by; multiple > 0; multiple /= 3) {
                const uint32_t a = multiple * by;
                assert_int_equal(lt_divide(a, d), multiple);
                assert_int_equal(lt_divide(a - 1, d), multiple - 1);
            }
            assert_int_equal(lt_divide(INT32_MAX, d), INT32_MAX / by);
        }
}

/* Vectors of an image's channels: few, more than 2^32, and more than 2^32 pixels. */
static void vectors_of_pixels_are_in_order(void **state)
{
    enum { HEIGHT = 112, WIDTH = 113, VECTORS = 512, ROUNDS = 1000 };
    (void)state;
    lt_rng rng = {.key = 21};
    for (int64_t images = 2; images <= 1 << 19; images *= 512) {
        const lt_grid grid = lt_make_grid(images, HEIGHT, WIDTH);
        const int64_t rows = images * HEIGHT * WIDTH, count = rows * VECTORS;
        assert_true(images == 2 ? count < INT32_MAX : count > UINT32_MAX);
        assert_true(images == 1 << 19 ? rows > UINT32_MAX : rows < INT32_MAX);
        for (int round = 0; round < ROUNDS; round++) {
            const int64_t i = round ? (int64_t)(lt_rng_uniform(&rng) * (double)count) : count - 1;
            const lt_pixel p = lt_find_pixel(&grid, i, VECTORS);
            assert_int_equal(((p.image * HEIGHT + p.h) * WIDTH + p.w) * VECTORS + p.channel, i);
            assert_true(p.h >= 0 && p.h < HEIGHT && p.w >= 0 && p.w < WIDTH);
            assert_true(p.channel >= 0 && p.channel < VECTORS);
        }
        assert_int_equal(lt_find_pixel(&grid, count, VECTORS).image, images);
    }
}

static void moments_merge_as_one(void **state)
{
    (void)state;
    const double x[] = {3, -1, 4, 1, -5, 9, 2, 6};
    lt_moments all = {0, 0, 0};
    double mean = 0, m2 = 0;
    const size_t count = COUNT_OF(x);
    for (size_t i = 0; i < count; i += 2) {
        const double a = x[i] - 3, b = x[i + 1] - 3;
        all = lt_moments_merge(all, lt_moments_from_sums(2, 3, a + b, a * a + b * b));
        mean += (x[i] + x[i + 1]) / (double)count;
    }
    for (size_t i = 0; i < COUNT_OF(x); i++)
        m2 += (x[i] - mean) * (x[i] - mean);
    assert_near(all.count, 8, 0);
    assert_near(all.mean, mean, 1e-14);
    assert_near(all.m2, m2, 1e-12);
    assert_near(lt_moments_merge(all, (lt_moments){0, 7, 0}).mean, mean, 1e-14);
    assert_true(isnan(lt_moments_from_sums(1, 0, (double)NAN, (double)NAN).m2));
}

/* A variance from f32 sums is right to 2^-12, or known not to be. */
static void sums_that_cancel_are_known(void **state)
{
    enum { COUNT = 4096, BLOCK = 64 };
    int known = 0, right = 0;
    lt_rng rng = {.key = 8};
    (void)state;
    for (double mean = 0.01; mean < 1e4; mean *= 1.5) {
        float sum = 0, squares = 0;
        lt_moments exact = {0, 0, 0};
        for (int b = 0; b < COUNT / BLOCK; b++) { /* a kernel sums tiles first */
            float s = 0, q = 0;
            for (int i = 0; i < BLOCK; i++) {
                const float v = (float)(mean + 2 * lt_rng_uniform(&rng) - 1);
                s += v;
                q += v * v;
                exact = lt_moments_merge(exact, lt_moments_from_sums(1, (double)v, 0, 0));
            }
            sum += s;
            squares += q;
        }
        const lt_moments m = lt_moments_from_raw_sums(COUNT, (double)sum, (double)squares);
        assert_near(m.mean, exact.mean, 0x1p-20 * exact.mean);
        if (lt_moments_have_cancelled(m)) {
            assert_true(exact.mean * exact.mean * exact.count > 200 * exact.m2);
            known++;
        } else {
            assert_near(m.m2, exact.m2, 0x1p-12 * exact.m2);
            right++;
        }
    }
    assert_true(known > 5 && right > 5);
    assert_false(lt_moments_have_cancelled(lt_moments_from_raw_sums(4, 0, 0)));
    assert_false(lt_moments_have_cancelled(lt_moments_from_raw_sums(4, (double)NAN, (double)NAN)));
    assert_true(lt_moments_have_cancelled(lt_moments_from_raw_sums(4, 4, 4)));
}

/* Lists longer than a launch takes, with items of one element and of several blocks. */
static void long_lists_are_cut(void **state)
{
    (void)state;
    enum { ITEMS = 600 };
    static lt_optim_item item[ITEMS];
    static bool first[ITEMS];
    static lt_list list;
    float memory[1];
    for (int i = 0; i < ITEMS; i++) {
        const int64_t count = i % 3 ? 1 + i : 3 * LT_LIST_BLOCK + i;
        item[i].value = item[i].grad =
            (lt_view){.data = memory, .dtype = LT_F32, .shape = LT_SHAPE(count)};
        first[i] = i % 2;
    }
    size_t done = 0;
    for (size_t taken = 0; done < ITEMS; done += taken) {
        assert_ok(lt_list_fill(&list, item + done, first + done, ITEMS - done, &taken));
        assert_true(taken > 0 && taken <= LT_LIST_ITEMS);
        for (int b = 0, i = 0; b < list.blocks; b++) {
            i += i + 1 < list.count && list.item[i + 1].first_block == b;
            assert_int_equal(
                lt_find_item_of_block(&list.item->first_block, sizeof *list.item, list.count, b),
                i);
            const int64_t begin = (int64_t)(b - list.item[i].first_block) * LT_LIST_BLOCK;
            assert_true(begin < list.item[i].count);
        }
        for (int i = 0; i < list.count; i++)
            assert_int_equal(list.item[i].first, first[done + (size_t)i]);
    }
    assert_int_equal(done, ITEMS);
    item[3].grad.dtype = LT_BF16;
    assert_ok(lt_list_fill(&list, item, first, ITEMS, &done));
    assert_int_equal(list.item[3].grad_dtype, LT_BF16);
    item[3].grad.dtype = LT_F64;
    assert_status(lt_list_fill(&list, item, first, ITEMS, &done), LT_E_UNSUPPORTED);
}

static void long_batches_of_expressions_are_cut(void **state)
{
    (void)state;
    enum { LISTS = 50, LONGEST = 7 };
    static lt_vec_batch batch;
    static lt_vec_job job[LONGEST];
    lt_vec_list list[LISTS];
    float memory[1];
    size_t expressions = 0, done = 0, seen = 0;
    for (int i = 0; i < LONGEST; i++)
        job[i].a = job[i].y =
            (lt_view){.data = memory, .dtype = LT_F32, .shape = LT_SHAPE(9999), .stride = {1}};
    for (int i = 0; i < LISTS; i++) {
        list[i] = (lt_vec_list){.job = job, .count = (size_t)(i % LONGEST + 1)};
        expressions += list[i].count;
    }
    for (size_t taken = 0; done < LISTS; done += taken) {
        assert_ok(lt_vec_fill_batch(&batch, list + done, LISTS - done, &taken));
        assert_true(taken > 0);
        for (int b = 0; b < batch.blocks; b++) {
            const int64_t i =
                lt_find_item_of_block(&batch.list->first_block, sizeof *batch.list, batch.lists, b);
            const int64_t begin = (int64_t)(b - batch.list[i].first_block) * LT_VEC_BLOCK;
            assert_in_range(begin, 0, 9998);
        }
        seen += (size_t)batch.expressions;
    }
    assert_int_equal(done, LISTS);
    assert_int_equal(seen, expressions);
}

/* y += a; z += y; y = z y: with y scratch. An operand that is not aligned brings y back to memory. */
static void scratch_is_held_where_all_goes_by_fours(void **state)
{
    (void)state;
    enum { N = 16, JOBS = 3 };
    static _Alignas(16) float a[N], y[N], z[N + 1];
    static lt_vec_batch batch;
    lt_view v[] = {{.data = a}, {.data = y}, {.data = z}};
    for (size_t i = 0; i < COUNT_OF(v); i++) {
        v[i].dtype = LT_F32;
        v[i].shape = LT_SHAPE(N);
        v[i].stride[0] = 1;
    }
    for (int apart = 0; apart < 2; apart++) {
        v[2].data = z + apart;
        const lt_vec_job job[JOBS] = {
            {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1, .a = v[0], .y = v[1]},
            {.op = LT_VEC_AXPBY, .alpha = 1, .beta = 1, .a = v[1], .y = v[2]},
            {.op = LT_VEC_MUL, .alpha = 1, .a = v[2], .b = v[1], .y = v[1]}};
        const int want[] = {LT_VEC_HELD_Y, LT_VEC_HELD_A,
                            LT_VEC_HELD_B | LT_VEC_HELD_Y | LT_VEC_HELD_OLD};
        const lt_vec_list lists[] = {{.job = job, .count = JOBS, .scratch = y},
                                     {.job = job, .count = JOBS}};
        size_t taken;
        assert_ok(lt_vec_fill_batch(&batch, lists, COUNT_OF(lists), &taken));
        lt_vec_hold_scratch(&batch);
        for (int i = 0; i < batch.expressions; i++)
            assert_int_equal(batch.expression[i].held, i < JOBS && !apart ? want[i] : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logical_walks_are_in_order),
        cmocka_unit_test(walks_meet_the_same_pairs),
        cmocka_unit_test(dense_views_are_one_run),
        cmocka_unit_test(long_walks_do_not_wrap),
        cmocka_unit_test(sums_take_every_element_once),
        cmocka_unit_test(rows_are_cut_into_all_of_them),
        cmocka_unit_test(places_go_beyond_32_bits),
        cmocka_unit_test(huge_batches_are_cut),
        cmocka_unit_test(windows_and_pixels_agree),
        cmocka_unit_test(divisors_divide),
        cmocka_unit_test(vectors_of_pixels_are_in_order),
        cmocka_unit_test(moments_merge_as_one),
        cmocka_unit_test(sums_that_cancel_are_known),
        cmocka_unit_test(long_lists_are_cut),
        cmocka_unit_test(long_batches_of_expressions_are_cut),
        cmocka_unit_test(scratch_is_held_where_all_goes_by_fours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
