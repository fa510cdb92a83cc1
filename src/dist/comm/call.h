/* Argument checks of a communicator's calls, and properties of a call. */
#ifndef LT_DIST_COMM_CALL_H
#define LT_DIST_COMM_CALL_H

#include "lather/ext/comm.h"

/* Check the arguments of a call and fill *call. lt_call_fill_bcast_send_recv() is for broadcast, send and recv. */
lt_status lt_call_fill_allreduce(lt_comm_call *call, const lt_comm *comm, lt_tensor *tensor,
                                 lt_reduce op);
lt_status lt_call_fill_sharded(lt_comm_call *call, const lt_comm *comm, const lt_tensor *shard,
                               const lt_tensor *whole, const int64_t *count);
lt_status lt_call_fill_alltoall(lt_comm_call *call, const lt_comm *comm, const lt_tensor *in,
                                const lt_tensor *out);
lt_status lt_call_fill_bcast_send_recv(lt_comm_call *call, const lt_comm *comm,
                                       const lt_tensor *tensor, int root);

/* Returns the name of a call: "allreduce". */
const char *lt_call_name(lt_comm_call_kind what);
/* Writes "allreduce (sum) of 10 f32" to text (of `bytes` bytes) and returns it. */
const char *lt_call_text(const lt_comm_call *call, char *text, size_t bytes);
/* Returns the element offset of rank's chunk; of the end if rank == size. Without counts the chunks are as even as
 * possible, the first ones longer. */
int64_t lt_call_chunk_offset(const lt_comm_call *call, int rank, int size);
/* The same of chunks as even as possible, without the call's counts. */
int64_t lt_call_piece_offset(const lt_comm_call *call, int rank, int size);
/* Returns the element offset of rank's data in the output of an all-to-all. */
int64_t lt_call_received_offset(const lt_comm_call *call, int rank);
/* Computes the payload bytes that this rank sends and receives, by the formula in lather/comm.h. */
void lt_call_payload_bytes(const lt_comm_call *call, int rank, int size, uint64_t *sent,
                           uint64_t *received);

#endif
