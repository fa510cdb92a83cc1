/** Copies in flight from the device: the host reads them later and queues more work meanwhile. */
#ifndef LATHER_DETAIL_READBACK_H
#define LATHER_DETAIL_READBACK_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

typedef struct lt_readback lt_readback;

/** A capacity of so many bytes. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_readback_new(lt_readback **out, lt_device *device, size_t bytes);
/** Waits for what is in flight. *readback may be NULL. */
LT_API void lt_readback_free(lt_readback **readback);

/** Empties it. */
LT_API void lt_readback_begin(lt_readback *readback);
/** Queues a copy of the tensor's elements behind all work so far; they lie row-major behind those
 *  that were added before. Errors: LT_E_ARG (above the capacity; not contiguous), LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_readback_add(lt_readback *readback, const lt_tensor *tensor);
/** Nothing more will be added. */
LT_API LT_MUST_CHECK lt_status lt_readback_send(lt_readback *readback);
/** Waits for the copies, and for no work that was queued after lt_readback_send(). *data: lent until
 *  lt_readback_begin(). Devices without a queue copy at once. */
LT_API LT_MUST_CHECK lt_status lt_readback_wait(lt_readback *readback, const void **data);

/** Whether the device works on while the host does something else. */
LT_API bool lt_device_has_queue(const lt_device *device);

#endif
