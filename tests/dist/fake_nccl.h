/* NCCL in host memory, for ranks that are threads: each group has a queue that a thread works off, as
 * a device's stream, and what needs a partner waits for it. Strict where NCCL is: a message is not
 * done before its receiver has it, and one call at a time runs, but for those of one group. */
#ifndef LT_TESTS_DIST_FAKE_NCCL_H
#define LT_TESTS_DIST_FAKE_NCCL_H

#include "dist/nccl/nccl.h"

/* What a test may make go wrong; one for each rank, in place of the device's context. */
typedef struct fake_gpu {
    char name[LT_NCCL_GPU_NAME];
    const char *fails;  /* "allreduce": this call does */
    const char *health; /* what NCCL finds by itself */
    bool captured;
    int waits;  /* of the main stream, for events */
    bool stuck; /* its main stream never completes */
    lt_nccl_launch_hooks hooks;
} fake_gpu;

extern const lt_nccl_api fake_nccl;

#endif
