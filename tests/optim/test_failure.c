/* What Shampoo does when a root cannot be had. */

#include "fixture.h"
#include "tensor/tensor.h"

#include "lather/ext/backend.h"
#include "lather/log.h"
#include "lather/shampoo.h"

#include <stdio.h>
#include <string.h>

/* --- A backend whose eigendecomposition fails on demand --- */

typedef enum fault_kind { NONE, ALL, ONE_SIZE, SINGLE_PRECISION } fault_kind;

enum { ROWS = 3, COLUMNS = 4, ENTRIES = ROWS * COLUMNS };

static fault_kind current;
static int calls_f64, calls_f32;

static bool must_fail(const lt_eigh_job *job)
{
    switch (current) {
    case ALL:
        return true;
    case ONE_SIZE:
        return job->a.shape.dim[0] == ROWS;
    case SINGLE_PRECISION:
        return job->a.dtype == LT_F32;
    case NONE:
        break;
    }
    return false;
}

static lt_status faulty_eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ++*(job[i].a.dtype == LT_F64 ? &calls_f64 : &calls_f32);
        if (must_fail(&job[i]))
            job[i].status = lt_fail(LT_E_DEVICE, "eigh: a fault of the test");
        else
            LT_TRY(lt_backend_ref()->eigh(ctx, &job[i], 1));
    }
    return LT_OK;
}

static lt_backend backend;

static void quiet(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level;
    (void)area;
    assert_non_null(strstr(text, "the old root stays"));
    ++*(int *)context;
}

static void open_faulty(fixture *f, bool f64)
{
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
    c.epsilon = 1e-3;
    c.max_preconditioner_dim = 8; /* the dimensions stay apart */
    fixture_open(f, f64);
    backend = *lt_backend_ref();
    backend.eigh = faulty_eigh;
    f->device->backend = &backend;
    fixture_add(f, "layer.weight", LT_SHAPE(ROWS, COLUMNS));
    assert_ok(lt_optim_shampoo(&f->optim, &f->list, &c));
    current = NONE;
    calls_f32 = calls_f64 = 0;
}

static void give(fixture *f, double factor)
{
    double g[ENTRIES];
    for (int i = 0; i < ENTRIES; i++)
        g[i] = factor * sin(1 + (double)f->attempt + 1.7 * i * i);
    put_grad(&f->param[0], g);
}

static lt_status try_step(fixture *f, fault_kind fault)
{
    current = fault;
    give(f, 1);
    const lt_step step = {.lr = 0.1, .attempt = ++f->attempt};
    return lt_optim_step(f->optim, &step);
}

/* --- Rows --- */

/* The count starts anew only when all matrices of the block succeed. */
static void the_fourth_failure_in_a_row_is_an_error(void **state)
{
    (void)state;
    static const fault_kind script[] = {ONE_SIZE, ALL, ALL, NONE, ALL, ONE_SIZE, ALL};
    fixture f;
    int warnings = 0;
    lt_log_set(quiet, &warnings);
    open_faulty(&f, true);
    for (size_t i = 0; i < COUNT_OF(script); i++)
        assert_ok(try_step(&f, script[i]));
    assert_status(try_step(&f, ONE_SIZE), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "layer.weight block 0"));
    assert_non_null(strstr(lt_error_message(), "step 8"));
    assert_int_equal(warnings, 1 + 2 + 2 + 2 + 1 + 2);
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

typedef struct roots {
    double value[2][COLUMNS * COLUMNS];
} roots;

static lt_status copy_root(void *context, const lt_state_entry *entry)
{
    roots *r = context;
    for (int d = 0; d < 2; d++) {
        char name[16];
        snprintf(name, sizeof name, "root.%d", d);
        if (!strcmp(entry->name, name))
            get(entry->tensor, r->value[d]);
    }
    return LT_OK;
}

static lt_status ignore_number(void *context, const char *name, int64_t *value)
{
    (void)context;
    (void)name;
    (void)value;
    return LT_OK;
}

static roots roots_of(fixture *f)
{
    roots r = {{{0}}};
    lt_state_visitor visitor = {copy_root, ignore_number, &r};
    assert_ok(lt_optim_visit(f->optim, &visitor));
    return r;
}

static void a_matrix_that_fails_keeps_its_old_root_and_the_others_get_new_ones(void **state)
{
    (void)state;
    fixture f;
    int warnings = 0;
    lt_log_set(quiet, &warnings);
    open_faulty(&f, true);
    assert_ok(try_step(&f, NONE));
    roots old = roots_of(&f);
    assert_ok(try_step(&f, ONE_SIZE));
    roots new = roots_of(&f);
    assert_memory_equal(old.value[0], new.value[0], sizeof old.value[0]);
    assert_memory_not_equal(old.value[1], new.value[1], sizeof old.value[1]);
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

static void what_fails_in_f32_is_tried_once_in_f64(void **state)
{
    (void)state;
    double f32[ENTRIES], f64[ENTRIES];
    fixture f, g;
    open_faulty(&f, false);
    assert_ok(try_step(&f, SINGLE_PRECISION));
    assert_int_equal(calls_f32, 2);
    assert_int_equal(calls_f64, 2);
    get(f.param[0].value, f32);
    fixture_close(&f);

    open_faulty(&g, true);
    assert_ok(try_step(&g, NONE));
    get(g.param[0].value, f64);
    for (int i = 0; i < ENTRIES; i++)
        assert_near(f32[i], f64[i], 1e-5);
    fixture_close(&g);
}

static void a_factor_that_overflows_is_an_error_with_its_name(void **state)
{
    (void)state;
    fixture f;
    open_faulty(&f, false);
    assert_ok(try_step(&f, NONE));
    give(&f, 1e25);
    const lt_step step = {.lr = 0.1, .attempt = ++f.attempt};
    assert_status(lt_optim_step(f.optim, &step), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "layer.weight block 0, dimension"));
    assert_non_null(strstr(lt_error_message(), "the factor is not finite at step 2"));
    fixture_close(&f);
}

/* --- Waves: a list of blocks that does not fit into scratch memory at once --- */

/* Blocks do not see each other without a global norm: the last block of a large parameter moves as
 * a parameter of its own. */
static void blocks_of_later_waves_move_as_if_alone(void **state)
{
    (void)state;
    enum { SIDE = 1472, BLOCK = 32, STEPS = 2 }; /* 2.2 million elements: two waves */
    static double big[SIDE * SIDE], small[BLOCK * BLOCK], got[BLOCK * BLOCK];
    lt_shampoo_config c = LT_SHAMPOO_DEFAULTS;
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
        cmocka_unit_test(the_fourth_failure_in_a_row_is_an_error),
        cmocka_unit_test(a_matrix_that_fails_keeps_its_old_root_and_the_others_get_new_ones),
        cmocka_unit_test(what_fails_in_f32_is_tried_once_in_f64),
        cmocka_unit_test(a_factor_that_overflows_is_an_error_with_its_name),
        cmocka_unit_test(blocks_of_later_waves_move_as_if_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
