/* Fake NCCL in host memory for ranks that are threads: each group has a queue, processed by a thread like a device's
 * stream, and calls wait for the other ranks. As strict as NCCL: a message completes when its receiver has it, and calls
 * run one at a time, except those within one NCCL group. */
#ifndef LT_TESTS_DIST_FAKE_NCCL_H
#define LT_TESTS_DIST_FAKE_NCCL_H

#include "dist/nccl/nccl.h"

/* Faults that a test injects, one per rank, in place of the device's context. */
typedef struct fake_gpu {
    char name[LT_NCCL_GPU_NAME];
    const char *fails;  /* name of the call that fails, such as "allreduce" */
    const char *health; /* asynchronous error */
    bool captured;
    int waits;  /* number of main_wait() calls */
    bool stuck; /* its main stream never completes */
    lt_nccl_launch_hooks hooks;
} fake_gpu;

extern const lt_nccl_api fake_nccl;
/* Number of events that were not destroyed. */
int fake_nccl_events(void);

#endif
