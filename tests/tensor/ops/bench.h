/* A ref device in double, a tape that records, and tensors that are freed with them. */
#ifndef LT_TESTS_BENCH_H
#define LT_TESTS_BENCH_H

#include "near.h"

#include "lather/ops.h"

#include <string.h>

enum { MADE = 64 };

typedef struct bench {
    lt_device *device;
    lt_tape *tape;
    lt_tensor *made[MADE];
    int count;
} bench;

static inline int bench_open_as(void **state, bool f64)
{
    static bench b;
    memset(&b, 0, sizeof b);
    *state = &b;
    if (lt_device_open(&b.device, "ref", &(lt_device_config){.f64 = f64})
        || lt_tape_new(&b.tape, b.device))
        return -1;
    lt_tape_reset(b.tape, LT_PASS_TRAIN);
    return 0;
}

static inline int bench_open(void **state)
{
    return bench_open_as(state, true);
}

static inline int bench_close(void **state)
{
    bench *b = *state;
    lt_tape_free(&b->tape);
    for (int i = 0; i < b->count; i++)
        lt_tensor_free(&b->made[i]);
    lt_device_close(&b->device);
    return 0;
}

static inline lt_tensor *tensor(bench *b, lt_dtype dtype, lt_shape shape, const void *values)
{
    assert_true(b->count < MADE);
    lt_tensor **t = &b->made[b->count++];
    assert_ok(lt_tensor_new(t, b->device, dtype, shape));
    assert_ok(lt_tensor_write(*t, values, lt_tensor_bytes(*t)));
    return *t;
}

#endif
