/* Instruction sets, and the kernels that are compiled once for each. */
#ifndef LT_BACKEND_CPU_ISA_H
#define LT_BACKEND_CPU_ISA_H

#include "tensor/backend/cpu/detect.h"
#include "tensor/backend/cpu/kernels.h"

#include "lather/status.h"

/* The best set of this machine; LATHER_CPU_ISA=generic|avx2|avx512|avx512_bf16|amx hides
 * what is better. Errors: LT_E_ARG (no such name). */
lt_status lt_cpu_isa_find(lt_cpu_isa *out);
const char *lt_cpu_isa_name(lt_cpu_isa isa);
/* The kernels for a set. */
const lt_cpu_kernels *lt_cpu_isa_kernels(lt_cpu_isa isa);

#endif
