/* The machine a run is on, for env.json and state.json. */
#ifndef LT_BASE_MACHINE_H
#define LT_BASE_MACHINE_H

#include <stddef.h>

/* "AMD EPYC 9B45": from /proc/cpuinfo, else the architecture. Returns text. */
const char *lt_machine_cpu(char *text, size_t size);
/* "family 25, model 17": which design it is, where the name says only that it is virtual; "" where
 * /proc/cpuinfo has none. Returns text. */
const char *lt_machine_cpu_model(char *text, size_t size);
/* CPU features that kernels ask for: "avx2 avx512f ...". Returns text. */
const char *lt_machine_features(char *text, size_t size);
/* "Debian GNU/Linux 12 (bookworm)", else "". Returns text. */
const char *lt_machine_os(char *text, size_t size);

#endif
