/* The cpu backend: ref's table with entries replaced by fast ones. */
#ifndef LT_BACKEND_CPU_CPU_H
#define LT_BACKEND_CPU_CPU_H

#include "lather/detail/backend.h"

const lt_backend *lt_backend_cpu(void);

/* One line on a library or the CPU features in use, for --version; index 0, 1, ...; NULL after the
 * last. Lent until the next call on this thread. */
const char *lt_cpu_build_info(int index);

/* lt_device_isa() and lt_device_choice() of tensor.h. */
const char *lt_cpu_isa_in_use(void);
const char *lt_cpu_choice_in_use(void);

#endif
