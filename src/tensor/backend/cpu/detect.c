/* Detection of the instruction set. A separate static library, so that tests can link one that reports every set. */

#include "tensor/backend/cpu/detect.h"

#include "base/os.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Bits of CPUID and XCR0 for AMX. */
enum { OSXSAVE = 27, AMX_BF16 = 22, AMX_TILE = 24, TILE_CONFIG = 17, TILE_DATA = 18 };

static bool has_bit(uint64_t word, int bit)
{
    return word >> bit & 1;
}

bool lt_amx_reported(uint32_t leaf1_ecx, uint32_t leaf7_edx, uint64_t xcr0)
{
    return has_bit(leaf1_ecx, OSXSAVE) && has_bit(leaf7_edx, AMX_BF16)
           && has_bit(leaf7_edx, AMX_TILE) && has_bit(xcr0, TILE_CONFIG)
           && has_bit(xcr0, TILE_DATA);
}

#if defined(__x86_64__)
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Returns true if AMX is usable: the CPU has it, and Linux (5.16 or later) grants this process the 8 KiB of tile state.
 * The permission lasts for the process. False on other systems. */
static bool request_amx(void)
{
    unsigned a, b, c = 0, d = 0, leaf1_ecx = 0;
    if (!__get_cpuid(1, &a, &b, &leaf1_ecx, &d) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return false;
    uint64_t xcr0 = has_bit(leaf1_ecx, OSXSAVE) ? read_xcr0() : 0;
    return lt_amx_reported(leaf1_ecx, d, xcr0) && lt_os_request_tiles();
}
#endif

lt_cpu_isa lt_cpu_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return LT_ISA_GENERIC;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw")
        || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
        return LT_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512bf16"))
        return LT_ISA_AVX512;
    return request_amx() ? LT_ISA_AMX : LT_ISA_AVX512_BF16;
#elif defined(__aarch64__)
    return lt_os_has_bfdot() ? LT_ISA_NEON_BF16 : LT_ISA_NEON;
#else
    return LT_ISA_GENERIC;
#endif
}
