/* Fits whose n-th allocation fails, for each n until none does: LT_E_NOMEM, unchanged results, no leak (ASan). */

#include "base/alloc.h"
#include "near.h"

#include "lather/detail/fit.h"

#include <math.h>

enum { SIZES = 4, EACH = 3, POINTS = SIZES * EACH };

static double a[POINTS * 2], b[POINTS];
static int fold[POINTS];
static lt_time_point times[POINTS];
static lt_loss_point losses[POINTS];

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < POINTS; i++) {
        const double m = 1 << i % SIZES, step = 1 + i / SIZES;
        a[2 * i] = sin(i);
        a[2 * i + 1] = cos(3 * i);
        b[i] = a[2 * i] + 0.1 * i;
        fold[i] = i % 3;
        times[i] = (lt_time_point){m, 1 + 4 / m + 0.1 * sin(i)};
        losses[i] = (lt_loss_point){m, step, 1 + 1 / step + 0.1 * m};
    }
    return 0;
}

typedef struct results {
    double x[POINTS], norm;
    lt_time_model time;
    lt_loss_model loss;
} results;

static lt_status nnls(results *r)
{
    return lt_nnls(r->x, &r->norm, a, POINTS, 2, b);
}

static lt_status lasso(results *r)
{
    return lt_lasso(r->x, &r->norm, a, POINTS, 2, b, 0.01);
}

static lt_status choose(results *r)
{
    return lt_lasso_choose(r->x, &r->norm, a, POINTS, 2, b, fold);
}

static lt_status time_model(results *r)
{
    return lt_time_fit(&r->time, times, POINTS);
}

static lt_status loss_model(results *r)
{
    return lt_loss_fit_above(&r->loss, losses, POINTS, 0.5);
}

static lt_status guessed_floor(results *r)
{
    return lt_loss_fit(&r->loss, losses, POINTS);
}

static void repeat(lt_status (*call)(results *), int64_t step)
{
    const results nothing = {.norm = 5};
    results want = nothing;
    assert_ok(call(&want));
    for (int64_t n = 1;; n += step) {
        results r = nothing;
        lt_alloc_fail_at(n);
        const lt_status st = call(&r);
        lt_alloc_fail_at(0);
        if (!st) {
            assert_true(n > 1);
            assert_memory_equal(&r, &want, sizeof r); /* no failure was ignored */
            return;
        }
        assert_int_equal(st, LT_E_NOMEM);
        assert_memory_equal(&r, &nothing, sizeof r);
    }
}

static void fits_fail_well_without_memory(void **state)
{
    (void)state;
    repeat(nnls, 1);
    repeat(lasso, 1);
    repeat(choose, 1);
    repeat(time_model, 1);
    repeat(loss_model, 1);
    repeat(guessed_floor, 331); /* step through some 3,000 */
}

int main(void)
{
    const struct CMUnitTest rows[] = {cmocka_unit_test(fits_fail_well_without_memory)};
    return cmocka_run_group_tests(rows, fill, NULL);
}
