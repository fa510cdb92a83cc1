/** Asynchronous copies from the device: the host reads them later and queues more work meanwhile. */
#ifndef LATHER_DETAIL_READBACK_H
#define LATHER_DETAIL_READBACK_H

/* Not a stable interface: may change in any release. */

#include "lather/tensor.h"

typedef struct lt_readback lt_readback;

/** Creates a buffer of that many bytes. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_readback_new(lt_readback **out, lt_device *device, size_t bytes);
/** Waits for copies in flight and frees *readback, which may be NULL. */
LT_API void lt_readback_free(lt_readback **readback);

/** Empties the buffer. */
LT_API void lt_readback_begin(lt_readback *readback);
/** Queues a copy of the tensor's elements after all work so far; stored row-major after the tensors added
 *  before. Errors: LT_E_ARG (exceeds the buffer; not contiguous), LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_readback_add(lt_readback *readback, const lt_tensor *tensor);
/** Ends the list of copies that lt_readback_wait() waits for. */
LT_API LT_MUST_CHECK lt_status lt_readback_send(lt_readback *readback);
/** Waits for the copies, but not for work that was queued after lt_readback_send(). *data is borrowed until
 *  lt_readback_begin(). Devices without a queue copy at once. */
LT_API LT_MUST_CHECK lt_status lt_readback_wait(lt_readback *readback, const void **data);

/** Returns true if the device works asynchronously. */
LT_API bool lt_device_has_queue(const lt_device *device);

#endif
