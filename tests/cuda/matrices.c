/* Which of Shampoo's jobs go together on the cuda backend, and where the parts of a batch lie. */

#include "tensor/backend/cuda/matrix/matrices.h"

#include "near.h"
#include "tensor/backend/cuda/strided_iter.h"

#include <stdlib.h>

static int64_t index_of(const lt_view *v, int64_t i, int dim)
{
    for (int d = v->shape.ndim - 1; d > dim; d--)
        i /= v->shape.dim[d];
    return i % v->shape.dim[dim];
}

/* Rows along dim; the columns in any order, but the same as those of another view. */
static void places_are_right(const lt_view *v, int dim)
{
    enum { MOST = 512 };
    bool seen[MOST] = {false};
    lt_view rows = {.shape = v->shape};
    for (int64_t d = v->shape.ndim - 1, step = 1; d >= 0; step *= v->shape.dim[d--])
        rows.stride[d] = step;
    const lt_unfolding f = lt_unfold(v, dim, v), g = lt_unfold(&rows, dim, v);
    assert_int_equal(f.n, v->shape.dim[dim]);
    assert_int_equal(f.rest * f.n, lt_shape_count(v->shape));
    assert_int_equal(f.by_columns, g.by_columns);
    for (int64_t i = 0; i < lt_shape_count(v->shape); i++) {
        const int64_t logical = lt_unfolding_offset(&g, i);
        int64_t want = 0;
        assert_false(seen[logical]);
        seen[logical] = true;
        assert_int_equal(index_of(v, logical, dim), f.by_columns ? i % f.n : i / f.rest);
        for (int d = 0; d < v->shape.ndim; d++)
            want += index_of(v, logical, d) * v->stride[d];
        assert_int_equal(lt_unfolding_offset(&f, i), want);
    }
}

static void a_view_is_folded_along_each_dimension(void **state)
{
    (void)state;
    const lt_view views[] = {
        {.shape = LT_SHAPE(2, 3, 4), .stride = {12, 4, 1}},
        {.shape = LT_SHAPE(2, 3, 4), .stride = {12, 1, 3}},
        {.shape = LT_SHAPE(2, 3, 4), .stride = {20, 5, 1}},
        {.shape = LT_SHAPE(4, 3, 2, 5), .stride = {30, 1, 15, 3}}, /* OIHW, channels-last */
        {.shape = LT_SHAPE(4, 3, 1, 1), .stride = {3, 1, 3, 3}},
        {.shape = LT_SHAPE(2, 3, 2, 3, 2), .stride = {1, 50, 6, 2, 13}},
        {.shape = LT_SHAPE(3, 1, 3), .stride = {0, 0, 0}},
        {.shape = LT_SHAPE(7), .stride = {2}},
    };
    for (size_t i = 0; i < COUNT_OF(views); i++)
        for (int dim = 0; dim < views[i].shape.ndim; dim++)
            places_are_right(&views[i], dim);
}

/* A place costs a division for each dimension that is left. */
static void dimensions_without_gaps_are_one(void **state)
{
    (void)state;
    const lt_view filters = {.shape = LT_SHAPE(64, 32, 3, 3), .stride = {288, 1, 96, 32}};
    const lt_view points = {.shape = LT_SHAPE(64, 32, 1, 1), .stride = {32, 1, 32, 32}};
    for (int dim = 0; dim < 2; dim++) {
        const lt_unfolding f = lt_unfold(&filters, dim, &filters),
                           g = lt_unfold(&points, dim, &points);
        assert_int_equal(f.by_columns, dim); /* input channels are the innermost */
        assert_int_equal(f.size[0], 64 * 288);
        assert_int_equal(f.stride[0], 1);
        assert_int_equal(g.size[0], 64 * 32);
    }
    const lt_unfolding h = lt_unfold(&filters, 2, &filters);
    assert_int_equal(h.size[0], 3);
    assert_int_equal(h.size[1], 64);
    assert_int_equal(h.size[2], 96);
    assert_int_equal(h.size[3], 1);
}

