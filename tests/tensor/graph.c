/* src/tensor/graph.c on a counting backend: captures, replays, steps that cannot be captured, and memory of
 * captured steps, which must not be reused. */

#include "lather/graph.h"

#include "near.h"
#include "tensor/tensor.h"

#include "lather/ext/fail.h"
#include "lather/ops.h"

#include <stdlib.h>

/* A captured graph is the number of its queued fills; the fake runs none of them. */
typedef struct fake {
    bool capturing, refuses;
    int begun, ended, launched, freed, allocated, filled;
} fake;

static fake seen;

static lt_status fake_begin(void *ctx)
{
    (void)ctx;
    assert_false(seen.capturing);
    seen.capturing = true;
    seen.begun++;
    return LT_OK;
}

static lt_status fake_end(void *ctx, void **out)
{
    (void)ctx;
    assert_true(seen.capturing);
    seen.capturing = false;
    seen.ended++;
    if (seen.refuses)
        return lt_fail(LT_E_UNSUPPORTED, "fake: no graphs today");
    if (out)
        *out = &seen;
    return LT_OK;
}

static lt_status fake_launch(void *ctx, void *graph)
{
    (void)ctx;
    assert_ptr_equal(graph, &seen);
    seen.launched++;
    return LT_OK;
}

static void fake_free(void *ctx, void *graph)
{
    (void)ctx;
    assert_ptr_equal(graph, &seen);
    seen.freed++;
}

static lt_status fake_alloc(void *ctx, size_t bytes, void **out)
{
    assert_false(seen.capturing);
    seen.allocated++;
    return lt_backend_ref()->alloc(ctx, bytes, out);
}

static lt_status fake_fill(void *ctx, double value, const lt_view *y)
{
    seen.filled++;
    return seen.capturing ? LT_OK : lt_backend_ref()->fill(ctx, value, y);
}

static const lt_graph_ops fake_graphs = {
    .begin = fake_begin, .end = fake_end, .launch = fake_launch, .free = fake_free};

/* The caller's table must outlive the device. */
static lt_device *open_fake(lt_backend *table, bool graphs)
{
    lt_device *d = NULL;
    seen = (fake){0};
    *table = *lt_backend_ref();
    table->graphs = graphs ? &fake_graphs : NULL;
    table->alloc = fake_alloc;
    table->fill = fake_fill;
    assert_ok(lt_device_open(&d, "ref", NULL));
    /* The allocator asks the table with which it was opened: this fake's. */
    lt_allocator_free(&d->allocator);
    d->backend = table;
    assert_ok(lt_allocator_new(&d->allocator, table, d->ctx));
    return d;
}

typedef enum trouble {
    NONE,
    READS,     /* reads the result within the step */
    ALLOCATES, /* allocates more in each run than in the one before */
    DROPS,     /* draws random elements */
    FAILS
} trouble;

enum { SIDE = 64, SECTION = 64 << 20 };

typedef struct work {
    lt_backend table;
    lt_device *device;
    lt_graph *graph;
    lt_tape *tape;
    lt_tensor *x, *result;
    trouble trouble;
    int calls;
    const void *address; /* address of the intermediate */
} work;

static void open_work(work *w, bool graphs, trouble kind)
{
    *w = (work){.trouble = kind};
    w->device = open_fake(&w->table, graphs);
    assert_ok(lt_tape_new(&w->tape, w->device));
    assert_ok(lt_tensor_new(&w->x, w->device, LT_F32, LT_SHAPE(SIDE, SIDE)));
    assert_ok(lt_tensor_new(&w->result, w->device, LT_F32, LT_SHAPE(SIDE, SIDE)));
}

static void close_work(work *w)
{
    lt_graph_free(&w->graph);
    lt_tape_free(&w->tape);
    lt_tensor_free(&w->x);
    lt_tensor_free(&w->result);
    lt_device_close(&w->device);
}

static lt_status make_trouble(work *w)
{
    float values[SIDE * SIDE];
    lt_buffer *more = NULL;
    switch (w->trouble) {
    case READS:
        return lt_tensor_read(w->result, values, sizeof values);
    case ALLOCATES:
        LT_TRY(lt_buffer_new(&more, w->device, (size_t)w->calls * SECTION));
        lt_buffer_release(&more);
        return LT_OK;
    case DROPS:
        (void)lt_dropout(w->tape, w->x, 0.5);
        return lt_tape_status(w->tape);
    case FAILS:
        return lt_fail(LT_E_ARG, "work: fails");
    case NONE:
        break;
    }
    return LT_OK;
}

