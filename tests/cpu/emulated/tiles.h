/* AMX: eight tiles of a thread, after Intel's manual; no test machine of ours had it. See immintrin.h. */
#ifndef LT_TESTS_EMULATED_TILES_H
#define LT_TESTS_EMULATED_TILES_H

typedef struct emulated_tile {
    int rows, bytes; /* 0: not configured */
    union {
        uint16_t h[16][32];
        float f[16][16];
        char row[16][64];
    };
} emulated_tile;

static __thread emulated_tile emulated_tiles[8];

EMULATED emulated_tile *emulated_tile_at(int t)
{
    emulated_expect(t >= 0 && t < 8 && emulated_tiles[t].rows && emulated_tiles[t].bytes);
    return &emulated_tiles[t];
}

/* 64 bytes: the palette, 15 bytes of zeros, of each of 16 tiles the bytes of a row, and the rows. */
EMULATED void _tile_loadconfig(const void *config)
{
    const uint8_t *byte = config;
    uint16_t row_bytes[16];
    memcpy(row_bytes, byte + 16, sizeof row_bytes);
    emulated_expect(byte[0] == 1);
    for (int i = 1; i < 16; i++)
        emulated_expect(byte[i] == 0);
    memset(emulated_tiles, 0, sizeof emulated_tiles);
    for (int t = 0; t < 16; t++) {
        const int rows = byte[48 + t], bytes = row_bytes[t];
        emulated_expect(rows <= 16 && bytes <= 64 && !rows == !bytes && (t < 8 || !rows));
        if (t < 8) {
            emulated_tiles[t].rows = rows;
            emulated_tiles[t].bytes = bytes;
        }
    }
}

EMULATED void _tile_release(void)
{
    memset(emulated_tiles, 0, sizeof emulated_tiles);
}

EMULATED void _tile_zero(int t)
{
    emulated_tile *to = emulated_tile_at(t);
    memset(to->row, 0, sizeof to->row);
}

EMULATED void _tile_loadd(int t, const void *from, size_t stride)
{
    emulated_tile *to = emulated_tile_at(t);
    memset(to->row, 0, sizeof to->row);
    for (int i = 0; i < to->rows; i++)
        memcpy(to->row[i], (const char *)from + (size_t)i * stride, (size_t)to->bytes);
}

EMULATED void _tile_stored(int t, void *to, size_t stride)
{
    const emulated_tile *from = emulated_tile_at(t);
    for (int i = 0; i < from->rows; i++)
        memcpy((char *)to + (size_t)i * stride, from->row[i], (size_t)from->bytes);
}

/* Products of even and of odd elements add up apart, each fused; their sums are added, then the tile's. */
EMULATED void _tile_dpbf16ps(int sum, int a, int b)
{
    emulated_tile *s = emulated_tile_at(sum);
    const emulated_tile *x = emulated_tile_at(a), *y = emulated_tile_at(b);
    emulated_expect(sum != a && sum != b && a != b && x->rows == s->rows && y->bytes == s->bytes
                    && x->bytes == 4 * y->rows);
    for (int m = 0; m < s->rows; m++)
        for (int n = 0; n < s->bytes / 4; n++) {
            float part[2] = {0};
            for (int k = 0; k < y->rows; k++)
                for (int i = 0; i < 2; i++)
                    part[i] =
                        emulated_multiply_add_bf16(x->h[m][2 * k + i], y->h[k][2 * n + i], part[i]);
            const float both = emulated_flush(part[0] + part[1]);
            s->f[m][n] = emulated_flush(emulated_flush(s->f[m][n]) + both);
        }
}

#endif
