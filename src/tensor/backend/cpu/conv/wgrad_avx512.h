/* Packing with AVX-512, for the units whose product is another's. */
#ifndef LT_BACKEND_CPU_WGRAD_AVX512_H
#define LT_BACKEND_CPU_WGRAD_AVX512_H

#include "wgrad.h"

lt_wgrad_pack lt_wgrad_pack_x_avx512;
/* Panels of 32 rows: for each 32 pixels two tiles of 16 rows; a tile's row is 16 pairs. */
lt_wgrad_pack lt_wgrad_pack_dy_tiles_avx512;

#endif
