/* Merging, splitting, and views of a block. */

#include "near.h"
#include "optim/shampoo/block.h"

#include <string.h>

typedef struct merge_row {
    const char *name;
    lt_shape shape;
    int64_t limit;
    lt_shape forward, backward;
    int target; /* backward only; the others are with target 1 */
} merge_row;

/* Source: the rules of Shi et al. 2023, section 3.2 (forward) and of their implementation since
 * 2025 (backward), worked out by hand. */
static const merge_row merges[] = {
    /* clang-format off */
    {"nothing fits", {4, {32, 3, 64, 64}}, 10, {4, {32, 3, 64, 64}}, {4, {32, 3, 64, 64}}, 1},
    {"one pair fits", {4, {32, 3, 64, 64}}, 200, {3, {96, 64, 64}}, {3, {32, 192, 64}}, 1},
    {"two pairs fit", {4, {32, 3, 64, 64}}, 8192, {2, {6144, 64}}, {2, {96, 4096}}, 1},
    {"all fits", {4, {32, 3, 64, 64}}, 1000000, {1, {393216}}, {1, {393216}}, 1},
    {"the stem of a residual network", {4, {64, 3, 7, 7}}, 1024, {2, {192, 49}}, {2, {64, 147}}, 1},
    {"the stem, larger blocks", {4, {64, 3, 7, 7}}, 2048, {2, {1344, 7}}, {2, {64, 147}}, 1},
    {"64 channels, 3x3", {4, {64, 64, 3, 3}}, 1024, {2, {64, 576}}, {2, {64, 576}}, 1},
    {"128 channels, 3x3", {4, {128, 128, 3, 3}}, 1024, {3, {128, 384, 3}}, {3, {128, 128, 9}}, 1},
    {"128 channels, larger blocks", {4, {128, 128, 3, 3}}, 2048, {2, {128, 1152}},
     {2, {128, 1152}}, 1},
    {"256 channels, 3x3", {4, {256, 256, 3, 3}}, 2048, {3, {256, 768, 3}}, {3, {256, 256, 9}}, 1},
    {"512 channels, 3x3", {4, {512, 512, 3, 3}}, 1024, {3, {512, 512, 9}}, {3, {512, 512, 9}}, 1},
    {"512 channels, larger blocks", {4, {512, 512, 3, 3}}, 2048, {3, {512, 1536, 3}},
     {3, {512, 512, 9}}, 1},
    {"ones disappear", {4, {1, 2, 5, 1}}, 10, {1, {10}}, {1, {10}}, 1},
    {"ones disappear, nothing fits", {4, {1, 2, 5, 1}}, 1, {2, {2, 5}}, {2, {2, 5}}, 1},
    {"a scalar becomes a vector", {0, {0}}, 8, {1, {1}}, {1, {1}}, 1},
    {"only ones", {3, {1, 1, 1}}, 8, {1, {1}}, {1, {1}}, 1},
    {"nothing there", {2, {0, 3}}, 8, {1, {0}}, {1, {0}}, 1},
    {"backward to two dimensions", {4, {32, 3, 64, 64}}, 1000000, {1, {393216}},
     {2, {32, 12288}}, 2},
    {"backward to three dimensions", {4, {32, 3, 64, 64}}, 8192, {2, {6144, 64}},
     {3, {32, 3, 4096}}, 3},
    {"backward, no target: as it is", {4, {1, 2, 5, 1}}, 10, {1, {10}}, {4, {1, 2, 5, 1}},
     LT_NO_LIMIT},
    /* clang-format on */
};

static void merges_as_expected(void **state)
{
    const merge_row *row = *state;
    lt_merged f = lt_merge_shape(row->shape, row->limit, 1, LT_MERGE_FORWARD);
    lt_merged b = lt_merge_shape(row->shape, row->limit, row->target, LT_MERGE_BACKWARD);
    assert_true(lt_shape_equal(f.shape, row->forward));
    assert_true(lt_shape_equal(b.shape, row->backward));
}

enum { MOST = 2000 };

/* Row-major rank of every element of a view: storage[rank] is read at its place. */
static int list(const lt_view *v, double *out)
{
    int64_t index[LT_MAX_DIMS] = {0}, count = lt_shape_count(v->shape);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0;
        for (int d = 0; d < v->shape.ndim; d++)
            at += index[d] * v->stride[d];
        out[i] = ((const double *)v->data)[at];
        for (int d = v->shape.ndim - 1; d >= 0 && ++index[d] == v->shape.dim[d]; d--)
            index[d] = 0;
    }
    return (int)count;
}

static void cuts_a_matrix_with_dimension_0_outermost(void **state)
{
    (void)state;
    static const struct {
        int count;
        double value[4];
    } want[] = {{4, {0, 1, 3, 4}}, {2, {2, 5}},   {4, {6, 7, 9, 10}},
                {2, {8, 11}},      {2, {12, 13}}, {1, {14}}};
    double data[15], got[4];
    for (int i = 0; i < 15; i++)
        data[i] = i;
    lt_merged m = lt_merge_shape(LT_SHAPE(5, 3), 2, 1, LT_MERGE_BACKWARD);
    assert_int_equal(lt_region_count(m.shape, 2), COUNT_OF(want));
    lt_view whole = {.data = data, .dtype = LT_F64, .shape = LT_SHAPE(5, 3), .stride = {3, 1}};
    for (size_t i = 0; i < COUNT_OF(want); i++) {
        lt_region region = lt_region_at(m.shape, 2, (int64_t)i);
        lt_view v = lt_region_view(&m, &region, &whole);
        assert_int_equal(list(&v, got), want[i].count);
        assert_memory_equal(got, want[i].value, (size_t)want[i].count * sizeof *got);
    }
}

