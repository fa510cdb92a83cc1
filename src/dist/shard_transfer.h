/* Sends tensors in row-major order, whatever their memory format. */
#ifndef LT_DIST_SHARD_TRANSFER_H
#define LT_DIST_SHARD_TRANSFER_H

#include "lather/detail/place_ops.h"

LT_MUST_CHECK lt_status lt_place_send(lt_comm *comm, const lt_tensor *tensor, int to);
/* Receives into host memory; host NULL discards the tensor. A failure aborts the group, so that the sender does not wait
 * forever. */
LT_MUST_CHECK lt_status lt_place_receive(lt_comm *comm, lt_dtype dtype, lt_shape shape, int from,
                                         void *host);

#endif
