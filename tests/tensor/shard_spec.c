/* src/tensor/shard_spec.c: random boxes of random views against visiting every element. */

#include "base/rng.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/fail.h"
#include "lather/param.h"

#include <stdlib.h>

enum { ROUNDS = 400, MOST = 1024 };

/* A random view of up to 5 dimensions of 1..4, and a box of it. */
static lt_shard_spec random_place(lt_rng *rng)
{
    lt_shard_spec p = {0};
    p.view.ndim = p.offset.ndim = p.extent.ndim = (int)lt_rng_below(rng, LT_MAX_DIMS + 1);
    for (int d = 0; d < p.view.ndim; d++) {
        p.view.dim[d] = 1 + lt_rng_below(rng, 4);
        p.extent.dim[d] = 1 + lt_rng_below(rng, (uint32_t)p.view.dim[d]);
        if (lt_rng_below(rng, 2))
            p.extent.dim[d] = p.view.dim[d]; /* whole dimensions make longer runs */
        p.offset.dim[d] = lt_rng_below(rng, (uint32_t)(p.view.dim[d] - p.extent.dim[d] + 1));
    }
    p.logical = LT_SHAPE(lt_shape_count(p.view));
    return p;
}

/* Lists the logical elements of the box in order; returns their number. */
static int64_t walk(const lt_shard_spec *p, int64_t *logical)
{
    int64_t count = 0;
    for (int64_t i = 0; i < lt_shape_count(p->view); i++) {
        int64_t rest = i;
        bool inside = true;
        for (int d = p->view.ndim - 1; d >= 0; d--) {
            const int64_t at = rest % p->view.dim[d];
            rest /= p->view.dim[d];
            inside &= at >= p->offset.dim[d] && at < p->offset.dim[d] + p->extent.dim[d];
        }
        if (inside)
            logical[count++] = i;
    }
    return count;
}

static void a_box_has_the_elements_that_a_walk_finds(void **state)
{
    (void)state;
    lt_rng rng = {.key = 1};
    for (int round = 0; round < ROUNDS; round++) {
        int64_t want[MOST];
        const lt_shard_spec p = random_place(&rng);
        const int64_t count = walk(&p, want);
        assert_ok(lt_shard_spec_check(&p, "p", count));
        assert_int_equal(lt_shard_spec_count(&p), count);
        assert_int_equal(lt_shard_spec_is_whole(&p), count == lt_shape_count(p.view));
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(lt_shard_spec_index(&p, i), want[i]);
    }
}

static void runs_have_maximal_length(void **state)
{
    (void)state;
    lt_rng rng = {.key = 2};
    for (int round = 0; round < ROUNDS; round++) {
        int64_t want[MOST], next = 0;
        const lt_shard_spec p = random_place(&rng);
        const int64_t count = walk(&p, want);
        for (lt_shard_run run = {0}; lt_shard_spec_next_run(&p, &run); next += run.count) {
            assert_int_equal(run.local, next);
            assert_int_equal(run.logical, want[next]);
            for (int64_t i = 1; i < run.count; i++)
                assert_int_equal(want[next + i], run.logical + i);
            if (next + run.count < count)
                assert_int_not_equal(want[next + run.count], run.logical + run.count);
        }
        assert_int_equal(next, count);
    }
}

static void boxes_are_read_and_written_back(void **state)
{
    (void)state;
    lt_rng rng = {.key = 3};
    for (int round = 0; round < ROUNDS; round++) {
        int64_t want[MOST];
        int32_t whole[MOST], back[MOST], own[MOST];
        const lt_shard_spec p = random_place(&rng);
        const int64_t all = lt_shape_count(p.view), count = walk(&p, want);
        for (int32_t i = 0; i < all; i++) {
            whole[i] = 7 * i;
            back[i] = -1;
        }
        lt_shard_spec_read(&p, whole, own, sizeof *own);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(own[i], 7 * want[i]);
        lt_shard_spec_write(&p, own, back, sizeof *own);
        for (int64_t i = 0, next = 0; i < all; i++) {
            const bool held = next < count && want[next] == i;
            assert_int_equal(back[i], held ? whole[i] : -1);
            next += held;
        }
    }
}

static void parts_of_a_dimension_cover_it_once(void **state)
{
    (void)state;
    const lt_shape logical = LT_SHAPE(21, 5), view = LT_SHAPE(3, 7, 5);
    for (int rows = 1; rows <= 7; rows++)
        for (int columns = 1; columns <= 5; columns++) {
            int held[105] = {0};
            for (int rank = 0; rank < rows * columns; rank++) {
                lt_shard_spec p = lt_shard_spec_even(logical, view, 1, rows, rank / columns);
                lt_shard_spec_split(&p, 2, columns, rank % columns);
                assert_ok(lt_shard_spec_check(&p, "w", lt_shard_spec_count(&p)));
                for (int64_t i = 0; i < lt_shard_spec_count(&p); i++)
                    held[lt_shard_spec_index(&p, i)]++;
            }
            for (int i = 0; i < 105; i++)
                assert_int_equal(held[i], 1);
        }
}

