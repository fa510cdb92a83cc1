/* The devices that a run of conform compares with ref. */
#ifndef LT_TESTS_CONFORM_TARGETS_H
#define LT_TESTS_CONFORM_TARGETS_H

#include "conform.h"

enum { MAX_TARGETS = 16 };

typedef struct target {
    const lt_backend *be;
    void *ctx;
    const char *label;  /* follows the name of a row; "": this is the only device */
    const char *filter; /* part of the kernel or name of each row that it runs */
} target;

typedef struct targets {
    target at[MAX_TARGETS];
    int count;
} targets;

/* Returns a backend of the library, a weight-gradient kernel or the emulator; NULL if the name is unknown,
 * with the known names in lt_error_message(). */
const lt_backend *backend_of(const char *name);

/* Opens one device. Errors: the backend's; LT_E_ARG if there is no such backend. */
lt_status targets_open(targets *t, const char *backend, const lt_device_config *config);

/* Opens ref in single precision and the cpu backend once for each set of kernels that this processor runs
 * (LATHER_CPU_ISA), and again with built-in convolutions (LATHER_CPU_KERNELS=builtin) with and without fusion,
 * and without oneDNN (reproducible).
 * oneDNN has one level per process: the best. Errors: the backend's; LT_E_UNSUPPORTED without a cpu backend. */
lt_status targets_open_levels(targets *t, const lt_device_config *config);

void targets_close(targets *t);

#endif
