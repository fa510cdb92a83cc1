/* Description of the machine, for env.json and state.json. All functions write to text and return it. */
#ifndef LT_BASE_MACHINE_H
#define LT_BASE_MACHINE_H

#include <stddef.h>

/* Writes the CPU name from /proc/cpuinfo ("AMD EPYC 9B45"), else the architecture. */
const char *lt_machine_cpu(char *text, size_t size);
/* Writes the CPU design ("family 25, model 17"), useful if the name is virtual; "" if /proc/cpuinfo lacks it. */
const char *lt_machine_cpu_model(char *text, size_t size);
/* Writes the CPU features relevant to kernels: "avx2 avx512f ...". */
const char *lt_machine_features(char *text, size_t size);
/* Writes the random id that the kernel draws at boot; "" if unreadable. */
const char *lt_machine_boot_id(char *text, size_t size);
/* Writes the operating system ("Debian GNU/Linux 12 (bookworm)"), or "" if unknown. */
const char *lt_machine_os(char *text, size_t size);

/* Returns the bytes that this process can still get: the free memory of the machine, limited by its control group,
 * whose page cache can be reclaimed. Negative if unknown. */
double lt_machine_available_bytes(void);

#endif
