/* Inside of the communicators. */
#ifndef LT_DIST_COMM_H
#define LT_DIST_COMM_H

#include "lather/ext/comm.h"

extern const lt_comm_ops lt_comm_self;

/* The communicator whose collectives are made of a link's messages. */
extern const lt_comm_ops lt_comm_linked;

/* Opens the local ends of a link: one, or all of them (link rank -1). out[i]: of lt_comm_linked's
 * bytes, device and deadline set. link is of link_ops->bytes, its size may be set; owned from now
 * on, also on failure. */
lt_status lt_linked_open(lt_comm *const *out, lt_link *link);

/* Processes that the launcher started, or -1. */
int lt_launched_size(void);

/* A new struct of the kind, with its defaults; not opened. */
lt_status lt_comm_make(lt_comm **out, const lt_comm_ops *ops, lt_device *device);

/* Checks the arguments of each call and describes it. */
lt_status lt_call_allreduce(lt_comm_call *call, const lt_comm *comm, lt_tensor *tensor,
                            lt_reduce op);
lt_status lt_call_parts(lt_comm_call *call, const lt_comm *comm, const lt_tensor *part,
                        const lt_tensor *whole, const int64_t *count);
lt_status lt_call_whole(lt_comm_call *call, const lt_comm *comm, const lt_tensor *tensor, int root);

/* "allreduce". */
const char *lt_call_name(lt_comm_what what);
/* "allreduce (sum) of 10 f32", into text of bytes. Returns text. */
const char *lt_call_text(const lt_comm_call *call, char *text, size_t bytes);
/* Where the part of rank begins, in elements; rank == size: the end. Without counts the elements
 * are cut as evenly as possible, the first parts longer. */
int64_t lt_call_offset(const lt_comm_call *call, int rank, int size);
/* Payload in bytes that this rank sends and receives, by the formula in lather/comm.h. */
void lt_call_payload(const lt_comm_call *call, int rank, int size, uint64_t *sent,
                     uint64_t *received);

/* out[i] = term 0 [i] + term 1 [i] + ..., in this order, or their mean or maximum; in f32 for 16-bit
 * types, rounded once. out may be one of the terms. */
void lt_reduce_terms(void *out, const void *const *term, int terms, int64_t count, lt_dtype dtype,
                     lt_reduce op);

#endif
