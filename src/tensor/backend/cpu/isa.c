/* Choice of the instruction set at run time. */

#include "tensor/backend/cpu/isa.h"

#include "tensor/backend/cpu/amx.h"
#include "tensor/backend/cpu/wgrad.h"

#include "lather/ext/fail.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const lt_cpu_kernels *kernels;
} sets[] = {
    [LT_ISA_GENERIC] = {"generic", &lt_cpu_kernels_generic},
    [LT_ISA_AVX2] = {"avx2", &lt_cpu_kernels_avx2},
    [LT_ISA_AVX512] = {"avx512", &lt_cpu_kernels_avx512},
    [LT_ISA_AVX512_BF16] = {"avx512_bf16", &lt_cpu_kernels_avx512_bf16},
    [LT_ISA_AMX] = {"amx", &lt_cpu_kernels_avx512_bf16},
};

static lt_cpu_isa detect(void)
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
    return lt_amx_request() ? LT_ISA_AMX : LT_ISA_AVX512_BF16;
#else
    return LT_ISA_GENERIC;
#endif
}

lt_status lt_cpu_isa_find(lt_cpu_isa *out)
{
    const char *limit = getenv("LATHER_CPU_ISA");
    lt_cpu_isa best = detect();
    *out = best;
    if (!limit || !*limit)
        return LT_OK;
    for (int i = 0; i < (int)(sizeof sets / sizeof *sets); i++)
        if (!strcmp(limit, sets[i].name)) {
            *out = (lt_cpu_isa)i < best ? (lt_cpu_isa)i : best;
            return LT_OK;
        }
    return lt_fail(
        LT_E_ARG, "LATHER_CPU_ISA: '%s' is none of generic, avx2, avx512, avx512_bf16, amx", limit);
}

const char *lt_cpu_isa_name(lt_cpu_isa isa)
{
    return sets[isa].name;
}

const lt_cpu_kernels *lt_cpu_isa_kernels(lt_cpu_isa isa)
{
    return sets[isa].kernels;
}

const lt_wgrad_unit *lt_cpu_isa_wgrad(lt_cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == LT_ISA_AMX)
        return &lt_wgrad_amx;
    if (isa == LT_ISA_AVX512_BF16)
        return &lt_wgrad_avx512;
#endif
    (void)isa;
    return NULL;
}
