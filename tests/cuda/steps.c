/* Captures and uploads of the cuda backend: the calls that the fake device gets, in their order. */

#include "fake.h"
#include "near.h"

#include <stdio.h>

static lt_cuda *open_device(void)
{
    void *ctx = NULL;
    fake_reset((size_t)1 << 20);
    assert_ok(lt_cuda_open_with(&fake_api, &ctx, 0, &(lt_device_config){0}));
    return ctx;
}

static void close_device(lt_cuda *c)
{
    lt_cuda_close(c);
    assert_int_equal(fake.streams + fake.events + fake.graphs + fake.executables, 0);
}

/* Streams and events are numbered from 1 on, in the order in which they are created. */
enum { MAIN = LT_CUDA_MAIN + 1, COPIES = LT_CUDA_COPIES + 1 };

static void a_graph_is_captured_launched_and_freed(void **state)
{
    (void)state;
    lt_cuda *c = open_device();
    void *graph = NULL, *memory = NULL;
    assert_ok(lt_cuda_graphs.begin(c));
    assert_true(c->capturing);
    assert_status(lt_cuda_alloc(c, 64, &memory), LT_E_DEVICE); /* nothing may be allocated */
    assert_ok(lt_cuda_graphs.end(c, &graph));
    assert_false(c->capturing);
    assert_non_null(graph);
    fake.trace[0] = 0;
    assert_ok(lt_cuda_graphs.launch(c, graph));
    assert_ok(lt_cuda_graphs.launch(c, graph));
    assert_string_equal(fake.trace, "graph_launch(1,1) graph_launch(1,1)");
    lt_cuda_graphs.free(c, graph);
    close_device(c);
}

static void a_failed_capture_leaves_nothing(void **state)
{
    (void)state;
    lt_cuda *c = open_device();
    void *graph = NULL;
    fake.fails = "capture_end";
    fake.fails_with = 901;
    assert_ok(lt_cuda_graphs.begin(c));
    assert_status(lt_cuda_graphs.end(c, &graph), LT_E_DEVICE);
    assert_non_null(strstr(lt_error_message(), "cudaStreamEndCapture: CUDA says: a fault (901)"));
    assert_null(graph);
    assert_false(c->capturing);
    fake.fails = NULL;
    assert_ok(lt_cuda_graphs.begin(c)); /* discarded, whatever was captured */
    assert_ok(lt_cuda_graphs.end(c, NULL));
    assert_ok(lt_cuda_graphs.begin(c)); /* and the next is a good one */
    assert_ok(lt_cuda_graphs.end(c, &graph));
    lt_cuda_graphs.free(c, graph);
    close_device(c);
}

static void uploads_wait_for_their_slot_and_no_other(void **state)
{
    (void)state;
    lt_cuda *c = open_device();
    char text[FAKE_TRACE], from[16] = "", to[16];
    const int arrived[] = {1, 3}, freed = 2; /* events of slots 0 and 1 */
    assert_ok(lt_cuda_uploads.copy(c, 0, to, from, 10));
    assert_ok(lt_cuda_uploads.stream_wait(c, 0));
    assert_ok(lt_cuda_uploads.record_stream(c, 0));
    assert_ok(lt_cuda_uploads.copy(c, 1, to, from, 11)); /* does not wait for slot 0's step */
    assert_ok(lt_cuda_uploads.wait(c, 0));
    assert_ok(lt_cuda_uploads.copy(c, 0, to, from, 12));
    snprintf(text, sizeof text,
             "copy_async(10,%d) event_record(%d,%d) stream_wait(%d,%d) event_record(%d,%d) "
             "copy_async(11,%d) event_record(%d,%d) event_sync(%d,0) stream_wait(%d,%d) "
             "copy_async(12,%d) event_record(%d,%d)",
             COPIES, arrived[0], COPIES, MAIN, arrived[0], freed, MAIN, COPIES, arrived[1], COPIES,
             arrived[0], COPIES, freed, COPIES, arrived[0], COPIES);
    assert_string_equal(fake.trace, text);
    close_device(c);
}

/* Events are reused in turn: to wait for an old one is to wait for a later one. */
static void events_of_the_main_queue_are_waited_for(void **state)
{
    (void)state;
    enum { MARKS = 64, SLOTS = 2 * LT_UPLOAD_SLOTS };
    lt_cuda *c = open_device();
    char text[128];
    uint64_t event[MARKS + 2];
    for (int i = 0; i < MARKS + 2; i++) {
        fake.trace[0] = 0;
        assert_ok(lt_cuda_uploads.event_record(c, &event[i]));
        snprintf(text, sizeof text, "event_record(%d,%d)", SLOTS + 1 + i % MARKS, MAIN);
        assert_string_equal(fake.trace, text);
    }
    fake.trace[0] = 0;
    assert_ok(lt_cuda_uploads.event_synchronize(c, event[1])); /* reused by the last */
    assert_ok(lt_cuda_uploads.event_synchronize(c, event[MARKS - 1]));
    snprintf(text, sizeof text, "event_sync(%d,0) event_sync(%d,0)", SLOTS + 2, SLOTS + MARKS);
    assert_string_equal(fake.trace, text);
    close_device(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_captured_launched_and_freed),
        cmocka_unit_test(a_failed_capture_leaves_nothing),
        cmocka_unit_test(uploads_wait_for_their_slot_and_no_other),
        cmocka_unit_test(events_of_the_main_queue_are_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
