/* Batches on their way to a device with memory of its own, one ahead of the one in use. */
#ifndef LT_DATA_UPLOAD_H
#define LT_DATA_UPLOAD_H

#include "data/loader/ring.h"
#include "tensor/tensor.h"

typedef struct lt_upload lt_upload;

/* Room for batches of at most bytes each. The device's backend has uploads. Errors: LT_E_NOMEM. */
lt_status lt_upload_new(lt_upload **out, lt_device *device, size_t bytes);
/* Waits for what is on its way. */
void lt_upload_free(lt_upload **upload);

/* Page-locked memory to make batches in; NULL: none. Freed with the upload. */
lt_status lt_upload_host(lt_upload *upload, size_t bytes, uint8_t **out);

/* Begins to copy a slot's part of such memory, labels first and pixels last, unless that has begun. */
lt_status lt_upload_begin(lt_upload *upload, const lt_batch_slot *slot, size_t image_bytes);

/* Where a part of the slot's memory goes; to NULL: nowhere. */
typedef struct lt_upload_part {
    lt_tensor *to;
    const void *from;
} lt_upload_part;
/* Queues the copies behind the batch's arrival; then its room may be used again. */
lt_status lt_upload_place(lt_upload *upload, const lt_batch_slot *slot, const lt_upload_part *part,
                          int parts);
/* Waits until batch number's host memory may be written again. */
lt_status lt_upload_wait(lt_upload *upload, int64_t number);
/* Nothing that began counts any more; waits. */
lt_status lt_upload_forget(lt_upload *upload);

#endif
