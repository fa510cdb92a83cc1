/* Batches on their way to a device with memory of its own, one ahead of the one in use. */
#ifndef LT_DATA_UPLOAD_H
#define LT_DATA_UPLOAD_H

#include "tensor/tensor.h"

typedef struct lt_upload lt_upload;

/* Room for batches of at most bytes each. The device's backend has uploads. Errors: LT_E_NOMEM. */
lt_status lt_upload_new(lt_upload **out, lt_device *device, size_t bytes);
/* Waits for what is on its way. */
void lt_upload_free(lt_upload **upload);

/* Page-locked memory to make batches in; NULL: none. Freed with the upload. */
lt_status lt_upload_host(lt_upload *upload, size_t bytes, uint8_t **out);

/* Begins to copy batch number from such memory, unless that has begun. */
lt_status lt_upload_begin(lt_upload *upload, int64_t number, const uint8_t *host, size_t bytes);
/* Queues a copy of a part of the batch to where it is wanted. */
lt_status lt_upload_place(lt_upload *upload, int64_t number, void *dst, size_t offset,
                          size_t bytes);
/* All parts are placed: its room may be used again. */
lt_status lt_upload_placed(lt_upload *upload, int64_t number);
/* Waits until batch number's host memory may be written again. */
lt_status lt_upload_wait(lt_upload *upload, int64_t number);
/* Nothing that began counts any more; waits. */
lt_status lt_upload_forget(lt_upload *upload);

#endif
