/** For writing a communicator. Start from src/dist/self.c. */
#ifndef LATHER_EXT_COMM_H
#define LATHER_EXT_COMM_H

#include "lather/comm.h"
#include "lather/ext/fail.h"

/** All entries are required. A begin entry may finish at once and leave *request NULL. */
typedef struct lt_comm_ops {
    const char *kind; /**< "self", "mpi" */
    size_t bytes;     /**< of the communicator's struct */
    lt_status (*open)(lt_comm *self, lt_device *device);
    void (*close)(lt_comm *self);
    lt_status (*allreduce)(lt_comm *self, lt_tensor *tensor, lt_reduce op, lt_request **request);
    lt_status (*allgather)(lt_comm *self, const lt_tensor *part, lt_tensor *whole,
                           const int64_t *count, lt_request **request);
    lt_status (*reducescatter)(lt_comm *self, const lt_tensor *whole, lt_tensor *part,
                               const int64_t *count, lt_reduce op, lt_request **request);
    lt_status (*broadcast)(lt_comm *self, lt_tensor *tensor, int root, lt_request **request);
    lt_status (*send)(lt_comm *self, const lt_tensor *tensor, int to, lt_request **request);
    lt_status (*recv)(lt_comm *self, lt_tensor *tensor, int from, lt_request **request);
    lt_status (*barrier)(lt_comm *self);
    lt_status (*split)(lt_comm *self, int color, int key, lt_comm *out); /**< out: ops->bytes */
    lt_status (*wait)(lt_request *request);                              /**< frees the request */
    void (*abort)(lt_comm *self);
} lt_comm_ops;

/** First member of every communicator's struct. */
struct lt_comm {
    const lt_comm_ops *ops;
    lt_device *device;
    int rank, size;
    uint64_t bytes;          /**< payload sent so far */
    double deadline;         /**< seconds; 0: none */
    double latency_us, gbit; /**< of the modelled link; gbit 0: none */
};

/** First member of every request. */
struct lt_request {
    lt_comm *comm;
};

#endif
