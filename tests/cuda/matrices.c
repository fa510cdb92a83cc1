/* Which of Shampoo's jobs go together on the cuda backend, and where the parts of a batch lie. */

#include "tensor/backend/cuda/matrices.h"

#include "near.h"

#include <stdlib.h>

static void a_view_is_folded_along_each_dimension(void **state)
{
    (void)state;
    float data[2 * 3 * 4];
    for (int i = 0; i < 24; i++)
        data[i] = (float)i;
    lt_view v = {.data = data, .shape = LT_SHAPE(2, 3, 4), .stride = {12, 4, 1}};
    for (int dim = 0; dim < 3; dim++) {
        const lt_fold f = lt_fold_of(&v, dim);
        assert_int_equal(f.extent[0], v.shape.dim[dim]);
        assert_int_equal(f.stride[0], v.stride[dim]);
        assert_int_equal(f.rest * f.extent[0], 24);
        assert_int_equal(f.extent[3], 1);
        /* Rows along dim, the rest in logical order: as the kernels walk it. */
        int64_t a = dim == 0 ? 1 : 0, b = dim == 2 ? 1 : 2;
        for (int64_t r = 0; r < f.rest; r++) {
            int64_t left = r, at = 0;
            for (int d = LT_MAX_DIMS - 1; d > 0; d--) {
                at += left % f.extent[d] * f.stride[d];
                left /= f.extent[d];
            }
            int64_t want = r / v.shape.dim[b] * v.stride[a] + r % v.shape.dim[b] * v.stride[b];
            assert_int_equal(at, want);
        }
    }
}

static void equal_jobs_are_neighbours_in_their_order(void **state)
{
    (void)state;
    const lt_batch_key key[] = {{4, 2, LT_F32, 1, 0.5, false}, {8, 2, LT_F32, 1, 0.5, false},
                                {4, 2, LT_F32, 1, 0.5, false}, {4, 2, LT_F64, 1, 0.5, false},
                                {8, 2, LT_F32, 1, 0.5, false}, {4, 2, LT_F32, 2, 0.5, false},
                                {4, 2, LT_F32, 1, 0.5, true},  {4, 2, LT_F32, 1, 0.5, false}};
    static const size_t want[] = {1, 4, 0, 2, 7, 5, 6, 3};
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
    assert_int_equal(batches, 5);
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
        cmocka_unit_test(equal_jobs_are_neighbours_in_their_order),
        cmocka_unit_test(batches_end_at_the_limit_but_take_one),
        cmocka_unit_test(batches_are_no_longer_than_a_grid),
        cmocka_unit_test(parts_are_aligned_and_do_not_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
