/* Micro-kernels of the weight gradient (as in BLIS): packing and products for one instruction set. */
#ifndef LT_BACKEND_CPU_WGRAD_MICROKERNEL_H
#define LT_BACKEND_CPU_WGRAD_MICROKERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LT_WGRAD_COLUMNS = 32, /* columns of dw per call: maximum, and the bf16 micro-kernels' number */
    LT_WGRAD_ROWS = 256,   /* rows of dw per task */
    LT_WGRAD_BLOCK = 256   /* most pixels packed at once: x fits the L1 cache, dy the L2 cache */
};

/* Packs pixels: pixel i begins at element at[i] of base, or is zeros if at[i] is negative. Channels from count on are
 * zeros. pixels is a multiple of the micro-kernel's `pixels`. */
typedef void lt_wgrad_pack(const void *base, const int64_t *at, int64_t pixels, int64_t count,
                           void *out);

/* Product of packed operands: dw[rows][columns], with ld floats between rows, = or += sum over pixels of dy * x. */
typedef void lt_wgrad_product(const void *dy, const void *x, int64_t pixels, float *dw, int64_t ld,
                              bool add);

typedef struct lt_wgrad_microkernel {
    int rows, columns;     /* size of a tile of dw; dy is packed in panels of `rows` channels */
    int pixels;            /* pixels that one instruction sums */
    size_t size;           /* bytes of a packed element */
    lt_wgrad_pack *dy, *x; /* x: one panel of columns; in bf16 pairs of pixels are interleaved */
    lt_wgrad_product *product; /* multiplies one panel of dy and one of x */
    void (*begin)(void);       /* called before and after a thread's products, or NULL */
    void (*end)(void);
} lt_wgrad_microkernel;

extern const lt_wgrad_microkernel lt_wgrad_avx512, lt_wgrad_amx;

/* Packs x with AVX-512, for the AMX micro-kernel, too. */
lt_wgrad_pack lt_wgrad_pack_x_avx512;
/* Packs dy in panels of 32 rows: two tiles of 16 rows per 32 pixels; a row of a tile is 16 pairs of pixels. */
lt_wgrad_pack lt_wgrad_pack_dy_tiles_avx512;

#endif