static lt_status step(void *arg)
{
    work *w = arg;
    w->calls++;
    lt_tape_reset(w->tape, LT_PASS_TRAIN);
    lt_tensor *y = lt_scale(w->tape, w->x, 2);
    LT_TRY(lt_tape_status(w->tape));
    LT_TRY(make_trouble(w));
    w->address = lt_tensor_view(y).data;
    LT_TRY(lt_tensor_fill(w->result, 1));
    return lt_tensor_copy(w->result, y);
}

static void run_steps(work *w, int count)
{
    for (int i = 0; i < count; i++)
        assert_ok(lt_graph_run(w->device, &w->graph, (lt_graph_key){0}, step, w));
}

static void a_step_runs_twice_is_captured_and_replayed(void **state)
{
    (void)state;
    work w;
    open_work(&w, true, NONE);
    static const int calls[] = {1, 2, 3, 3, 3, 3}, launches[] = {0, 0, 1, 2, 3, 4};
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        run_steps(&w, 1);
        assert_int_equal(w.calls, calls[i]);
        assert_int_equal(seen.launched, launches[i]);
    }
    lt_graph_stats stats = lt_graph_statistics(w.graph);
    assert_int_equal(stats.eager, 2);
    assert_int_equal(stats.captures, 1);
    assert_int_equal(stats.replays, 4);
    assert_false(stats.failed);
    assert_int_equal(seen.begun, seen.ended);
    lt_graph_free(&w.graph);
    assert_int_equal(seen.freed, 1);
    assert_null(w.graph);
    close_work(&w);
}

static void each_key_has_its_own_graph(void **state)
{
    (void)state;
    work w;
    open_work(&w, true, NONE);
    /* Keys that differ from the first in one field: sizes 64 and 4160 are equal in their lowest 12 bits. */
    const lt_graph_key keys[] = {
        {.shape = LT_SHAPE(1, 3, 64, 64)},
        {.shape = LT_SHAPE(1, 3, 4160, 64)},
        {.shape = LT_SHAPE(1, 3, 64, 64), .first = true},
        {.shape = LT_SHAPE(1, 3, 64, 64), .last = true},
        {.shape = LT_SHAPE(1, 3, 64, 64), .kind = 1},
        {.shape = LT_SHAPE(1, 3, 64, 64), .input = &w},
    };
    enum { KEYS = COUNT_OF(keys) };
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < KEYS; k++)
            assert_ok(lt_graph_run(w.device, &w.graph, keys[k], step, &w));
    assert_int_equal(lt_graph_statistics(w.graph).eager, 2 * KEYS);
    assert_int_equal(lt_graph_statistics(w.graph).captures, KEYS);
    assert_int_equal(lt_graph_statistics(w.graph).replays, 3 * KEYS);
    for (int kind = 100; kind < 130; kind++) /* more than it stores: the others run eagerly */
        for (int i = 0; i < 3; i++)
            assert_ok(lt_graph_run(w.device, &w.graph, (lt_graph_key){.kind = kind}, step, &w));
    assert_true(lt_graph_statistics(w.graph).captures < KEYS + 30);
    close_work(&w);
}

static void random_numbers_are_not_captured(void **state)
{
    (void)state;
    static const char *const messages[] = {"dropout: cannot be captured",
                                           "drop_path: cannot be captured"};
    work w;
    open_work(&w, true, NONE);
    for (int i = 0; i < 2; i++) {
        lt_tape_reset(w.tape, LT_PASS_TRAIN);
        w.device->capturing = true;
        assert_null(i ? lt_drop_path(w.tape, w.x, 0.5) : lt_dropout(w.tape, w.x, 0.5));
        w.device->capturing = false;
        assert_fails(lt_tape_status(w.tape), LT_E_UNSUPPORTED, messages[i]);
    }
    close_work(&w);
}

static void a_backend_without_graphs_runs_steps_eagerly(void **state)
{
    (void)state;
    work w;
    open_work(&w, false, READS); /* a device without graphs, on which that works */
    run_steps(&w, 5);
    assert_int_equal(w.calls, 5);
    assert_null(w.graph);
    assert_int_equal(lt_graph_statistics(w.graph).replays, 0);
    close_work(&w);
}

