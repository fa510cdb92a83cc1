/* Detection of the CPU's instruction set. */
#ifndef LT_BACKEND_CPU_DETECT_H
#define LT_BACKEND_CPU_DETECT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lt_cpu_isa {
    LT_ISA_GENERIC,
    LT_ISA_AVX2,
    LT_ISA_NEON = LT_ISA_AVX2, /* ARM64: the same choice of kernels as for AVX2 */
    LT_ISA_AVX512,
    LT_ISA_NEON_BF16 =
        LT_ISA_AVX512, /* ARM64 with BFDOT: of kernels in f32 the same choice as for AVX-512 */
    LT_ISA_AVX512_BF16,
    LT_ISA_AMX /* AMX and avx512_bf16 */
} lt_cpu_isa;

/* Returns the best set of this machine, ignoring LATHER_CPU_ISA. */
lt_cpu_isa lt_cpu_detect(void);

/* Returns true if CPUID (leaf 1 ECX, leaf 7 EDX) and XCR0 (0 if unreadable) report AMX with bf16. */
bool lt_amx_reported(uint32_t leaf1_ecx, uint32_t leaf7_edx, uint64_t xcr0);

#endif
