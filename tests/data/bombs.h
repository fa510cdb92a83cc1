/* Small files that cost a careless reader gigabytes or minutes. */
#ifndef LT_TESTS_BOMBS_H
#define LT_TESTS_BOMBS_H

#include <stddef.h>
#include <stdint.h>

/* Files in memory; free() them. */

/* 35 bytes of a screen of side x side. */
uint8_t *make_gif_bomb(int side, size_t *size);

/* One pixel, and so many codes behind it, each of up to 4096 steps to a decoder. */
uint8_t *make_gif_codes(size_t count, size_t *size);

typedef struct png_spec {
    int width, height;
    int depth, colour; /* ISO 15948, 11.2.2: bits of a sample, type of colours */
    size_t inflated;   /* zeros that the data inflate to */
} png_spec;
uint8_t *make_png_bomb(const png_spec *spec, size_t *size);

/* One pixel behind so many deflate blocks without data, a multiple of 4 of them. */
uint8_t *make_png_blocks(size_t count, size_t *size);

/* A progressive image of side x side whose blocks are missing; with scans, the last one is there so
 * often, and the file is padded to padded bytes at least. */
uint8_t *make_jpeg_bomb(int side, int scans, size_t padded, size_t *size);

/* A safetensors file whose header holds a shape of count extents. */
uint8_t *make_shape_bomb(size_t count, size_t *size);
/* One of count empty tensors, which is right. */
uint8_t *make_many_tensors(size_t count, size_t *size);

/* An idx file of images of 1000 x 1000, compressed by gzip, that claims `claimed` of them and has
 * `there`. */
uint8_t *make_idx_bomb(uint32_t claimed, uint32_t there, size_t *size);

/* TIFF of one strip of deflate: the sides claimed, bits of a grey pixel, and zeros that the strip inflates to; tile:
 * side of its tiles instead of strips, or 0. */
uint8_t *make_tiff_bomb(uint32_t side, uint32_t tile, uint32_t bits, size_t inflated, size_t *size);
/* One of side x side grey pixels, each row a strip of its own, all of them the same bytes of the
 * file. */
uint8_t *make_tiff_strips(uint32_t side, size_t *size);
/* WebP without a loss whose header says side x side. */
uint8_t *make_webp_bomb(int side, size_t *size);

/* A file of tests/golden/data/formats. grid.avif was made by libavif 0.11 (avifEncoderAddImageGrid()): 4 x 4 cells of
 * 2048 x 2048 pixels of one colour, in 1,202 bytes. */
uint8_t *read_format(const char *name, size_t *size);
/* An AVIF file whose header claims side x side pixels; what is inside is unchanged. */
uint8_t *make_avif_bomb(const char *name, uint32_t side, size_t *size);

#endif