static void without_a_pool_steps_run_eagerly(void **state)
{
    (void)state;
    work w;
    setenv("LATHER_POOL", "off", true);
    open_work(&w, true, NONE);
    unsetenv("LATHER_POOL");
    run_steps(&w, 5);
    assert_int_equal(w.calls, 5);
    assert_int_equal(seen.begun, 0);
    assert_null(w.graph);
    close_work(&w);
}

/* The device's work of every step is done, whatever the result of the capture. */
static void steps_that_cannot_be_captured_run_eagerly(void **state)
{
    (void)state;
    static const trouble troubles[] = {READS, ALLOCATES, DROPS};
    for (size_t i = 0; i < COUNT_OF(troubles); i++) {
        work w;
        open_work(&w, true, troubles[i]);
        run_steps(&w, 6);
        assert_int_equal(lt_graph_statistics(w.graph).eager, 6);
        assert_int_equal(lt_graph_statistics(w.graph).replays, 0);
        assert_true(lt_graph_statistics(w.graph).failed);
        assert_int_equal(seen.begun, 2); /* then it is no longer tried */
        assert_int_equal(seen.ended, 2);
        assert_false(w.device->capturing);
        close_work(&w);
    }
}

static void a_failed_capture_runs_eagerly(void **state)
{
    (void)state;
    work w;
    open_work(&w, true, NONE);
    seen.refuses = true;
    run_steps(&w, 3);
    assert_false(lt_graph_statistics(w.graph).failed); /* one more try */
    seen.refuses = false;
    run_steps(&w, 1);
    assert_int_equal(lt_graph_statistics(w.graph).captures, 1);
    assert_int_equal(lt_graph_statistics(w.graph).eager, 3);
    close_work(&w);
}

static void a_failing_step_keeps_its_message(void **state)
{
    (void)state;
    work w;
    open_work(&w, true, FAILS);
    for (int k = 0; k < 4; k++) {
        assert_status(lt_graph_run(w.device, &w.graph, (lt_graph_key){0}, step, &w), LT_E_ARG);
        assert_string_equal(lt_error_message(), "work: fails");
    }
    close_work(&w);
}

static void a_captured_steps_memory_is_not_reused(void **state)
{
    (void)state;
    work w;
    open_work(&w, true, NONE);
    run_steps(&w, 4);
    /* An evaluation: the step's chunks are free, but reserved. */
    lt_tape_reset(w.tape, LT_PASS_EVAL);
    enum { OTHERS = 8 };
    lt_tensor *other[OTHERS] = {NULL};
    const char *begin = w.address;
    for (int i = 0; i < OTHERS; i++) {
        assert_ok(lt_tensor_new(&other[i], w.device, LT_F32, LT_SHAPE(SIDE, SIDE)));
        const char *data = lt_tensor_view(other[i]).data;
        assert_true(data + lt_tensor_bytes(other[i]) <= begin
                    || data >= begin + lt_tensor_bytes(other[i]));
    }
    int before = seen.allocated;
    run_steps(&w, 4);
    assert_int_equal(seen.allocated, before); /* a steady step allocates nothing */
    for (int i = 0; i < OTHERS; i++)
        lt_tensor_free(&other[i]);

    /* Control: after the graph is freed, its memory is reused. */
    lt_graph_free(&w.graph);
    lt_tensor *big = NULL;
    size_t reserved = lt_device_memory(w.device).reserved;
    assert_ok(lt_tensor_new(&big, w.device, LT_F32, LT_SHAPE(SIDE, SIDE)));
    assert_int_equal(lt_device_memory(w.device).reserved, reserved);
    lt_tensor_free(&big);
    close_work(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_runs_twice_is_captured_and_replayed),
        cmocka_unit_test(each_key_has_its_own_graph),
        cmocka_unit_test(random_numbers_are_not_captured),
        cmocka_unit_test(a_backend_without_graphs_runs_steps_eagerly),
        cmocka_unit_test(without_a_pool_steps_run_eagerly),
        cmocka_unit_test(steps_that_cannot_be_captured_run_eagerly),
        cmocka_unit_test(a_failed_capture_runs_eagerly),
        cmocka_unit_test(a_failing_step_keeps_its_message),
        cmocka_unit_test(a_captured_steps_memory_is_not_reused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
