/* Table of one instruction set's kernels. Meson compiles this file once per set, with LT_KERNEL_SET as its name and the
 * compiler's target set to it. */

#include "attention.h"
#include "batchnorm.h"
#include "conv.h"
#include "elementwise.h"
#include "gemm.h"
#include "inverse.h"
#include "layernorm.h"
#include "loss.h"
#include "optim.h"
#include "pointwise.h"
#include "pool.h"
#include "rotary.h"
#include "tridiagonal.h"
#include "vec.h"
#include "wgrad.h"
#include "winograd.h"

#define RETURN_void
#define RETURN_double  return
#define RETURN_int64_t return
#define FOR_STORAGE(result, name, parameters, ...)              \
    static result name##_f32 parameters                         \
    {                                                           \
        RETURN_##result name##_any(__VA_ARGS__, LT_STORE_F32);  \
    }                                                           \
    static result name##_bf16 parameters                        \
    {                                                           \
        RETURN_##result name##_any(__VA_ARGS__, LT_STORE_BF16); \
    }
LT_CPU_KERNELS_OF_STORAGE(FOR_STORAGE)

#define ROW(result, name, ...)      .name = name,
#define ROW_F32(result, name, ...)  .name = name##_f32,
#define ROW_BF16(result, name, ...) .name = name##_bf16,

/* clang-format off */
const lt_cpu_kernels PASTE(lt_cpu_kernels, LT_KERNEL_SET) = {
    .of = {
        [LT_STORE_F32] = {LT_CPU_KERNELS_OF_STORAGE(ROW_F32)},
        [LT_STORE_BF16] = {LT_CPU_KERNELS_OF_STORAGE(ROW_BF16)},
    },
    LT_CPU_KERNELS(ROW)
    .tile_rows = TILE_ROWS,
    .tile_cols = TILE_COLS,
    .pairs = HAS_PAIRS,
};
/* clang-format on */
