/* Captures and uploads of the cuda backend on a table of calls that only writes them down. */

#include "tensor/backend/cuda/steps.h"

#include "near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls so far, a word each. Streams and events are numbers in disguise. */
static char calls[1024];
static int made, fails_at, captures;
static bool capturing;

static void note(const char *word, uintptr_t a, uintptr_t b)
{
    size_t used = strlen(calls);
    snprintf(calls + used, sizeof calls - used, "%s%s(%d,%d)", used ? " " : "", word, (int)a,
             (int)b);
}

static int create(void *out)
{
    uintptr_t number = (uintptr_t)++made;
    memcpy(out, &number, sizeof number);
    return 0;
}

static int set_device(int ordinal)
{
    (void)ordinal;
    return 0;
}
static int properties(int ordinal, lt_cuda_properties *out)
{
    (void)ordinal;
    *out = (lt_cuda_properties){.major = 9};
    return 0;
}
static int stream_create(lt_cuda_stream *out, bool urgent)
{
    (void)urgent;
    return create(out);
}
static int stream_call(lt_cuda_stream stream)
{
    (void)stream;
    return 0;
}
static int stream_wait(lt_cuda_stream stream, lt_cuda_event event)
{
    note("wait", (uintptr_t)stream, (uintptr_t)event);
    return 0;
}
static int event_create(lt_cuda_event *out, bool timing)
{
    (void)timing;
    return create(out);
}
static int event_destroy(lt_cuda_event event)
{
    (void)event;
    made--;
    return 0;
}
static int stream_destroy(lt_cuda_stream stream)
{
    (void)stream;
    made--;
    return 0;
}
static int event_record(lt_cuda_event event, lt_cuda_stream stream)
{
    note("record", (uintptr_t)event, (uintptr_t)stream);
    return 0;
}
static int event_sync(lt_cuda_event event)
{
    note("sync", (uintptr_t)event, 0);
    return 0;
}
static int copy_async(void *dst, const void *src, size_t bytes, lt_copy_kind kind,
                      lt_cuda_stream stream)
{
    (void)dst;
    (void)src;
    note("copy", bytes, (uintptr_t)stream);
    return kind == LT_COPY_IN ? 0 : 1;
}
static int capture_begin(lt_cuda_stream stream)
{
    note("begin", (uintptr_t)stream, 0);
    capturing = true;
    return 0;
}
static int capture_end(lt_cuda_stream stream, lt_cuda_graph *out)
{
    (void)stream;
    capturing = false;
    captures++;
    *out = NULL;
    return captures == fails_at ? 901 : create(out);
}
static int instantiate(lt_cuda_graph_exec *out, lt_cuda_graph graph)
{
    note("instantiate", (uintptr_t)graph, 0);
    return create(out);
}
static int graph_launch(lt_cuda_graph_exec exec, lt_cuda_stream stream)
{
    (void)exec;
    note("launch", (uintptr_t)stream, 0);
    return 0;
}
static int graph_destroy(lt_cuda_graph graph)
{
    (void)graph;
    made--;
    return 0;
}
static int exec_destroy(lt_cuda_graph_exec exec)
{
    (void)exec;
    made--;
    return 0;
}
static int last_error(void)
{
    return 0;
}
static const char *text(lt_cuda_library library, int code)
{
    (void)library;
    return code == 901 ? "the capture is invalid" : "a failure";
}
static lt_status libraries_open(struct lt_cuda *c)
{
    (void)c;
    return LT_OK;
}
static void libraries_close(struct lt_cuda *c)
{
    (void)c;
}

static const lt_cuda_api api = {
    .set_device = set_device,
    .properties = properties,
    .copy_async = copy_async,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_call,
    .stream_wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_sync = event_sync,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_instantiate = instantiate,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .graph_exec_destroy = exec_destroy,
    .last_error = last_error,
    .text = text,
    .libraries_open = libraries_open,
    .libraries_close = libraries_close,
};

static lt_cuda *open_fake(void)
{
    void *ctx = NULL;
    made = fails_at = captures = 0;
    calls[0] = 0;
    assert_ok(lt_cuda_open_with(&api, &ctx, 0, &(lt_device_config){0}));
    return ctx;
}

static void close_fake(lt_cuda *c)
{
    lt_cuda_close(c);
    assert_int_equal(made, 0); /* nothing is left */
}