/* Each element above the tiles on the diagonal is copied once, and nothing else. */
static void a_mirror_takes_the_tiles_above_the_diagonal_once(void **state)
{
    (void)state;
    static const int64_t sides[][2] = {{64, 2}, {66, 2}, {99, 3}, {40, 4}, {35, 1}};
    for (size_t i = 0; i < COUNT_OF(sides); i++) {
        const lt_mirror v = {.n = sides[i][0], .cuts = sides[i][1]};
        const int64_t tile = v.n / v.cuts;
        char seen[99 * 99] = {0};
        for (int64_t b = 0; b < lt_mirror_blocks(&v); b++) {
            const lt_mirror_square s = lt_mirror_square_at(&v, b);
            assert_true(s.rows > 0 && s.columns > 0);
            for (int64_t k = 0; k < s.rows * s.columns; k++)
                seen[(s.row + k / s.columns) * v.n + s.column + k % s.columns]++;
        }
        for (int64_t k = 0; k < v.n * v.n; k++)
            assert_int_equal(seen[k], k / v.n / tile < k % v.n / tile);
    }
}

/* A few long rows that lie as such; the blocks of a list's items follow each other. */
static void short_dimensions_are_taken_by_columns(void **state)
{
    (void)state;
    const lt_view window = {.shape = LT_SHAPE(64, 9, 40), .stride = {360, 40, 1}};
    const lt_view wide = {.shape = LT_SHAPE(64, 10, 40), .stride = {400, 40, 1}};
    const lt_view last = {.shape = LT_SHAPE(64, 40, 9), .stride = {360, 9, 1}};
    const lt_view few = {.shape = LT_SHAPE(8, 9, 40), .stride = {360, 40, 1}};
    lt_short list[2] = {{.from_step = 0}};
    size_t count = 0;
    assert_false(
        lt_short_try_append(list, &count, &(lt_short){.from = lt_unfold(&wide, 1, &wide)}));
    assert_false(
        lt_short_try_append(list, &count, &(lt_short){.from = lt_unfold(&last, 2, &last)}));
    assert_false(lt_short_try_append(list, &count, &(lt_short){.from = lt_unfold(&few, 1, &few)}));
    for (int i = 0; i < 2; i++)
        assert_true(
            lt_short_try_append(list, &count, &(lt_short){.from = lt_unfold(&window, 1, &window)}));
    assert_int_equal(count, 2);
    assert_int_equal(list[0].from_step, 40);
    assert_int_equal(list[0].blocks, 2); /* 2560 columns */
    assert_int_equal(list[1].first_block, 2);
}

/* Numbers beyond 32 bits: without memory, as nothing is read. */
static void long_folds_do_not_wrap(void **state)
{
    (void)state;
    const lt_view v = {.shape = LT_SHAPE(70000, 70000), .stride = {1, 70001}};
    const lt_unfolding f = lt_unfold(&v, 0, &v);
    assert_int_equal(lt_unfolding_offset(&f, 4899930001), 69999 * (int64_t)70001 + 1);
}

static void norms_are_cut_into_blocks(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, LT_NORM_BLOCK, LT_NORM_BLOCK + 1, 5, 100000};
    lt_norm norm[COUNT_OF(rows)];
    int64_t blocks = 0, seen[COUNT_OF(rows)] = {0};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const lt_view v = {.dtype = LT_F32, .shape = LT_SHAPE(rows[i], 1), .stride = {3, 1}};
        norm[i] = lt_make_norm_record(&v, NULL, blocks);
        blocks += norm[i].blocks;
    }
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t i =
            lt_find_item_of_block(&norm->first_block, sizeof *norm, COUNT_OF(rows), b);
        const int64_t begin = (b - norm[i].first_block) * LT_NORM_BLOCK;
        assert_true(begin >= 0 && begin < rows[i]);
        seen[i] += rows[i] - begin < LT_NORM_BLOCK ? rows[i] - begin : LT_NORM_BLOCK;
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_int_equal(seen[i], rows[i]);
    const lt_view scalar = {.dtype = LT_F64};
    assert_int_equal(lt_make_norm_record(&scalar, NULL, 0).elements, 1);
}

