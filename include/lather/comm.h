/** Collective operations between the ranks of one training run. */
#ifndef LATHER_COMM_H
#define LATHER_COMM_H

#include "lather/tensor.h"

/** One rank's end of the group. All ranks issue the same collectives in the same order. */
typedef struct lt_comm lt_comm;
typedef struct lt_request lt_request;

/** Terms are added in rank order, in f32 (f64 and integers in their own type), and rounded once: all
 *  ranks get the same bits, whatever the communicator; but "nccl" adds in its own order. */
typedef enum lt_reduce { LT_REDUCE_SUM, LT_REDUCE_MEAN, LT_REDUCE_MAX } lt_reduce;

/** kind: "self" (one rank), "mpi" or "nccl" (a GPU each, started by mpirun, srun or torchrun), or
 *  one that lt_comm_register() got;
 *  device: where the tensors are, borrowed. Collective.
 *  Errors: LT_E_UNSUPPORTED (not in this build), LT_E_ARG, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_comm_open(lt_comm **out, const char *kind, lt_device *device);
/** "threads": size ranks in this process, out[rank] for the thread that plays the rank, with
 *  device[rank], borrowed. */
LT_API LT_MUST_CHECK lt_status lt_comm_open_threads(lt_comm **out, lt_device *const *device,
                                                    int size);
/** "mpi" if a launcher (mpirun, srun) started this process as one of several, "nccl" if torchrun did,
 *  else "self". */
LT_API const char *lt_comm_launched_kind(void);
/** How many of the launched processes share this machine, and which of them this is: by the
 *  launcher's environment, so before lt_comm_open() too. Not launched: 0 of 1. */
LT_API void lt_comm_launched_local(int *rank, int *size);

/** Ranks that give the same color form a group, ordered by key, then by rank; *out is this rank's
 *  end of it. Collective. Owns: you; close it before comm. */
LT_API LT_MUST_CHECK lt_status lt_comm_split(lt_comm *comm, int color, int key, lt_comm **out);
/** Ends all pending requests first and frees them. Collective, but for after an abort: what another
 *  rank still asks of a closed one fails. Only the process's last end waits for the others. */
LT_API void lt_comm_close(lt_comm **comm);

LT_API int lt_comm_rank(const lt_comm *comm); /**< 0 .. size-1 */
LT_API int lt_comm_size(const lt_comm *comm);
/** Payload bytes that this rank has sent so far. Of n ranks, with chunk[r] the part of rank r when
 *  the elements are cut as evenly as possible (the first ones longer): all-reduce: all - chunk[rank]
 *  + (n-1) chunk[rank]; reduce-scatter: all - own part; all-gather: (n-1) own part; broadcast: (n-1)
 *  all on the root; all-to-all: all but what it sends to itself; send: all. */
LT_API uint64_t lt_comm_bytes(const lt_comm *comm);

/** Starts an in-place reduction; tensor is lent until lt_request_wait(). Requests of one
 *  communicator complete in the order of issue. Tensors must be without gaps in memory. Ranks whose
 *  calls do not fit together (kind, operation, dtype, counts, root) get LT_E_COMM naming both; with
 *  "nccl" they only miss the deadline.
 *  Errors: LT_E_ARG, LT_E_SHAPE, LT_E_UNSUPPORTED (dtype: u8, means of integers), LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_comm_allreduce_begin(lt_comm *comm, lt_tensor *tensor,
                                                       lt_reduce op, lt_request **request);
/** Each rank contributes count[rank] elements; bytes counted are payload, without padding. A part of
 *  0 elements may be NULL. Elements are placed in the order of memory, here and below. */
LT_API LT_MUST_CHECK lt_status lt_comm_allgather_begin(lt_comm *comm, const lt_tensor *part,
                                                       lt_tensor *whole, const int64_t *count,
                                                       lt_request **request);
/** part gets this rank's count[rank] elements of the sum over ranks of whole. */
LT_API LT_MUST_CHECK lt_status lt_comm_reducescatter_begin(lt_comm *comm, const lt_tensor *whole,
                                                           lt_tensor *part, const int64_t *count,
                                                           lt_reduce op, lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_broadcast_begin(lt_comm *comm, lt_tensor *tensor, int root,
                                                       lt_request **request);
/** To each rank r go sent_count[r] elements of in, from each r come received_count[r] of out, both in
 *  rank order; what two ranks say of their message must agree. in or out of 0 elements may be NULL;
 *  they must not overlap. */
LT_API LT_MUST_CHECK lt_status lt_comm_alltoall_begin(lt_comm *comm, const lt_tensor *in,
                                                      lt_tensor *out, const int64_t *sent_count,
                                                      const int64_t *received_count,
                                                      lt_request **request);
/** Point to point: matched in the order of issue between two ranks. */
LT_API LT_MUST_CHECK lt_status lt_comm_send_begin(lt_comm *comm, const lt_tensor *tensor, int to,
                                                  lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_recv_begin(lt_comm *comm, lt_tensor *tensor, int from,
                                                  lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_barrier(lt_comm *comm);
/** Waits, frees *request and sets it to NULL. Errors: LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_request_wait(lt_request **request);

/** Host memory of all ranks, in rank order: all gets bytes[r] bytes of each rank r, own are this
 *  rank's. bytes are the same on every rank. Collective; complete when it returns. */
LT_API LT_MUST_CHECK lt_status lt_comm_allgather_host(lt_comm *comm, const void *own,
                                                      const int64_t *bytes, void *all);

/** LT_OK if all ranks give the same text for what; else LT_E_ARG on every rank: "--lr is 0.1 on rank
 *  0, 0.2 on rank 3". Collective: call it with the same what everywhere. */
LT_API LT_MUST_CHECK lt_status lt_comm_same(lt_comm *comm, const char *what, const char *text);

/** A request that is not done after so many seconds fails with LT_E_COMM, naming it, and aborts the
 *  group; 0: never. Default 600. */
LT_API void lt_comm_set_deadline(lt_comm *comm, double seconds);
/** Holds requests back as a link of this latency and rate would, one after the other, for measuring
 *  overlap on one machine. gbit 0: off. */
LT_API void lt_comm_set_model(lt_comm *comm, double latency_us, double gbit);

/** Makes every rank's pending and future call fail with LT_E_COMM, in comm and all that was split
 *  from the same one. Any thread, any time. */
LT_API void lt_comm_abort(lt_comm *comm);

#endif
