/** Communicators: collective operations between the ranks of a run. */
#ifndef LATHER_COMM_H
#define LATHER_COMM_H

#include "lather/tensor.h"

/** One rank's handle of a group of ranks. All ranks issue the same collectives in the same order. */
typedef struct lt_comm lt_comm;
typedef struct lt_request lt_request;

/** Reductions add in rank order, in f32 (f64 and integers in their own dtype), and round once: results are bitwise
 *  identical on all ranks and for all communicators, except "nccl", which adds in NCCL's order. On reproducible devices
 *  an even number of ranks is added by halves, recursively. */
typedef enum lt_reduce { LT_REDUCE_SUM, LT_REDUCE_MEAN, LT_REDUCE_MAX } lt_reduce;

/** Opens a communicator over all ranks. kind: "self" (one rank), "mpi", "nccl" (one GPU per rank, started by mpirun,
 *  srun or torchrun), or a registered one (lather/ext/comm.h); device: device of the tensors, borrowed. Collective.
 *  Errors: LT_E_UNSUPPORTED (unknown kind, or not in this build), LT_E_ARG, LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_comm_open(lt_comm **out, const char *kind, lt_device *device);
/** Opens communicators of kind "threads". out[r] is for the thread that runs rank r, with device[r], borrowed. */
LT_API LT_MUST_CHECK lt_status lt_comm_open_threads(lt_comm **out, lt_device *const *device,
                                                    int size);
/** Returns "mpi" if mpirun or srun started this process as one of several, "nccl" if torchrun did, else "self". */
LT_API const char *lt_comm_launched_kind(void);
/** Local rank and number of local ranks on this machine, from the launcher's environment variables, also before
 *  lt_comm_open(). 0 of 1 without a launcher. */
LT_API void lt_comm_launched_local(int *rank, int *size);

/** Splits comm: ranks with the same color form a group, ordered by key, then by rank. Close *out before comm.
 *  Collective. */
LT_API LT_MUST_CHECK lt_status lt_comm_split(lt_comm *comm, int color, int key, lt_comm **out);
/** Waits for pending requests, frees them and closes. Collective, except after an abort; calls of other ranks with a
 *  closed rank fail. Only the last communicator that a process closes waits for other ranks. */
LT_API void lt_comm_close(lt_comm **comm);

LT_API int lt_comm_rank(const lt_comm *comm); /**< Returns this rank's number, 0 to size-1. */
LT_API int lt_comm_size(const lt_comm *comm);
/** Returns the payload bytes that this rank has sent so far. With n ranks and chunk[r] the r-th of n chunks of the
 *  elements, as even as possible (the first ones longer): all-reduce: all - chunk[rank] + (n-1) chunk[rank];
 *  reduce-scatter: all - own shard; all-gather: (n-1) own shard, but if that is 256 KiB more for the longest shard, own
 *  shard outside of chunk[rank] + (n-1) chunk[rank]; broadcast: (n-1) all, on the root, but of 64 KiB or more
 *  over four ranks or more all + (n-2) chunk[rank] on the root, (n-2) chunk[rank] on others; all-to-all: all except elements
 *  for itself; send: all. */
LT_API uint64_t lt_comm_bytes(const lt_comm *comm);

/** Starts an in-place reduction; tensor is borrowed until lt_request_wait(). Requests of a communicator complete in
 *  order of issue. Tensors must be dense in memory. Mismatched calls (collective, operation, dtype, counts, root) fail
 *  with LT_E_COMM, naming both ranks; with "nccl" they only exceed the deadline.
 *  Errors: LT_E_ARG, LT_E_SHAPE, LT_E_UNSUPPORTED (dtype: u8, means of integers), LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_comm_allreduce_begin(lt_comm *comm, lt_tensor *tensor,
                                                       lt_reduce op, lt_request **request);
/** Starts an all-gather of count[r] elements from each rank r, in memory order. A shard of 0 elements may be NULL. */
LT_API LT_MUST_CHECK lt_status lt_comm_allgather_begin(lt_comm *comm, const lt_tensor *shard,
                                                       lt_tensor *whole, const int64_t *count,
                                                       lt_request **request);
/** Starts a reduce-scatter: shard gets this rank's count[rank] elements of the reduction of whole, in memory order. */
LT_API LT_MUST_CHECK lt_status lt_comm_reducescatter_begin(lt_comm *comm, const lt_tensor *whole,
                                                           lt_tensor *shard, const int64_t *count,
                                                           lt_reduce op, lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_broadcast_begin(lt_comm *comm, lt_tensor *tensor, int root,
                                                       lt_request **request);
/** Starts an all-to-all: sends sent_count[r] elements of in to each rank r and receives received_count[r] elements of
 *  out from it, both in rank order and memory order. The counts of each pair of ranks must agree. in and out must not
 *  overlap; NULL if of 0 elements. */
LT_API LT_MUST_CHECK lt_status lt_comm_alltoall_begin(lt_comm *comm, const lt_tensor *in,
                                                      lt_tensor *out, const int64_t *sent_count,
                                                      const int64_t *received_count,
                                                      lt_request **request);
/** Start point-to-point messages, which are matched in order of issue between two ranks. */
LT_API LT_MUST_CHECK lt_status lt_comm_send_begin(lt_comm *comm, const lt_tensor *tensor, int to,
                                                  lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_recv_begin(lt_comm *comm, lt_tensor *tensor, int from,
                                                  lt_request **request);
LT_API LT_MUST_CHECK lt_status lt_comm_barrier(lt_comm *comm);
/** Waits, frees *request and sets it to NULL. Errors: LT_E_COMM. */
LT_API LT_MUST_CHECK lt_status lt_request_wait(lt_request **request);

/** All-gather of host memory: all gets bytes[r] bytes from each rank r, in rank order; own is this rank's. bytes must be
 *  equal on all ranks. Blocking. Collective. */
LT_API LT_MUST_CHECK lt_status lt_comm_allgather_host(lt_comm *comm, const void *own,
                                                      const int64_t *bytes, void *all);

/** Checks that all ranks give the same text for what, which is equal on all ranks; else fails on every rank with
 *  LT_E_ARG: "--lr is 0.1 on rank 0, 0.2 on rank 3". Collective. */
LT_API LT_MUST_CHECK lt_status lt_comm_check_same(lt_comm *comm, const char *what,
                                                  const char *text);

/** Sets the deadline of a request in seconds: one that exceeds it fails with LT_E_COMM and aborts the group. 0: none.
 *  Default 600. */
LT_API void lt_comm_set_deadline(lt_comm *comm, double seconds);
/** Delays requests as a link of this latency and bandwidth (Gbit/s) would, to measure overlap on one machine. gbit 0:
 *  off. */
LT_API void lt_comm_set_model(lt_comm *comm, double latency_us, double gbit);

/** Makes pending and future calls of all ranks fail with LT_E_COMM, on comm and all communicators split from the same
 *  one. Callable from any thread at any time. */
LT_API void lt_comm_abort(lt_comm *comm);

#endif
