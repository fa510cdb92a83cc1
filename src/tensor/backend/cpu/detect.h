/* The instruction set of this machine. */
#ifndef LT_BACKEND_CPU_DETECT_H
#define LT_BACKEND_CPU_DETECT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lt_cpu_isa {
    LT_ISA_GENERIC,
    LT_ISA_AVX2,
    LT_ISA_AVX512,
    LT_ISA_AVX512_BF16,
    LT_ISA_AMX /* and avx512_bf16 */
} lt_cpu_isa;

/* The best set of this machine, whatever LATHER_CPU_ISA says. */
lt_cpu_isa lt_cpu_detect(void);

/* CPUID leaf 1's ECX, leaf 7's EDX, and XCR0 (0 if it cannot be read). */
bool lt_amx_reported(uint32_t leaf1_ecx, uint32_t leaf7_edx, uint64_t xcr0);

/* Asks CPU and kernel. Linux gives the tiles' 8 KiB of state only to a process that asks for it,
 * since 5.16; once given it stays. False on other systems. */
bool lt_amx_request(void);

#endif
