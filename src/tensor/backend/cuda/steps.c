/* Graph capture and replay of steps, and uploads from the host on a separate stream. */

#include "cuda.h"

#include <stdlib.h>

enum { ARRIVED, FREE, SLOT_EVENTS };

/* Size of the ring of events. At most 16 steps of an optimizer's blocks are in flight, with two or three events each;
 * to synchronize with an event that was reused waits longer than necessary, and is correct. */
enum { MAIN_EVENTS = 64 };

/* The part LT_CUDA_STEPS of a context. */
typedef struct upload_slots {
    lt_cuda_event event[LT_UPLOAD_SLOTS][SLOT_EVENTS];
    bool waits[LT_UPLOAD_SLOTS];     /* the next copy waits for FREE */
    lt_cuda_event main[MAIN_EVENTS]; /* ring of the main stream */
    uint64_t recorded;
} upload_slots;

static void close_slots(lt_cuda *c, void *data)
{
    upload_slots *l = data;
    for (int i = 0; i < LT_UPLOAD_SLOTS; i++)
        for (int k = 0; k < SLOT_EVENTS; k++)
            if (l->event[i][k])
                c->api->event_destroy(l->event[i][k]);
    for (int i = 0; i < MAIN_EVENTS; i++)
        if (l->main[i])
            c->api->event_destroy(l->main[i]);
    free(l);
}

/* Begins an entry that uses the slots, and creates them at the first call. */
static lt_status begin_with_slots(lt_cuda *c, const char *operation, upload_slots **out)
{
    lt_cuda_part *part = &c->part[LT_CUDA_STEPS];
    LT_TRY(lt_cuda_begin(c, operation));
    *out = part->data;
    if (*out)
        return LT_OK;
    upload_slots *l = calloc(1, sizeof *l);
    if (!l)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory for upload slots", c->ordinal);
    part->data = *out = l;
    part->close = close_slots;
    for (int i = 0; i < LT_UPLOAD_SLOTS; i++)
        for (int k = 0; k < SLOT_EVENTS; k++)
            LT_CUDA_TRY(c, "cudaEventCreateWithFlags",
                        c->api->event_create(&l->event[i][k], false));
    for (int i = 0; i < MAIN_EVENTS; i++)
        LT_CUDA_TRY(c, "cudaEventCreateWithFlags", c->api->event_create(&l->main[i], false));
    return LT_OK;
}

static lt_status begin_capture(void *ctx)
{
    lt_cuda *c = ctx;
    if (c->sync)
        return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: with LATHER_SYNC=1 steps are not captured",
                       c->ordinal);
    LT_TRY(lt_cuda_begin(c, "capture"));
    LT_CUDA_TRY(c, "cudaStreamBeginCapture", c->api->capture_begin(c->stream[LT_CUDA_MAIN]));
    c->capturing = true;
    return lt_cuda_end(c);
}

/* A call that failed during the capture has returned its error already; it is reset, so that the next
 * launch does not report it. */
static lt_status end_capture(void *ctx, void **out)
{
    lt_cuda *c = ctx;
    lt_cuda_graph graph = NULL;
    lt_cuda_graph_exec exec = NULL;
    LT_TRY(lt_cuda_begin(c, "capture"));
    c->capturing = false;
    int code = c->api->capture_end(c->stream[LT_CUDA_MAIN], &graph);
    if (!out) {
        if (graph)
            c->api->graph_destroy(graph);
        c->api->last_error();
        c->operation = NULL;
        return LT_OK;
    }
    lt_status st = lt_cuda_check(c, LT_CUDA_RUNTIME, code, "cudaStreamEndCapture");
    if (!st)
        st = lt_cuda_check(c, LT_CUDA_RUNTIME, c->api->graph_instantiate(&exec, graph),
                           "cudaGraphInstantiate");
    if (graph)
        c->api->graph_destroy(graph);
    if (st) {
        c->operation = NULL;
        return st;
    }
    *out = exec;
    return lt_cuda_end(c);
}

static lt_status launch_step(lt_cuda *c, void *graph)
{
    LT_TRY(lt_cuda_begin(c, "recorded step"));
    LT_CUDA_TRY(c, "cudaGraphLaunch", c->api->graph_launch(graph, c->stream[LT_CUDA_MAIN]));
    c->replayed = true;
    return lt_cuda_end(c);
}

static lt_status launch_graph(void *ctx, void *graph)
{
    lt_cuda *c = ctx;
    if (!c->hooks.before)
        return launch_step(c, graph);
    LT_TRY(c->hooks.before(c->hooks.context));
    lt_status st = launch_step(c, graph);
    c->hooks.after(c->hooks.context);
    return st;
}

