/* The gradient of a convolution's weight, by products of our own choice.
 *
 *     dw[k][r][s][c] = sum over pixels p of dy[p][k] * x[at(p, r, s)][c]
 *
 * Rows of dw are channels of dy, columns channels of x. wgrad.c cuts the work and gathers pixels;
 * a unit multiplies: in bf16 with VDPBF16PS (wgrad_avx512.c) or with AMX (wgrad_amx.c), in f32
 * with the kernels of any instruction set (kernels/wgrad.h). */
#ifndef LT_BACKEND_CPU_WGRAD_H
#define LT_BACKEND_CPU_WGRAD_H

#include "tensor/backend/cpu/internal.h"

enum {
    LT_WGRAD_COLUMNS = 32, /* of dw that a unit makes at once, at most; those in bf16 do */
    LT_WGRAD_ROWS = 256,   /* of dw per task */
    LT_WGRAD_BLOCK =
        256 /* pixels packed at once, at most: x's then fit the first cache, dy's the second */
};

/* Packing takes pixel number i from element at[i] of base on, or zeros if at[i] is negative. Rows and columns
 * from count on are zeros. All pixel counts are multiples of unit->pixels. */
typedef void lt_wgrad_pack(const void *base, const int64_t *at, int64_t pixels, int64_t count,
                           void *out);

/* dw[unit->rows][unit->columns] (ld floats apart) = or += sum over pixels of dy * x, both packed. */
typedef void lt_wgrad_product(const void *dy, const void *x, int64_t pixels, float *dw, int64_t ld,
                              bool add);

typedef struct lt_wgrad_unit {
    int rows, columns;     /* of dw that product makes at once; dy is packed in panels of rows */
    int pixels;            /* that one instruction adds up */
    size_t size;           /* bytes of a packed element */
    lt_wgrad_pack *dy, *x; /* x: one panel of columns; in bf16 pairs of pixels side by side */
    lt_wgrad_product *product; /* of one panel each */
    void (*begin)(void);       /* before and after a thread's products; NULL: nothing to do */
    void (*end)(void);
} lt_wgrad_unit;

extern const lt_wgrad_unit lt_wgrad_avx512, lt_wgrad_amx;

/* The unit for x and dy of this dtype, f32 or bf16, which is computed in f32 where there are no instructions for it. */
lt_wgrad_unit lt_wgrad_unit_of(const lt_cpu *cpu, lt_dtype dtype);
/* Whether it makes this gradient: not where oneDNN is as fast or was asked for (LATHER_CPU_KERNELS). */
bool lt_wgrad_wanted(const lt_cpu *cpu, const lt_conv2d_config *config, lt_dtype dtype, lt_shape w);

/* x, dy: of the unit's dtype, channels-last; dw: f32 in the library's storage order; one group. */
lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_unit *unit, const lt_conv2d_config *config,
                       const lt_view *x, const lt_view *dy, lt_shape w, float *dw);

#endif
