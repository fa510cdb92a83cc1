/** Optional functions of backends with work queues: graph capture, uploads, events. */
#ifndef LATHER_DETAIL_QUEUES_H
#define LATHER_DETAIL_QUEUES_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/** Graph capture: work recorded once and launched again as a whole. */
typedef struct lt_graph_ops {
    /** Starts capturing: work for the main queue is recorded, not run. Calls that would wait for the device or
     *  allocate there fail. */
    lt_status (*begin)(void *ctx);
    /** Ends the capture in any case. out NULL: discards it. Errors: LT_E_UNSUPPORTED (the captured work cannot
     *  be launched). */
    lt_status (*end)(void *ctx, void **out);
    /** Queues the graph on the main queue. */
    lt_status (*launch)(void *ctx, void *graph);
    void (*free)(void *ctx, void *graph);
} lt_graph_ops;

enum { LT_UPLOAD_SLOTS = 2 };

/** Copies from the host on a separate queue, in slots 0 .. LT_UPLOAD_SLOTS-1, so that the next batch is
 *  uploaded while a step runs; and events of the main queue. */
typedef struct lt_upload_ops {
    /** Allocates page-locked host memory, aligned to 64 bytes. Errors: LT_E_NOMEM. */
    lt_status (*host_alloc)(void *ctx, size_t bytes, void **out);
    void (*host_free)(void *ctx, void *data);
    /** Queues a copy from page-locked memory to the device, in the slot. */
    lt_status (*copy)(void *ctx, int slot, void *dst, const void *src, size_t bytes);
    /** Makes later work of the main queue wait for the slot's copies. */
    lt_status (*stream_wait)(void *ctx, int slot);
    /** Makes later copies of the slot wait for the main queue's work so far. */
    lt_status (*record_stream)(void *ctx, int slot);
    /** Makes the host wait for the slot's copies. */
    lt_status (*wait)(void *ctx, int slot);
    /** Records an event after the main queue's work so far. Copies from the main queue to page-locked memory
     *  are queued like other work. */
    lt_status (*event_record)(void *ctx, uint64_t *event);
    /** Makes the host wait until the main queue has passed that event, or one shortly after it. */
    lt_status (*event_synchronize)(void *ctx, uint64_t event);
} lt_upload_ops;

#endif