/* Streams are the first that were made, then come events. */
enum { MAIN = LT_CUDA_MAIN + 1, COPIES = LT_CUDA_COPIES + 1, FIRST = LT_CUDA_QUEUES + 1 };

static void a_graph_is_captured_launched_and_freed(void **state)
{
    (void)state;
    lt_cuda *c = open_fake();
    void *graph = NULL, *memory = NULL;
    assert_ok(lt_cuda_graphs.begin(c));
    assert_true(c->capturing && capturing);
    assert_status(lt_cuda_alloc(c, 64, &memory), LT_E_DEVICE); /* nothing may be allocated */
    assert_ok(lt_cuda_graphs.end(c, &graph));
    assert_false(c->capturing || capturing);
    assert_non_null(graph);
    calls[0] = 0;
    assert_ok(lt_cuda_graphs.launch(c, graph));
    assert_ok(lt_cuda_graphs.launch(c, graph));
    assert_string_equal(calls, "launch(1,0) launch(1,0)");
    lt_cuda_graphs.free(c, graph);
    close_fake(c);
}

static void a_failed_capture_leaves_nothing(void **state)
{
    (void)state;
    lt_cuda *c = open_fake();
    void *graph = NULL;
    fails_at = 1;
    assert_ok(lt_cuda_graphs.begin(c));
    assert_status(lt_cuda_graphs.end(c, &graph), LT_E_DEVICE);
    assert_non_null(strstr(lt_error_message(), "the capture is invalid"));
    assert_null(graph);
    assert_false(c->capturing);
    assert_ok(lt_cuda_graphs.begin(c)); /* thrown away: whatever it was */
    assert_ok(lt_cuda_graphs.end(c, NULL));
    assert_ok(lt_cuda_graphs.begin(c)); /* and the next is a good one */
    assert_ok(lt_cuda_graphs.end(c, &graph));
    lt_cuda_graphs.free(c, graph);
    close_fake(c);
}

static void uploads_wait_for_their_slot_and_no_other(void **state)
{
    (void)state;
    lt_cuda *c = open_fake();
    char text[512];
    int byte = 0;
    const int arrived[] = {FIRST, FIRST + 2}, freed[] = {FIRST + 1, FIRST + 3};
    assert_ok(lt_cuda_uploads.copy(c, 0, &byte, &byte, 10));
    assert_ok(lt_cuda_uploads.stream_wait(c, 0));
    assert_ok(lt_cuda_uploads.record_stream(c, 0));
    assert_ok(lt_cuda_uploads.copy(c, 1, &byte, &byte, 11)); /* does not wait for slot 0's step */
    assert_ok(lt_cuda_uploads.wait(c, 0));
    assert_ok(lt_cuda_uploads.copy(c, 0, &byte, &byte, 12));
    snprintf(text, sizeof text,
             "copy(10,%d) record(%d,%d) wait(%d,%d) record(%d,%d) copy(11,%d) record(%d,%d) "
             "sync(%d,0) wait(%d,%d) copy(12,%d) record(%d,%d)",
             COPIES, arrived[0], COPIES, MAIN, arrived[0], freed[0], MAIN, COPIES, arrived[1],
             COPIES, arrived[0], COPIES, freed[0], COPIES, arrived[0], COPIES);
    assert_string_equal(calls, text);
    close_fake(c);
}

/* Marks are events by turns; one long ago is waited for by a later one. */
static void events_of_the_main_queue_are_waited_for(void **state)
{
    (void)state;
    enum { MARKS = 64, SLOTS = 2 * LT_UPLOAD_SLOTS };
    lt_cuda *c = open_fake();
    char text[64];
    uint64_t event[MARKS + 2];
    for (int i = 0; i < MARKS + 2; i++) {
        calls[0] = 0;
        assert_ok(lt_cuda_uploads.event_record(c, &event[i]));
        snprintf(text, sizeof text, "record(%d,%d)", FIRST + SLOTS + i % MARKS, MAIN);
        assert_string_equal(calls, text);
    }
    calls[0] = 0;
    assert_ok(lt_cuda_uploads.event_synchronize(c, event[1])); /* taken again by the last */
    assert_ok(lt_cuda_uploads.event_synchronize(c, event[MARKS - 1]));
    snprintf(text, sizeof text, "sync(%d,0) sync(%d,0)", FIRST + SLOTS + 1,
             FIRST + SLOTS + MARKS - 1);
    assert_string_equal(calls, text);
    close_fake(c);
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
