/* Tensors as messages in row-major order, whatever their memory format. */
#ifndef LT_DIST_SHARD_TRANSFER_H
#define LT_DIST_SHARD_TRANSFER_H

#include "lather/detail/place_ops.h"

LT_MUST_CHECK lt_status lt_place_send(lt_comm *comm, const lt_tensor *tensor, int to);
/* host NULL: it is taken and thrown away. What fails aborts the group: the sender must not wait for ever. */
LT_MUST_CHECK lt_status lt_place_receive(lt_comm *comm, lt_dtype dtype, lt_shape shape, int from,
                                         void *host);

#endif
