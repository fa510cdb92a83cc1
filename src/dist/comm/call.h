/* Calls of a communicator, checked and described. */
#ifndef LT_DIST_COMM_CALL_H
#define LT_DIST_COMM_CALL_H

#include "lather/ext/comm.h"

/* Checks the arguments of each call and describes it. */
lt_status lt_call_allreduce(lt_comm_call *call, const lt_comm *comm, lt_tensor *tensor,
                            lt_reduce op);
lt_status lt_call_parts(lt_comm_call *call, const lt_comm *comm, const lt_tensor *part,
                        const lt_tensor *whole, const int64_t *count);
lt_status lt_call_alltoall(lt_comm_call *call, const lt_comm *comm, const lt_tensor *in,
                           const lt_tensor *out);
lt_status lt_call_whole(lt_comm_call *call, const lt_comm *comm, const lt_tensor *tensor, int root);

/* "allreduce". */
const char *lt_call_name(lt_comm_what what);
/* "allreduce (sum) of 10 f32", into text of bytes. Returns text. */
const char *lt_call_text(const lt_comm_call *call, char *text, size_t bytes);
/* Where the part of rank begins, in elements; rank == size: the end. Without counts the elements
 * are cut as evenly as possible, the first parts longer. */
int64_t lt_call_offset(const lt_comm_call *call, int rank, int size);
/* The same of what an all-to-all receives. */
int64_t lt_call_received_offset(const lt_comm_call *call, int rank);
/* Payload in bytes that this rank sends and receives, by the formula in lather/comm.h. */
void lt_call_payload(const lt_comm_call *call, int rank, int size, uint64_t *sent,
                     uint64_t *received);

#endif
