/* The weight gradient's micro-kernel for AMX. */

#include "tensor/backend/cpu/amx.h"
#include "wgrad_microkernel.h"

#define TILE_ZERO(t)               _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, (size_t)(stride))
#define TILE_STORE(t, to, stride)  _tile_stored(t, to, (size_t)(stride))
#define TILE_PRODUCT(sum, a, b)    _tile_dpbf16ps(sum, a, b)
#include "wgrad_tiles.h"

const lt_wgrad_microkernel lt_wgrad_amx = {
    .rows = LT_TILE_ROWS,
    .columns = LT_WGRAD_COLUMNS,
    .pixels = LT_TILE_PIXELS,
    .size = sizeof(uint16_t),
    .dy = lt_wgrad_pack_dy_tiles_avx512,
    .x = lt_wgrad_pack_x_avx512,
    .product = tile_product,
    .begin = lt_amx_configure,
    .end = lt_amx_release,
};
