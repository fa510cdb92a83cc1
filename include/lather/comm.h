/** Collective operations between the ranks of one training run. */
#ifndef LATHER_COMM_H
#define LATHER_COMM_H

#include "lather/tensor.h"

/** One rank's end of the group. All ranks issue the same collectives in the same order. */
typedef struct lt_comm lt_comm;
typedef struct lt_request lt_request;

typedef enum lt_reduce { LT_REDUCE_SUM, LT_REDUCE_MEAN, LT_REDUCE_MAX } lt_reduce;

/** kind: "self" (one rank), "threads" (ranks in one process), "mpi" or "nccl". Collective.
 *  Errors: LT_E_UNSUPPORTED (not in this build), LT_E_ARG, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_comm_open(lt_comm **out, const char *kind, lt_device *device);
LT_API void lt_comm_close(lt_comm **comm);

LT_API int lt_comm_rank(const lt_comm *comm); /**< 0 .. size-1 */
LT_API int lt_comm_size(const lt_comm *comm);
/** Payload bytes that this rank has sent so far, by the formula of each collective. */
LT_API uint64_t lt_comm_bytes(const lt_comm *comm);

/** Starts an in-place reduction; tensor is lent until lt_request_wait(). Requests of one
 *  communicator complete in the order of issue. */
LT_API LT_MUST_CHECK lt_status lt_comm_allreduce_begin(lt_comm *comm, lt_tensor *tensor,
                                                       lt_reduce op, lt_request **request);
/** Each rank contributes count[rank] elements; bytes counted are payload, without padding. */
LT_API LT_MUST_CHECK lt_status lt_comm_allgather_begin(lt_comm *comm, const lt_tensor *part,
                                                       lt_tensor *whole, const int64_t *count,
                                                       lt_request **request);
/** part gets this rank's count[rank] elements of the sum over ranks of whole. */
LT_API LT_MUST_CHECK lt_status lt_comm_reducescatter_begin(lt_comm *comm, const lt_tensor *whole,
                                                           lt_tensor *part, const int64_t *count,
                                                           lt_reduce op, lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_broadcast_begin(lt_comm *comm, lt_tensor *tensor, int root,
                                                       lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_barrier(lt_comm *comm);
/** Waits, frees *request and sets it to NULL. Errors: LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_request_wait(lt_request **request);

/** Makes every rank's pending and future call fail with LT_E_COMM. Any thread, any time. */
LT_API void lt_comm_abort(lt_comm *comm);

#endif
