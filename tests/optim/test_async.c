/* Shampoo's roots on a worker thread that is slow, fails, or is no longer needed. */

#include "refreshes.h"
#include "snapshot.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/log.h"

#include <pthread.h>

enum { F = 3, STEPS = 16 };

/* --- A worker thread that waits for the test --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;   /* the worker may continue */
    bool once;   /* closes the gate after one pass */
    bool inside; /* the worker is waiting */
    bool fail;   /* the worker fails instead */
    pthread_t main;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void gate_open(bool open)
{
    pthread_mutex_lock(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static void gate_pass(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.inside = true;
    pthread_cond_broadcast(&gate.changed);
    while (!gate.open)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.inside = false;
    gate.open = !gate.once;
    pthread_mutex_unlock(&gate.lock);
}

static void gate_wait_for_worker(void)
{
    pthread_mutex_lock(&gate.lock);
    while (!gate.inside)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static lt_status gated_eigh(void *ctx, lt_eigh_job *job, size_t count)
{
    const bool worker = !pthread_equal(pthread_self(), gate.main);
    if (worker)
        gate_pass();
    if (!worker || !gate.fail)
        return lt_backend_ref()->eigh(ctx, job, count);
    for (size_t i = 0; i < count; i++)
        job[i].status = lt_fail(LT_E_DEVICE, "eigh: a fault of the test");
    return LT_OK;
}

static lt_backend gated;

static void open_gated(fixture *f, const lt_shampoo_config *config, bool fail)
{
    gated = *lt_backend_ref();
    gated.eigh = gated_eigh;
    gate.main = pthread_self();
    gate.fail = fail;
    gate.inside = gate.once = false;
    gate_open(true);
    open_blocks(f, config);
    f->device->backend = &gated;
}

/* Opens the gate once the library logs that it waits. */
static void on_wait(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level;
    (void)area;
    if (!strstr(text, "waits for the roots"))
        return;
    ++*(int *)context;
    gate_open(true);
}

static void a_slow_thread_is_waited_for_and_the_wait_is_counted(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    int waits = 0;
    fixture fast, slow;
    open_blocks(&fast, &c);
    for (int t = 1; t <= STEPS; t++)
        step_blocks(&fast);
    const values want = values_of(&fast);
    fixture_close(&fast);

    lt_log_set(on_wait, &waits);
    assert_ok(lt_log_filter("optim=debug"));
    open_gated(&slow, &c, false);
    gate.once = true;
    gate_open(false);
    for (int t = 1; t <= STEPS; t++) {
        step_blocks(&slow);
        const lt_shampoo_stats got = lt_shampoo_statistics(slow.optim);
        const bool swap = t % F == 0 && t > 2 * F;
        assert_int_equal(got.wait_seconds > 0, swap);
        assert_int_equal(got.worker_seconds > 0, swap);
        assert_int_equal(got.roots, swap || t == F ? 14 : 0);
        assert_int_equal(got.root_age, t < F ? 0 : t < 3 * F ? t - F : t % F + F);
    }
    gate_open(true);
    lt_log_set(NULL, NULL);
    assert_ok(lt_log_filter("info"));
    assert_int_equal(waits, STEPS / F - 2);
    const values got = values_of(&slow);
    assert_memory_equal(&got, &want, sizeof got);
    fixture_close(&slow);
}

static void freed_while_the_thread_works(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    fixture f;
    open_gated(&f, &c, false);
    while (f.attempt < 2 * F) {
        gate_open(f.attempt < 2 * F - 1);
        step_blocks(&f);
    }
    gate_wait_for_worker(); /* it is inside a solver now */
    gate_open(true);
    fixture_close(&f);
}

/* --- Failures --- */

static void quiet(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level;
    (void)area;
    assert_non_null(strstr(text, "no root at step"));
    ++*(int *)context;
}

static void a_failure_counts_in_the_step_of_the_swap(void **state)
{
    (void)state;
    lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    int warnings = 0;
    seen s = {0};
    fixture f;
    c.tolerated_failures = 1;
    lt_log_set(quiet, &warnings);
    open_gated(&f, &c, true);
    while (f.attempt < F)
        step_blocks(&f); /* on this thread: succeeds */
    look(&s, f.optim);
    while (f.attempt < 4 * F - 1) {
        step_blocks(&f);
        look(&s, f.optim);
        for (int i = 0; i < s.count; i++)
            assert_false(s.block[i].changed);
        const lt_shampoo_stats got = lt_shampoo_statistics(f.optim);
        assert_int_equal(got.failures, f.attempt == 3 * F ? 14 : 0);
        assert_int_equal(got.root_age, f.attempt - F);
    }
    assert_int_equal(warnings, 14);
    const lt_step step = {.lr = 0.05, .attempt = ++f.attempt};
    assert_status(lt_optim_step(f.optim, &step), LT_E_ARG);
    assert_non_null(strstr(lt_error_message(), "no root at step 9"));
    lt_log_set(NULL, NULL);
    fixture_close(&f);
}

/* A factor that is not finite is found by the thread and reported by the step that swaps. */
static void a_factor_that_is_not_finite_is_reported_with_its_step(void **state)
{
    (void)state;
    const lt_shampoo_config c = small_blocks(LT_REFRESH_ASYNC, F);
    static snapshot unused;
    for (int at_checkpoint = 0; at_checkpoint < 2; at_checkpoint++) {
        fixture f;
        const double huge[6] = {1.2e154}; /* the square of one is finite, of two together not */
        open_blocks(&f, &c);
        while (f.attempt < 2 * F - 2)
            step_blocks(&f);
        put_grad(&f.param[2], huge);
        fixture_step(&f, 0.05);
        fixture_step(&f, 0.05);
        put_grad(&f.param[2], (double[6]){0});
        lt_state_visitor visitor = {on_entry, on_number, &unused};
        for (; f.attempt < 3 * F - 1 && !at_checkpoint;)
            fixture_step(&f, 0.05);
        const lt_step step = {.lr = 0.05, .attempt = 3 * F};
        assert_status(at_checkpoint ? lt_optim_visit(f.optim, &visitor)
                                    : lt_optim_step(f.optim, &step),
                      LT_E_ARG);
        assert_non_null(strstr(lt_error_message(), "small block 0, dimension"));
        assert_non_null(strstr(lt_error_message(), "the factor is not finite at step 6"));
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_thread_is_waited_for_and_the_wait_is_counted),
        cmocka_unit_test(freed_while_the_thread_works),
        cmocka_unit_test(a_failure_counts_in_the_step_of_the_swap),
        cmocka_unit_test(a_factor_that_is_not_finite_is_reported_with_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
