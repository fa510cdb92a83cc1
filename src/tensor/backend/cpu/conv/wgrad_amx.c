/* The weight gradient's micro-kernel for AMX (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1,
 * chapter 18). Tests run it with emulated instructions (tests/cpu); it has run on a CPU with AMX only once. */

#include "wgrad_microkernel.h"

#include <immintrin.h>
#include <string.h>

#define TILE_ZERO(t)               _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, (size_t)(stride))
#define TILE_STORE(t, to, stride)  _tile_stored(t, to, (size_t)(stride))
#define TILE_PRODUCT(sum, a, b)    _tile_dpbf16ps(sum, a, b)
#include "wgrad_tiles.h"

/* Operand of LDTILECFG. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "what LDTILECFG reads");

/* Configures this thread's tiles; for one call only, as oneDNN uses tiles too. */
static void configure_tiles(void)
{
    enum { TILES = 8, ROW_BYTES = 64 };
    tile_config c = {.palette = 1};
    for (int i = 0; i < TILES; i++) {
        c.rows[i] = LT_TILE_SIDE;
        c.row_bytes[i] = ROW_BYTES;
    }
    /* GCC 12 assumes that the instruction reads 8 bytes, and would omit the other stores. */
    __asm__ volatile("" : : "r"(&c) : "memory");
    _tile_loadconfig(&c);
}

static void release_tiles(void)
{
    _tile_release();
}

const lt_wgrad_microkernel lt_wgrad_amx = {
    .rows = LT_TILE_ROWS,
    .columns = LT_WGRAD_COLUMNS,
    .pixels = LT_TILE_PIXELS,
    .size = sizeof(uint16_t),
    .dy = lt_wgrad_pack_dy_tiles_avx512,
    .x = lt_wgrad_pack_x_avx512,
    .product = tile_product,
    .begin = configure_tiles,
    .end = release_tiles,
};