typedef struct view_row {
    const char *name;
    lt_shape shape;
    int64_t limit;
    int target;
    lt_merge_order order;
} view_row;

static const view_row views[] = {
    {"a convolution, window merged", {4, {6, 4, 3, 3}}, 9, 1, LT_MERGE_BACKWARD},
    {"a convolution, window and channels merged", {4, {6, 2, 3, 3}}, 18, 1, LT_MERGE_BACKWARD},
    {"a convolution, merged forward", {4, {6, 4, 3, 3}}, 24, 1, LT_MERGE_FORWARD},
    {"a convolution, not merged", {4, {6, 4, 3, 3}}, 4, LT_NO_LIMIT, LT_MERGE_BACKWARD},
    {"ones between", {5, {4, 1, 3, 1, 5}}, 6, 1, LT_MERGE_BACKWARD},
    {"ones between, forward", {5, {4, 1, 3, 1, 5}}, 6, 1, LT_MERGE_FORWARD},
    {"only ones", {3, {1, 1, 1}}, 2, 1, LT_MERGE_BACKWARD},
    {"a scalar", {0, {0}}, 2, 1, LT_MERGE_BACKWARD},
};

/* Element values are logical ranks; a region of the merged array in row-major order. */
static int expected(lt_shape merged, const lt_region *region, double *out)
{
    int64_t index[LT_MAX_DIMS] = {0}, count = lt_shape_count(region->shape);
    for (int64_t i = 0; i < count; i++) {
        int64_t rank = 0;
        for (int d = 0; d < merged.ndim; d++)
            rank = rank * merged.dim[d] + region->offset.dim[d] + index[d];
        out[i] = (double)rank;
        for (int d = merged.ndim - 1; d >= 0 && ++index[d] == region->shape.dim[d]; d--)
            index[d] = 0;
    }
    return (int)count;
}

/* Stores logical ranks with the strides of channels-last memory. */
static lt_view stored(lt_shape shape, double *data)
{
    lt_view v = {.data = data, .dtype = LT_F64, .shape = shape};
    int64_t step = 1;
    for (int k = 0; k < shape.ndim; k++) {
        int d = shape.ndim == 4 ? (k == 0 ? 1 : k == 3 ? 0 : 4 - k) : shape.ndim - 1 - k;
        v.stride[d] = step;
        step *= shape.dim[d];
    }
    int64_t index[LT_MAX_DIMS] = {0};
    for (int64_t i = 0; i < step; i++) {
        int64_t at = 0;
        for (int d = 0; d < shape.ndim; d++)
            at += index[d] * v.stride[d];
        data[at] = (double)i;
        for (int d = shape.ndim - 1; d >= 0 && ++index[d] == shape.dim[d]; d--)
            index[d] = 0;
    }
    return v;
}

static void both_views_walk_the_box_in_logical_order(void **state)
{
    const view_row *row = *state;
    static double data[MOST], want[MOST], got[MOST];
    lt_merged m = lt_merge_shape(row->shape, row->limit, row->target, row->order);
    lt_view whole = stored(row->shape, data);
    int64_t regions = lt_region_count(m.shape, row->limit);
    for (int64_t i = 0; i < regions; i++) {
        lt_region region = lt_region_at(m.shape, row->limit, i);
        int count = expected(m.shape, &region, want);
        lt_view v = lt_region_view(&m, &region, &whole);
        assert_int_equal(list(&v, got), count);
        assert_memory_equal(got, want, (size_t)count * sizeof *got);

        lt_view block = {.data = want, .dtype = LT_F64, .shape = region.shape};
        int64_t step = 1;
        for (int d = region.shape.ndim - 1; d >= 0; d--) {
            block.stride[d] = step;
            step *= region.shape.dim[d];
        }
        lt_view u = lt_region_unmerged_view(&m, &region, &block);
        assert_true(lt_shape_equal(u.shape, v.shape));
        assert_int_equal(list(&u, got), count);
        assert_memory_equal(got, want, (size_t)count * sizeof *got);
    }
}

int main(void)
{
    enum { M = COUNT_OF(merges), V = COUNT_OF(views) };
    struct CMUnitTest tests[M + V + 1];
    for (size_t i = 0; i < M; i++)
        tests[i] = row_test(merges[i].name, merges_as_expected, &merges[i]);
    for (size_t i = 0; i < V; i++)
        tests[M + i] = row_test(views[i].name, both_views_walk_the_box_in_logical_order, &views[i]);
    tests[M + V] = (struct CMUnitTest)cmocka_unit_test(cuts_a_matrix_with_dimension_0_outermost);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
