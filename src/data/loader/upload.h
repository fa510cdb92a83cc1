/* Copies batches asynchronously to a device with separate memory, one batch ahead of the one in use. */
#ifndef LT_DATA_UPLOAD_H
#define LT_DATA_UPLOAD_H

#include "data/loader/prefetch.h"
#include "tensor/tensor.h"

typedef struct lt_upload lt_upload;

/* Allocates the upload slots. bytes: size of the largest batch. Needs a backend with uploads. Errors: LT_E_NOMEM. */
lt_status lt_upload_new(lt_upload **out, lt_device *device, size_t bytes);
/* Waits for copies in flight and frees the memory. */
void lt_upload_free(lt_upload **upload);

/* Allocates page-locked host memory for batches; lt_upload_free() frees it. May be called once. */
lt_status lt_upload_alloc_pinned(lt_upload *upload, size_t bytes, uint8_t **out);

/* Starts copying a batch from pinned memory (labels first, pixels last) to an upload slot, unless it was started. */
lt_status lt_upload_begin(lt_upload *upload, const lt_batch_slot *batch, size_t image_bytes);

/* A range of the batch's memory and the tensor for it; to is NULL if the range is unused. */
typedef struct lt_upload_part {
    lt_tensor *to;
    const void *from;
} lt_upload_part;
/* Enqueues the copies from the upload slot to the tensors; the slot is free after them. */
lt_status lt_upload_copy_to_tensors(lt_upload *upload, const lt_batch_slot *batch,
                                    const lt_upload_part *part, int parts);
/* Waits until the host memory of a batch may be overwritten. */
lt_status lt_upload_wait(lt_upload *upload, int64_t number);
/* Waits for copies in flight and discards them. */
lt_status lt_upload_reset(lt_upload *upload);

#endif
