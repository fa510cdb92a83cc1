/* The largest magnitudes of an array: by digits of their bits, against sorting, and both on values whose result is known. */

#include "tensor/backend/select.h"

#include "base/rng.h"
#include "near.h"

#include <stdlib.h>

typedef struct select_row {
    const char *name;
    int64_t n, count;
    double levels; /* values are rounded down to this many per unit; 0: not rounded */
    int nans;
} select_row;

static const select_row rows[] = {
    {"one of one", 1, 1, 0, 0},
    {"one of many", 1000, 1, 0, 0},
    {"all", 333, 333, 0, 0},
    {"all but one", 333, 332, 0, 0},
    {"one in a hundred", 5000, 50, 0, 0},
    {"ties go to the lower index", 5000, 700, 3, 0},
    {"all are equal", 777, 100, 0.5, 0},
    {"NaNs first", 4099, 5, 0, 9},
    {"NaNs and others", 4099, 50, 8, 9},
    {"several chunks, ties in all of them", 300007, 1234, 100, 0},
    {"several chunks, most of them", 300007, 299000, 0, 3},
};

/* Signs of zeros and of infinities, and magnitudes of every size. */
static void fill(const select_row *r, float *x)
{
    lt_rng rng = {.key = 31};
    for (int64_t i = 0; i < r->n; i++) {
        const double u = 2 * lt_rng_uniform(&rng) - 1;
        x[i] = (float)(r->levels > 0 ? floor(u * r->levels) / r->levels
                                     : ldexp(u, -(int)(i * 7 % 40)));
        if (r->levels > 0 && r->levels < 1)
            x[i] = i % 2 ? 0.0F : -0.0F;
    }
    if (r->n > 100 && !(r->levels > 0)) {
        x[r->n / 3] = -INFINITY;
        x[r->n / 2] = INFINITY;
        x[r->n / 2 + 1] = -0.0F;
    }
    for (int i = 0; i < r->nans; i++)
        x[r->n / 10 * (i + 1) - 1] = i % 2 ? -NAN : NAN;
}

static void both_ways_agree(void **state)
{
    const select_row *r = *state;
    const size_t n = (size_t)r->n, count = (size_t)r->count;
    float *x = malloc(n * sizeof *x);
    double *wide = malloc(n * sizeof *wide);
    uint32_t *got = malloc(count * sizeof *got), *want = malloc(count * sizeof *want);
    void *workspace = malloc(lt_select_workspace(r->n));
    assert_true(x && wide && got && want && workspace);
    fill(r, x);
    for (size_t i = 0; i < n; i++)
        wide[i] = (double)x[i];
    assert_ok(lt_select_topk(x, r->n, r->count, got, workspace));
    assert_ok(lt_select_topk_f64(wide, r->n, r->count, want));
    assert_memory_equal(got, want, count * sizeof *got);
    free(x);
    free(wide);
    free(got);
    free(want);
    free(workspace);
}

static void known_values_are_ranked(void **state)
{
    static const float x[] = {1, -3, 2, NAN, 3, -INFINITY, 3, 0};
    static const uint32_t want[] = {1, 3, 4, 5};
    (void)state;
    double wide[COUNT_OF(x)];
    uint32_t index[COUNT_OF(want)];
    void *workspace = malloc(lt_select_workspace(COUNT_OF(x)));
    assert_non_null(workspace);
    for (size_t i = 0; i < COUNT_OF(x); i++)
        wide[i] = (double)x[i];
    assert_ok(lt_select_topk(x, COUNT_OF(x), COUNT_OF(want), index, workspace));
    assert_memory_equal(index, want, sizeof want);
    assert_ok(lt_select_topk_f64(wide, COUNT_OF(x), COUNT_OF(want), index));
    assert_memory_equal(index, want, sizeof want);
    assert_status(lt_select_topk(x, 8, 9, index, workspace), LT_E_ARG);
    assert_status(lt_select_topk_f64(wide, 8, 0, index), LT_E_ARG);
    free(workspace);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows) + 1] = {cmocka_unit_test(known_values_are_ranked)};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i + 1] = row_test(rows[i].name, both_ways_agree, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
