/* Selection of the instruction set at run time. */

#include "tensor/backend/cpu/isa.h"

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

lt_status lt_cpu_choose_isa(lt_cpu_isa *out)
{
    const char *limit = getenv("LATHER_CPU_ISA");
    lt_cpu_isa best = lt_cpu_detect();
    *out = best;
    if (!limit || !*limit)
        return LT_OK;
    for (int i = 0; i < (int)(sizeof sets / sizeof *sets); i++)
        if (!strcmp(limit, sets[i].name)) {
            *out = (lt_cpu_isa)i < best ? (lt_cpu_isa)i : best;
            return LT_OK;
        }
    return lt_fail(
        LT_E_ARG,
        "LATHER_CPU_ISA: unknown value '%s'; valid: generic, avx2, avx512, avx512_bf16, amx",
        limit);
}

const char *lt_cpu_isa_name(lt_cpu_isa isa)
{
    return sets[isa].name;
}

const lt_cpu_kernels *lt_cpu_isa_kernels(lt_cpu_isa isa, bool reproducible)
{
    if (reproducible && isa == LT_ISA_GENERIC)
        return &lt_cpu_kernels_generic_fma;
    return sets[isa].kernels;
}
