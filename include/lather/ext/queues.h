/** What a backend with queues of its own may offer beyond its entries. */
#ifndef LATHER_EXT_QUEUES_H
#define LATHER_EXT_QUEUES_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

/** Work recorded once and queued again as one piece. */
typedef struct lt_graph_ops {
    /** From here on work for the main queue is recorded, not run; a call that would have to wait
     *  for the device, or to allocate there, fails. */
    lt_status (*begin)(void *ctx);
    /** Ends the recording, always. out NULL: throws it away. Errors: LT_E_UNSUPPORTED (what was
     *  recorded cannot be run again). */
    lt_status (*end)(void *ctx, void **out);
    /** Queues it on the main queue. */
    lt_status (*launch)(void *ctx, void *graph);
    void (*free)(void *ctx, void *graph);
} lt_graph_ops;

enum { LT_UPLOAD_LANES = 2 };

/** Copies from the host on a queue of their own, in lanes 0 .. LT_UPLOAD_LANES-1: for the next
 *  batch while a step runs; and places in the main queue, for a host that runs ahead of it. */
typedef struct lt_upload_ops {
    /** Page-locked memory of the host, aligned to 64 bytes. Errors: LT_E_NOMEM. */
    lt_status (*host_alloc)(void *ctx, size_t bytes, void **out);
    void (*host_free)(void *ctx, void *data);
    /** Queues a copy from such memory to the device on the lane. */
    lt_status (*copy)(void *ctx, int lane, void *dst, const void *src, size_t bytes);
    /** What the main queue gets from now on waits for the lane's copies. */
    lt_status (*join)(void *ctx, int lane);
    /** The lane's next copies wait for what the main queue has now. */
    lt_status (*follow)(void *ctx, int lane);
    /** The host waits for the lane's copies. */
    lt_status (*wait)(void *ctx, int lane);
    /** *place: behind what the main queue has now. Copies of the main queue to page-locked memory
     *  are queued like other work. */
    lt_status (*mark)(void *ctx, uint64_t *place);
    /** The host waits until the main queue has come to that place, or a little beyond. */
    lt_status (*reach)(void *ctx, uint64_t place);
} lt_upload_ops;

#endif
