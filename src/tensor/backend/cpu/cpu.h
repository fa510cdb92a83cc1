/* The cpu backend: the reference backend's table with entries replaced by fast kernels. */
#ifndef LT_BACKEND_CPU_CPU_H
#define LT_BACKEND_CPU_CPU_H

#include "lather/detail/backend.h"

const lt_backend *lt_backend_cpu(void);

/* Returns line `index` (0, 1, ...) of --version on libraries and CPU features, or NULL past the last. Valid until the
 * next call on this thread. */
const char *lt_cpu_build_info(int index);

/* Implement lt_device_isa() and lt_device_conv_kernels(). "" if an environment variable is invalid. */
const char *lt_cpu_isa_in_use(bool reproducible);
const char *lt_cpu_conv_kernels_in_use(bool reproducible);

#endif