static void free_graph(void *ctx, void *graph)
{
    lt_cuda *c = ctx;
    if (!lt_cuda_begin(c, "free")) {
        c->api->stream_sync(c->stream[LT_CUDA_MAIN]);
        c->api->graph_exec_destroy(graph);
        c->api->last_error(); /* free returns void */
    }
    c->operation = NULL;
}

static lt_status host_alloc(void *ctx, size_t bytes, void **out)
{
    lt_cuda *c = ctx;
    LT_TRY(lt_cuda_begin(c, "page-locked memory"));
    LT_CUDA_TRY(c, "cudaMallocHost", c->api->alloc_host(out, bytes)); /* aligned to pages */
    return lt_cuda_end(c);
}

static void host_free(void *ctx, void *data)
{
    lt_cuda *c = ctx;
    if (!lt_cuda_begin(c, "free")) {
        c->api->release_host(data);
        c->api->last_error(); /* free returns void */
    }
    c->operation = NULL;
}

static lt_status copy_to_slot(void *ctx, int slot, void *dst, const void *src, size_t bytes)
{
    lt_cuda *c = ctx;
    upload_slots *l;
    lt_cuda_stream stream = c->stream[LT_CUDA_COPIES];
    LT_TRY(begin_with_slots(c, "upload", &l));
    if (l->waits[slot])
        LT_CUDA_TRY(c, "cudaStreamWaitEvent", c->api->stream_wait(stream, l->event[slot][FREE]));
    l->waits[slot] = false;
    LT_CUDA_TRY(c, "cudaMemcpyAsync", c->api->copy_async(dst, src, bytes, LT_COPY_IN, stream));
    LT_CUDA_TRY(c, "cudaEventRecord", c->api->event_record(l->event[slot][ARRIVED], stream));
    return lt_cuda_end(c);
}

static lt_status stream_wait(void *ctx, int slot)
{
    lt_cuda *c = ctx;
    upload_slots *l;
    LT_TRY(begin_with_slots(c, "upload", &l));
    LT_CUDA_TRY(c, "cudaStreamWaitEvent",
                c->api->stream_wait(c->stream[LT_CUDA_MAIN], l->event[slot][ARRIVED]));
    return lt_cuda_end(c);
}

/* The copy stream waits only before the slot's next copy, because all slots share it. */
static lt_status record_stream(void *ctx, int slot)
{
    lt_cuda *c = ctx;
    upload_slots *l;
    LT_TRY(begin_with_slots(c, "upload", &l));
    LT_CUDA_TRY(c, "cudaEventRecord",
                c->api->event_record(l->event[slot][FREE], c->stream[LT_CUDA_MAIN]));
    l->waits[slot] = true;
    return lt_cuda_end(c);
}

static lt_status wait_for_slot(void *ctx, int slot)
{
    lt_cuda *c = ctx;
    upload_slots *l;
    LT_TRY(begin_with_slots(c, "upload", &l));
    LT_CUDA_TRY(c, "cudaEventSynchronize", c->api->event_sync(l->event[slot][ARRIVED]));
    return lt_cuda_end(c);
}

static lt_status event_record(void *ctx, uint64_t *event)
{
    lt_cuda *c = ctx;
    upload_slots *l;
    LT_TRY(begin_with_slots(c, "event_record", &l));
    LT_CUDA_TRY(c, "cudaEventRecord",
                c->api->event_record(l->main[l->recorded % MAIN_EVENTS], c->stream[LT_CUDA_MAIN]));
    *event = l->recorded++;
    return lt_cuda_end(c);
}

/* If the event was reused since, the wait is for a later point. */
static lt_status event_synchronize(void *ctx, uint64_t event)
{
    lt_cuda *c = ctx;
    upload_slots *l;
    LT_TRY(begin_with_slots(c, "wait for results", &l));
    LT_CUDA_TRY(c, "cudaEventSynchronize", c->api->event_sync(l->main[event % MAIN_EVENTS]));
    return lt_cuda_end(c);
}

const lt_graph_ops lt_cuda_graphs = {begin_capture, end_capture, launch_graph, free_graph};
const lt_upload_ops lt_cuda_uploads = {
    .host_alloc = host_alloc,
    .host_free = host_free,
    .copy = copy_to_slot,
    .stream_wait = stream_wait,
    .record_stream = record_stream,
    .wait = wait_for_slot,
    .event_record = event_record,
    .event_synchronize = event_synchronize,
};
