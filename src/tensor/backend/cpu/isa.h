/* Instruction sets and their kernels, which are compiled once per set. */
#ifndef LT_BACKEND_CPU_ISA_H
#define LT_BACKEND_CPU_ISA_H

#include "tensor/backend/cpu/detect.h"
#include "tensor/backend/cpu/kernels.h"

#include "lather/status.h"

/* Finds the best set of this machine, at most LATHER_CPU_ISA=generic|avx2|avx512|avx512_bf16|amx, on ARM64
 * generic|neon|neon_bf16. Errors: LT_E_ARG (unknown value). */
lt_status lt_cpu_choose_isa(lt_cpu_isa *out);
const char *lt_cpu_isa_name(lt_cpu_isa isa);
/* reproducible: kernels of the same results for every isa up to LT_ISA_AVX512, on ARM64 for every isa. */
const lt_cpu_kernels *lt_cpu_isa_kernels(lt_cpu_isa isa, bool reproducible);

#endif
