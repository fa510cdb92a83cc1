/* Whether this process may use AMX. */
#ifndef LT_BACKEND_CPU_AMX_H
#define LT_BACKEND_CPU_AMX_H

#include <stdbool.h>
#include <stdint.h>

/* What the CPU says of itself: CPUID leaf 1's ECX, leaf 7's EDX, and XCR0 (0 if it cannot be read). */
bool lt_amx_reported(uint32_t leaf1_ecx, uint32_t leaf7_edx, uint64_t xcr0);

/* Asks CPU and kernel. Linux gives the tiles' 8 KiB of state only to a process that asks for it,
 * since 5.16; once given it stays. False elsewhere. */
bool lt_amx_request(void);

#endif
