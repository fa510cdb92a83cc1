/** What a backend with queues of its own may offer beyond its entries. */
#ifndef LATHER_DETAIL_QUEUES_H
#define LATHER_DETAIL_QUEUES_H

/* Not a stable interface: may change in any release. */

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/** Graph capture: work captured once and launched again as one piece. */
typedef struct lt_graph_ops {
    /** From here on work for the main queue is captured, not run; a call that would have to wait
     *  for the device, or to allocate there, fails. */
    lt_status (*begin)(void *ctx);
    /** Ends the capture, always. out NULL: discards it. Errors: LT_E_UNSUPPORTED (what was captured
     *  cannot be launched). */
    lt_status (*end)(void *ctx, void **out);
    /** Queues it on the main queue. */
    lt_status (*launch)(void *ctx, void *graph);
    void (*free)(void *ctx, void *graph);
} lt_graph_ops;

enum { LT_UPLOAD_SLOTS = 2 };

/** Copies from the host on a queue of their own, in slots 0 .. LT_UPLOAD_SLOTS-1, for the next batch
 *  while a step runs; and events of the main queue, for a host that runs ahead of it. */
typedef struct lt_upload_ops {
    /** Page-locked memory of the host, aligned to 64 bytes. Errors: LT_E_NOMEM. */
    lt_status (*host_alloc)(void *ctx, size_t bytes, void **out);
    void (*host_free)(void *ctx, void *data);
    /** Queues a copy from such memory to the device in the slot. */
    lt_status (*copy)(void *ctx, int slot, void *dst, const void *src, size_t bytes);
    /** What the main queue gets from now on waits for the slot's copies. */
    lt_status (*stream_wait)(void *ctx, int slot);
    /** The slot's next copies wait for what the main queue has now. */
    lt_status (*record_stream)(void *ctx, int slot);
    /** The host waits for the slot's copies. */
    lt_status (*wait)(void *ctx, int slot);
    /** *event: behind what the main queue has now. Copies of the main queue to page-locked memory
     *  are queued like other work. */
    lt_status (*event_record)(void *ctx, uint64_t *event);
    /** The host waits until the main queue has passed that event, or one a little later. */
    lt_status (*event_synchronize)(void *ctx, uint64_t event);
} lt_upload_ops;

#endif