static void equal_jobs_are_neighbours_in_their_order(void **state)
{
    (void)state;
    const lt_batch_key key[] = {
        {4, 2, LT_F32, 1, 0.5, false, false}, {8, 2, LT_F32, 1, 0.5, false, false},
        {4, 2, LT_F32, 1, 0.5, false, false}, {4, 2, LT_F64, 1, 0.5, false, false},
        {8, 2, LT_F32, 1, 0.5, false, false}, {4, 2, LT_F32, 2, 0.5, false, false},
        {4, 2, LT_F32, 1, 0.5, true, false},  {4, 2, LT_F32, 1, 0.5, false, false},
        {4, 2, LT_F32, 1, 0.5, false, true}};
    static const size_t want[] = {1, 4, 0, 2, 7, 5, 8, 6, 3};
    size_t order[COUNT_OF(key)], batches = 0;
    assert_ok(lt_batch_sort(key, COUNT_OF(key), order));
    for (size_t i = 0; i < COUNT_OF(key); i++)
        assert_int_equal(order[i], want[i]);
    for (size_t i = 0; i < COUNT_OF(key);) {
        size_t end = lt_batch_end(key, order, i, COUNT_OF(key), 10, 1000);
        assert_true(end > i && end <= COUNT_OF(key));
        for (size_t k = i + 1; k < end; k++)
            assert_true(lt_batch_key_same(&key[order[i]], &key[order[k]]));
        batches++;
        i = end;
    }
    assert_int_equal(batches, 6);
}

static void batches_end_at_the_limit_but_take_one(void **state)
{
    (void)state;
    enum { JOBS = 7 };
    lt_batch_key key[JOBS] = {{0}};
    size_t order[JOBS];
    assert_ok(lt_batch_sort(key, JOBS, order));
    assert_int_equal(lt_batch_end(key, order, 0, JOBS, 10, 35), 3);
    assert_int_equal(lt_batch_end(key, order, 3, JOBS, 10, 35), 6);
    assert_int_equal(lt_batch_end(key, order, 6, JOBS, 10, 35), 7);
    assert_int_equal(lt_batch_end(key, order, 2, JOBS, 100, 35), 3);
}

/* Matrices are a grid's second dimension. */
static void batches_are_no_longer_than_a_grid(void **state)
{
    (void)state;
    enum { JOBS = 70000, GRID = 65535 };
    lt_batch_key *key = calloc(JOBS, sizeof *key);
    size_t *order = calloc(JOBS, sizeof *order);
    assert_true(key && order);
    assert_ok(lt_batch_sort(key, JOBS, order));
    assert_int_equal(lt_batch_end(key, order, 0, JOBS, 4, (size_t)1 << 40), GRID);
    assert_int_equal(lt_batch_end(key, order, GRID, JOBS, 4, (size_t)1 << 40), JOBS);
    free(key);
    free(order);
}

static void parts_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 256, 257, 0, 1000};
    char memory[4096];
    lt_carver count = {0}, place = {.begin = memory};
    char *last = memory;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        assert_null(lt_carve(&count, sizes[i]));
        char *part = lt_carve(&place, sizes[i]);
        assert_int_equal((part - memory) % 256, 0);
        assert_true(part >= last);
        last = part + sizes[i];
    }
    assert_int_equal(count.used, place.used);
    assert_true(last <= memory + place.used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_is_folded_along_each_dimension),
        cmocka_unit_test(dimensions_without_gaps_are_one),
        cmocka_unit_test(long_folds_do_not_wrap),
        cmocka_unit_test(a_mirror_takes_the_tiles_above_the_diagonal_once),
        cmocka_unit_test(short_dimensions_are_taken_by_columns),
        cmocka_unit_test(norms_are_cut_into_blocks),
        cmocka_unit_test(equal_jobs_are_neighbours_in_their_order),
        cmocka_unit_test(batches_end_at_the_limit_but_take_one),
        cmocka_unit_test(batches_are_no_longer_than_a_grid),
        cmocka_unit_test(parts_are_aligned_and_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
