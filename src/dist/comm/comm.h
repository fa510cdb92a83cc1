/* Construction of communicators, and their blocking collectives. */
#ifndef LT_DIST_COMM_H
#define LT_DIST_COMM_H

#include "dist/comm/call.h"

extern const lt_comm_ops lt_comm_self;

/* Returns the number of processes that the launcher started, or -1 if unknown. */
int lt_launched_size(void);

/* Allocates a communicator with its defaults, not opened. */
lt_status lt_comm_allocate(lt_comm **out, const lt_comm_ops *ops, lt_device *device);

/* Blocking forms of the collectives: begin the call and wait for it. */
LT_MUST_CHECK lt_status lt_comm_allreduce(lt_comm *comm, lt_tensor *tensor, lt_reduce op);
LT_MUST_CHECK lt_status lt_comm_allgather(lt_comm *comm, const lt_tensor *shard, lt_tensor *whole,
                                          const int64_t *count);
LT_MUST_CHECK lt_status lt_comm_reducescatter(lt_comm *comm, const lt_tensor *whole,
                                              lt_tensor *shard, const int64_t *count, lt_reduce op);
LT_MUST_CHECK lt_status lt_comm_broadcast(lt_comm *comm, lt_tensor *tensor, int root);

/* Broadcasts rank 0's order: a permutation of count items; host is workspace for count numbers. */
LT_MUST_CHECK lt_status lt_comm_broadcast_order(lt_comm *comm, size_t *order, int64_t *host,
                                                size_t count);

/* Starts a checked call, counts its bytes and applies the modelled link. target: the tensor that it writes, or NULL. */
lt_status lt_comm_begin(lt_comm *comm, const lt_comm_call *call, lt_tensor *target,
                        lt_request **request);

#endif
