/* The weight gradient's bf16 kernels as separate backends: the cpu backend, with every bf16 weight
 * gradient of one group by one kernel, whatever its size. The f32 kernels are those of LATHER_CPU_KERNELS=builtin.
 *
 *   vectors    AVX512_BF16
 *   tiles      AMX's product over tiles in C, with packing in C: runs anywhere
 *   tiles512   the same with the packing that AMX machines use, which needs AVX-512 */

#include "tensor/backend/cpu/conv/wgrad.h"

#include "conform.h"
#include "tensor/backend/cpu/cpu.h"

#include <string.h>

/* Tiles of 16 rows of 64 bytes, as in Intel's manual. */
typedef struct tile {
    uint8_t row[16][64];
} tile;
static __thread tile tiles[8];

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void load(int t, const void *from, int64_t stride)
{
    for (int i = 0; i < 16; i++)
        memcpy(tiles[t].row[i], (const char *)from + i * stride, 64);
}

static void store(int t, void *to, int64_t stride)
{
    for (int i = 0; i < 16; i++)
        memcpy((char *)to + i * stride, tiles[t].row[i], 64);
}

static void multiply(int sum, int a, int b)
{
    for (int m = 0; m < 16; m++) {
        float s[16];
        uint16_t left[32], right[32];
        memcpy(s, tiles[sum].row[m], sizeof s);
        memcpy(left, tiles[a].row[m], sizeof left);
        for (int k = 0; k < 16; k++) {
            memcpy(right, tiles[b].row[k], sizeof right);
            for (int n = 0; n < 16; n++) {
                s[n] += from_bf16(left[2 * k]) * from_bf16(right[2 * n]);
                s[n] += from_bf16(left[2 * k + 1]) * from_bf16(right[2 * n + 1]);
            }
        }
        memcpy(tiles[sum].row[m], s, sizeof s);
    }
}

#define TILE_ZERO(t)               memset(&tiles[t], 0, sizeof(tile))
#define TILE_LOAD(t, from, stride) load(t, from, stride)
#define TILE_STORE(t, to, stride)  store(t, to, stride)
#define TILE_PRODUCT(sum, a, b)    multiply(sum, a, b)
#include "tensor/backend/cpu/conv/wgrad_tiles.h"

static uint16_t channel(const uint16_t *base, int64_t at, int64_t c, int64_t count)
{
    return at < 0 || c >= count ? 0 : base[at + c];
}

/* Pairs of adjacent pixels, 32 channels of them. */
static void pack_x(const void *base, const int64_t *at, int64_t pixels, int64_t count, void *out)
{
    uint16_t *to = out;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t c = 0; c < LT_WGRAD_COLUMNS; c++)
            to[(p / 2 * LT_WGRAD_COLUMNS + c) * 2 + p % 2] = channel(base, at[p], c, count);
}

/* Panels of 32 rows: for each 32 pixels two tiles of 16 rows; a tile's row is 32 pixels. */
static void pack_dy(const void *base, const int64_t *at, int64_t pixels, int64_t count, void *out)
{
    uint16_t *to = out;
    for (int64_t k = 0; k < count; k += LT_TILE_ROWS)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t r = 0; r < LT_TILE_ROWS; r++)
                to[k * pixels + p / LT_TILE_PIXELS * (LT_TILE_PIXELS * LT_TILE_ROWS)
                   + r * LT_TILE_PIXELS + p % LT_TILE_PIXELS] = channel(base, at[p], k + r, count);
}

static lt_wgrad_microkernel unit = {.rows = LT_TILE_ROWS,
                                    .columns = LT_WGRAD_COLUMNS,
                                    .pixels = LT_TILE_PIXELS,
                                    .size = sizeof(uint16_t),
                                    .dy = pack_dy,
                                    .x = pack_x,
                                    .product = tile_product};

/* Writes to temporary memory if dw is not in the library's storage order. */
static lt_status grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                        const lt_view *x, const lt_view *dw)
{
    if (x->dtype != LT_BF16 || config->groups != 1)
        return lt_backend_cpu()->conv2d_grad_w(ctx, config, dy, x, dw);
    lt_view own = lt_cpu_dense_view(NULL, LT_F32, dw->shape);
    own.data = lt_cpu_has_same_layout(&own, dw)
                   ? dw->data
                   : lt_alloc((size_t)lt_shape_count(dw->shape), sizeof(float));
    LT_ASSERT(own.data);
    lt_status st = lt_wgrad_run(ctx, &unit, config, x, dy, dw->shape, own.data);
    if (own.data == dw->data)
        return st;
    st = st ? st : lt_backend_cpu()->cast(ctx, &own, dw);
    lt_free(own.data);
    return st;
}

static bool has_bf16(void *ctx, lt_dtype dtype)
{
    (void)ctx;
    return dtype == LT_F32 || dtype == LT_BF16;
}

static bool choose_unit(const char *name)
{
    if (!strcmp(name, "tiles"))
        return true;
#if defined(__x86_64__)
    lt_cpu_isa isa;
    if (lt_cpu_choose_isa(&isa))
        return false;
    if (!strcmp(name, "tiles512") && isa >= LT_ISA_AVX512) {
        unit.dy = lt_wgrad_amx.dy;
        unit.x = lt_wgrad_amx.x;
        return true;
    }
    if (!strcmp(name, "vectors") && isa >= LT_ISA_AVX512_BF16) {
        unit = lt_wgrad_avx512;
        return true;
    }
#endif
    return false;
}

const lt_backend *wgrad_backend(const char *name)
{
    static lt_backend table;
    if (!choose_unit(name))
        return NULL;
    table = *lt_backend_cpu();
    table.conv2d_grad_w = grad_w;
    table.has_fast = has_bf16;
    return &table;
}
