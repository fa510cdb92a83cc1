/* Counts calls of lt_backend_ref(), by which the CPU's kernels reach the reference for forms that they have no kernel for.
 * For one source of a program that is linked with --wrap=lt_backend_ref. */
#ifndef LT_TESTS_REF_CALLS_H
#define LT_TESTS_REF_CALLS_H

#include "lather/detail/backend.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

static int ref_calls;

const lt_backend *__real_lt_backend_ref(void);

const lt_backend *__wrap_lt_backend_ref(void)
{
    ref_calls++;
    return __real_lt_backend_ref();
}

#endif