static void equal_places_may_have_different_views(void **state)
{
    (void)state;
    const lt_shard_spec a = lt_shard_spec_even(LT_SHAPE(8, 6), LT_SHAPE(8, 6), 0, 2, 1);
    const lt_shard_spec b = lt_shard_spec_even(LT_SHAPE(8, 6), LT_SHAPE(4, 2, 3, 2), 0, 2, 1);
    const lt_shard_spec c = lt_shard_spec_even(LT_SHAPE(8, 6), LT_SHAPE(8, 6), 0, 2, 0);
    const lt_shard_spec d = lt_shard_spec_even(LT_SHAPE(8, 6), LT_SHAPE(8, 6), 1, 2, 1);
    const lt_shard_spec e = lt_shard_spec_even(LT_SHAPE(48), LT_SHAPE(8, 6), 0, 2, 1);
    assert_true(lt_shard_spec_equal(&a, &b));
    assert_false(lt_shard_spec_equal(&a, &c));
    assert_false(lt_shard_spec_equal(&a, &d));
    assert_false(lt_shard_spec_equal(&a, &e));
    char text[LT_SHARD_SPEC_TEXT];
    assert_string_equal(lt_shard_spec_text(&b, text), "[2:4,0:2,0:3,0:2] of [4,2,3,2]");
    const lt_shard_spec scalar = lt_shard_spec_whole(LT_SCALAR);
    assert_string_equal(lt_shard_spec_text(&scalar, text), "[] of []");
    assert_true(lt_shard_spec_is_whole(&scalar));
}

static void boxes_that_do_not_fit_are_errors(void **state)
{
    (void)state;
    const lt_shape view = LT_SHAPE(3, 4);
    lt_shard_spec p = lt_shard_spec_even(LT_SHAPE(12), view, 1, 2, 1);
    assert_fails(lt_shard_spec_check(&p, "w", 5), LT_E_SHAPE,
                 "the tensor has 5 elements, its shard 6");
    p.logical = LT_SHAPE(13);
    assert_fails(lt_shard_spec_check(&p, "w", 6), LT_E_SHAPE,
                 "12 elements, the logical shape [13] has 13");
    p = lt_shard_spec_even(LT_SHAPE(12), view, 1, 2, 1);
    p.offset.dim[1]++;
    assert_fails(lt_shard_spec_check(&p, "w", 6), LT_E_SHAPE, "w: [0:3,3:5] of [3,4] is not a box");
    p = lt_shard_spec_even(LT_SHAPE(12), view, 0, 4, 3);
    assert_fails(lt_shard_spec_check(&p, "w", 0), LT_E_SHAPE, "[3:3,0:4] of [3,4] is not a box");
}

static void a_parameter_keeps_a_copy_of_its_place(void **state)
{
    (void)state;
    lt_param param;
    assert_ok(lt_param_init(&param, device, "", "w", LT_SHAPE(6, 4), 0));
    assert_null(param.spec);
    assert_int_equal(param.fan_in, 4);
    lt_shard_spec got = lt_param_shard_spec(&param);
    assert_true(lt_shard_spec_is_whole(&got) && lt_shape_equal(got.logical, LT_SHAPE(6, 4)));

    lt_shard_spec p = lt_shard_spec_even(LT_SHAPE(12, 4), LT_SHAPE(3, 4, 4), 1, 2, 1);
    assert_ok(lt_param_set_shard_spec(&param, &p));
    p.offset.dim[1] = 0;
    got = lt_param_shard_spec(&param);
    assert_int_equal(got.offset.dim[1], 2);
    assert_int_equal(param.fan_out, 12);
    p = lt_shard_spec_even(LT_SHAPE(12, 4), LT_SHAPE(12, 4), 0, 3, 0);
    assert_fails(lt_param_set_shard_spec(&param, &p), LT_E_SHAPE,
                 "the tensor has 24 elements, its shard 16");
    assert_int_equal(param.spec->offset.dim[1], 2);
    p = lt_shard_spec_whole(LT_SHAPE(6, 4));
    assert_ok(lt_param_set_shard_spec(&param, &p));
    assert_null(param.spec);
    lt_param_clear(&param);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_box_has_the_elements_that_a_walk_finds),
        cmocka_unit_test(runs_have_maximal_length),
        cmocka_unit_test(boxes_are_read_and_written_back),
        cmocka_unit_test(parts_of_a_dimension_cover_it_once),
        cmocka_unit_test(equal_places_may_have_different_views),
        cmocka_unit_test(boxes_that_do_not_fit_are_errors),
        cmocka_unit_test(a_parameter_keeps_a_copy_of_its_place),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
