/* Shampoo's batches: a list of blocks that does not fit into scratch memory at once. */

#include "fixture.h"

#include "lather/shampoo.h"

/* Without a global norm blocks are independent: the last block of a large parameter is updated like a
 * separate parameter. */
static void blocks_of_later_batches_move_as_if_alone(void **state)
{
    (void)state;
    enum { SIDE = 1472, BLOCK = 32, STEPS = 2 }; /* 2.2 million elements: two batches */
    static double big[SIDE * SIDE], small[BLOCK * BLOCK], got[BLOCK * BLOCK];
    lt_shampoo_config c = LT_SHAMPOO_REFERENCE;
    c.epsilon = 1e-3;
    c.max_preconditioner_dim = BLOCK;
    c.beta1 = 0;
    c.precondition_frequency = 2;
    c.inverse_exponent.set[2][0] = true; /* exponent 0: one factor a block, for speed */
    c.grafting = LT_GRAFTING_SGD;
    fixture f, g;
    fixture_open(&f, true);
    fixture_open(&g, true);
    fixture_add(&f, "big", LT_SHAPE(SIDE, SIDE));
    fixture_add(&g, "small", LT_SHAPE(BLOCK, BLOCK));
    assert_ok(lt_optim_shampoo(&f.optim, &f.list, &c));
    assert_ok(lt_optim_shampoo(&g.optim, &g.list, &c));
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < SIDE * SIDE; i++)
            big[i] = ((i + t) * 2654435761U >> 8) / 16777216.0 - 0.5;
        for (int i = 0; i < BLOCK * BLOCK; i++)
            small[i] = big[(SIDE - BLOCK + i / BLOCK) * SIDE + SIDE - BLOCK + i % BLOCK];
        put_grad(&f.param[0], big);
        put_grad(&g.param[0], small);
        fixture_step(&f, 0.1);
        fixture_step(&g, 0.1);
    }
    get(f.param[0].value, big);
    get(g.param[0].value, got);
    for (int i = 0; i < BLOCK * BLOCK; i++)
        assert_near(got[i], big[(SIDE - BLOCK + i / BLOCK) * SIDE + SIDE - BLOCK + i % BLOCK], 0);
    assert_true(got[0] < 0 || got[0] > 0);
    fixture_close(&f);
    fixture_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_later_batches_move_as_if_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
