/* The struct of a communicator, and the checks with which each call begins. */
#ifndef LT_DIST_COMM_H
#define LT_DIST_COMM_H

#include "dist/comm/call.h"

extern const lt_comm_ops lt_comm_self;

/* Processes that the launcher started, or -1. */
int lt_launched_size(void);

/* A new struct of the kind, with its defaults; not opened. */
lt_status lt_comm_make(lt_comm **out, const lt_comm_ops *ops, lt_device *device);

/* Each begins its call and waits for it. */
LT_MUST_CHECK lt_status lt_comm_allreduce(lt_comm *comm, lt_tensor *tensor, lt_reduce op);
LT_MUST_CHECK lt_status lt_comm_allgather(lt_comm *comm, const lt_tensor *part, lt_tensor *whole,
                                          const int64_t *count);
LT_MUST_CHECK lt_status lt_comm_reducescatter(lt_comm *comm, const lt_tensor *whole,
                                              lt_tensor *part, const int64_t *count, lt_reduce op);
LT_MUST_CHECK lt_status lt_comm_broadcast(lt_comm *comm, lt_tensor *tensor, int root);

/* All ranks get rank 0's order of count things; host is memory for them. */
LT_MUST_CHECK lt_status lt_comm_broadcast_order(lt_comm *comm, size_t *order, int64_t *host,
                                                size_t count);

/* Starts a checked call: counts it, and holds it back as the modelled link would. target: the tensor that it
 * writes, or NULL. */
lt_status lt_comm_begin(lt_comm *comm, const lt_comm_call *call, lt_tensor *target,
                        lt_request **request);

#endif
