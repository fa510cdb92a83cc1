/* Images and files that the tests of src/data make for themselves. */
#ifndef LT_TESTS_IMAGES_H
#define LT_TESTS_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct jpeg_spec {
    int width, height;
    int components; /* 1, 3 (YCbCr) or 4 (CMYK as Adobe writes it) */
    int h, v;       /* sampling of the first component */
    int quality;
    bool progressive, arithmetic;
    int restart; /* MCUs between restart markers; 0: none */
    bool rgb;    /* stored without conversion to YCbCr */
} jpeg_spec;

/* Gradients with edges and noise, [height][width][components]; *seed advances. Free with free(). */
uint8_t *make_pixels(int width, int height, int components, uint32_t *seed);
/* A JPEG file in memory. Free with free(). */
uint8_t *make_jpeg(const jpeg_spec *spec, uint32_t *seed, size_t *size);
/* What libjpeg makes of it, whole. Free with free(). */
uint8_t *whole_decode(const uint8_t *bytes, size_t size, int channels);
/* The same at 1/shrink of its size. */
uint8_t *whole_decode_small(const uint8_t *bytes, size_t size, int channels, int shrink);
/* A 24-bit BMP file in memory. Free with free(). */
uint8_t *make_bmp(int width, int height, uint32_t *seed, size_t *size);

uint32_t next_random(uint32_t *seed);

/* A fresh folder below $TMPDIR; remove_folder() deletes it with all it holds. */
char *make_folder(void);
void remove_folder(char *path);
/* Runs shell commands in a folder; they must succeed. */
void run_in(const char *folder, const char *commands);
/* FOLDER/NAME. Free with free(). */
char *below(const char *folder, const char *name);
/* Small JPEG and BMP files in three classes, 4, 5 and 6 of them, in a fresh folder. */
char *make_image_folder(void);
/* Writes FOLDER/NAME, with the folders on the way. */
void write_file(const char *folder, const char *name, const void *bytes, size_t size);

#endif
