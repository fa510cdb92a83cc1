/* Small files that would cost a naive decoder gigabytes or minutes. */
#ifndef LT_TESTS_BOMBS_H
#define LT_TESTS_BOMBS_H

#include <stddef.h>
#include <stdint.h>

/* Parameters of the makers; each uses those in its comment. */
typedef struct bomb_spec {
    int width, height; /* claimed by the header; all but PNG are width x width */
    int bits, colour;  /* bits per sample; PNG's colour type (ISO 15948, 11.2.2) */
    int tile;          /* side of TIFF's tiles; 0: strips */
    size_t count;      /* codes, blocks, scans, extents, tensors or images */
    size_t inflated;   /* zeros in the compressed data */
    size_t padded;     /* minimum file size */
    const char *name;  /* AVIF file in tests/golden/data/formats */
} bomb_spec;

/* Returns a file in memory; free() it. */
typedef uint8_t *make_bomb(const bomb_spec *spec, size_t *size);

/* A GIF screen of width x width in 35 bytes. */
make_bomb make_gif_bomb;
/* One pixel followed by count LZW codes, each of which takes a decoder up to 4096 steps. */
make_bomb make_gif_codes;
/* width, height, bits, colour, inflated. */
make_bomb make_png_bomb;
/* One pixel after count empty deflate blocks, a multiple of 4. */
make_bomb make_png_blocks;
/* A progressive image of width x width without most of its data, whose last scan occurs count times; padded. */
make_bomb make_jpeg_bomb;
/* One deflate strip, or tile, of a grey image: width, tile, bits, inflated. */
make_bomb make_tiff_bomb;
/* width x width grey pixels in one-row strips that all refer to the same bytes of the file. */
make_bomb make_tiff_strips;
/* A lossless WebP whose header claims width x width. */
make_bomb make_webp_bomb;
/* The file name, its header changed to width x width unless that is 0. grid.avif was made by libavif 0.11
 * (avifEncoderAddImageGrid()): 4 x 4 cells of 2048 x 2048 pixels in one colour, 1,202 bytes. */
make_bomb make_avif_bomb;
/* A safetensors file with a shape of count extents. */
make_bomb make_shape_bomb;
/* A valid safetensors file with count empty tensors. */
make_bomb make_many_tensors;
/* A gzip idx file whose header claims count images of 1000 x 1000; inflated bytes of pixels follow. */
make_bomb make_idx_bomb;

#endif
