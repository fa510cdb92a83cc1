/* Asynchronous copies of batches to a device with memory of its own, one batch ahead of the one in
 * use. */
#ifndef LT_DATA_UPLOAD_H
#define LT_DATA_UPLOAD_H

#include "data/loader/prefetch.h"
#include "tensor/tensor.h"

typedef struct lt_upload lt_upload;

/* bytes: of the largest batch. The device's backend has uploads. Errors: LT_E_NOMEM. */
lt_status lt_upload_new(lt_upload **out, lt_device *device, size_t bytes);
/* Waits for copies in flight. */
void lt_upload_free(lt_upload **upload);

/* Page-locked memory to make batches in; NULL: none. Freed with the upload. */
lt_status lt_upload_host(lt_upload *upload, size_t bytes, uint8_t **out);

/* Starts the copy of a batch from such memory, labels first and pixels last, unless it was
 * started. */
lt_status lt_upload_begin(lt_upload *upload, const lt_batch_slot *batch, size_t image_bytes);

/* The tensor that gets a part of the batch's memory; NULL: the part is not used. */
typedef struct lt_upload_part {
    lt_tensor *to;
    const void *from;
} lt_upload_part;
/* Queues the copies from the upload slot to the tensors; the slot is free after them. */
lt_status lt_upload_place(lt_upload *upload, const lt_batch_slot *batch, const lt_upload_part *part,
                          int parts);
/* Waits until batch number's host memory may be written again. */
lt_status lt_upload_wait(lt_upload *upload, int64_t number);
/* Waits for copies in flight and drops them. */
lt_status lt_upload_reset(lt_upload *upload);

#endif
