/* A fake device in host memory: a table of driver calls that only count open objects and fail on demand. */
#ifndef LT_TESTS_FAKE_H
#define LT_TESTS_FAKE_H

#include "tensor/backend/cuda/cuda.h"

enum { FAKE_CALLS = 64, FAKE_TRACE = 1024 };

/* Properties and behaviour of the fake device. Set them before a device is opened. */
typedef struct fake_device {
    int driver, runtime, count; /* versions; number of devices */
    int major, minor;           /* compute capability */
    size_t memory;              /* bytes it has */
    const char *fails;          /* the call of that name ... */
    int fails_with;             /* ... returns this ... */
    int fails_after;            /* number of successful calls before the first failure */

    /* Counted by the calls. */
    size_t used;
    int urgent;                                                  /* streams that were made so */
    int blocks, streams, events, graphs, executables, libraries; /* that are open */
    int launches;                                                /* number of graph launches */
    int set_device;                                              /* the last one */
    int error;                   /* result of the next last_error() */
    int calls;                   /* in the log */
    const char *log[FAKE_CALLS]; /* names of the first calls */
    char trace[FAKE_TRACE];      /* calls on streams and events: "event_record(event,stream) ..." */
} fake_device;

extern fake_device fake;

/* A device like an H200 with that much memory; everything else 0. */
void fake_reset(size_t memory);

extern const lt_cuda_api fake_api;

#endif
