/* A unit of weight gradients: packing and products, with the instructions of one kind of processor. */
#ifndef LT_BACKEND_CPU_WGRAD_UNIT_H
#define LT_BACKEND_CPU_WGRAD_UNIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Packing with AVX-512, for the units whose product is another's. */
lt_wgrad_pack lt_wgrad_pack_x_avx512;
/* Panels of 32 rows: for each 32 pixels two tiles of 16 rows; a tile's row is 16 pairs. */
lt_wgrad_pack lt_wgrad_pack_dy_tiles_avx512;

#endif
