/* The gradient of a convolution's weight in bf16, by matrix instructions of our own choice.
 *
 *     dw[k][r][s][c] = sum over pixels p of dy[p][k] * x[at(p, r, s)][c]
 *
 * Rows of dw are channels of dy, columns channels of x. wgrad.c cuts the work and gathers pixels;
 * a unit multiplies: with VDPBF16PS (wgrad_avx512.c) or with AMX (wgrad_amx.c). */
#ifndef LT_BACKEND_CPU_WGRAD_H
#define LT_BACKEND_CPU_WGRAD_H

#include "tensor/backend/cpu/internal.h"

enum {
    LT_WGRAD_COLUMNS = 32, /* of dw that a unit makes at once */
    LT_WGRAD_ROWS = 256,   /* of dw per task */
    LT_WGRAD_BLOCK =
        256 /* pixels packed at once, at most: x's then fit the first cache, dy's the second */
};

/* Packing takes pixel number i from base + at[i], or zeros if at[i] is negative. Rows and columns
 * from count on are zeros. All pixel counts are multiples of unit->pixels. */
typedef void lt_wgrad_pack(const uint16_t *base, const int64_t *at, int64_t pixels, int64_t count,
                           uint16_t *out);

/* dw[rows][LT_WGRAD_COLUMNS] (ld floats apart) = or += sum over pixels of dy * x, both packed. */
typedef void lt_wgrad_product(const uint16_t *dy, const uint16_t *x, int64_t pixels, float *dw,
                              int64_t ld, bool add);

typedef struct lt_wgrad_unit {
    int rows;                  /* of dw that product makes at once; dy is packed in panels of it */
    int pixels;                /* that one instruction adds up */
    lt_wgrad_pack *dy, *x;     /* x: one panel of LT_WGRAD_COLUMNS, pairs of pixels side by side */
    lt_wgrad_product *product; /* of one panel each */
    void (*begin)(void);       /* before and after a thread's products; NULL: nothing to do */
    void (*end)(void);
} lt_wgrad_unit;

extern const lt_wgrad_unit lt_wgrad_avx512, lt_wgrad_amx;

/* The unit of an instruction set, or NULL. */
const lt_wgrad_unit *lt_wgrad_unit_of(lt_cpu_isa isa);
/* The unit for this weight, or NULL where oneDNN is as fast or was asked for (LATHER_CPU_KERNELS), or where there is
 * none for the isa. */
const lt_wgrad_unit *lt_wgrad_choose(const lt_cpu *cpu, const lt_conv2d_config *config, lt_shape w);

/* x, dy: bf16, channels-last; dw: f32 in the library's storage order; one group. */
lt_status lt_wgrad_run(lt_cpu *cpu, const lt_wgrad_unit *unit, const lt_conv2d_config *config,
                       const lt_view *x, const lt_view *dy, lt_shape w, float *dw);

#endif
