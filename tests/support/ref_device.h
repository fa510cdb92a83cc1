/* A device of the reference backend, for all rows of a test program. */
#ifndef LT_TESTS_REF_DEVICE_H
#define LT_TESTS_REF_DEVICE_H

#include "lather/device.h"

static lt_device *device;

static inline int open_device(void **state)
{
    (void)state;
    return lt_device_open(&device, "ref", NULL) ? -1 : 0;
}

static inline int close_device(void **state)
{
    (void)state;
    lt_device_close(&device);
    return 0;
}

#endif
