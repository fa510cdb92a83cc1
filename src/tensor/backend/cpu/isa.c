/* Selection of the instruction set at run time. */

#include "tensor/backend/cpu/isa.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const lt_cpu_kernels *kernels;
} sets[] = {
#if defined(__aarch64__)
    /* NEON is the baseline: the values differ in the choice of convolutions alone */
    [LT_ISA_GENERIC] = {"generic", &lt_cpu_kernels_neon},
    [LT_ISA_NEON] = {"neon", &lt_cpu_kernels_neon},
    [LT_ISA_NEON_BF16] = {"neon_bf16", &lt_cpu_kernels_neon_bf16},
#else
    [LT_ISA_GENERIC] = {"generic", &lt_cpu_kernels_generic},
#if defined(__x86_64__)
    [LT_ISA_AVX2] = {"avx2", &lt_cpu_kernels_avx2},
    [LT_ISA_AVX512] = {"avx512", &lt_cpu_kernels_avx512},
    [LT_ISA_AVX512_BF16] = {"avx512_bf16", &lt_cpu_kernels_avx512_bf16},
    [LT_ISA_AMX] = {"amx", &lt_cpu_kernels_avx512_bf16},
#endif
#endif
};
enum { SETS = sizeof sets / sizeof *sets };

lt_status lt_cpu_choose_isa(lt_cpu_isa *out)
{
    const char *limit = getenv("LATHER_CPU_ISA");
    char valid[64] = "";
    lt_cpu_isa best = lt_cpu_detect();
    *out = best;
    if (!limit || !*limit)
        return LT_OK;
    for (int i = 0; i < SETS; i++) {
        if (!strcmp(limit, sets[i].name)) {
            *out = (lt_cpu_isa)i < best ? (lt_cpu_isa)i : best;
            return LT_OK;
        }
        const size_t used = strlen(valid);
        snprintf(valid + used, sizeof valid - used, "%s%s", i ? ", " : "", sets[i].name);
    }
    return lt_fail(LT_E_ARG, "LATHER_CPU_ISA: unknown value '%s'; valid: %s", limit, valid);
}

const char *lt_cpu_isa_name(lt_cpu_isa isa)
{
    return sets[isa].name;
}

const lt_cpu_kernels *lt_cpu_isa_kernels(lt_cpu_isa isa, bool reproducible)
{
#if defined(__aarch64__)
    if (reproducible)
        return &lt_cpu_kernels_neon;
#else
    if (reproducible && isa == LT_ISA_GENERIC)
        return &lt_cpu_kernels_generic_fma;
#endif
    return sets[isa].kernels;
}
