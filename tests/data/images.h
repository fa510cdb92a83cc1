/* Makes images, files and folders for the tests of src/data. Functions that fail end the program. */
#ifndef LT_TESTS_IMAGES_H
#define LT_TESTS_IMAGES_H

#include "data/formats/image.h"

#include "lather/data.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct jpeg_spec {
    int width, height;
    int components; /* 1, 3 (YCbCr) or 4 (CMYK as Adobe writes it) */
    int h, v;       /* sampling factors of the first component */
    int quality;
    bool progressive, arithmetic;
    int restart; /* MCUs between restart markers; 0: none */
    bool rgb;    /* stored as RGB, without conversion to YCbCr */
} jpeg_spec;

/* Returns gradients with edges and noise, [height][width][components]; free() it. *seed advances. */
uint8_t *make_pixels(int width, int height, int components, uint32_t *seed);
/* Returns a JPEG file in memory; free() it. */
uint8_t *make_jpeg(const jpeg_spec *spec, uint32_t *seed, size_t *size);
/* Returns a JPEG file with an Exif segment of this orientation added; free() it. */
uint8_t *tag_jpeg(const uint8_t *jpeg, size_t size, int turn, size_t *tagged_size);
/* Decodes a whole JPEG with libjpeg, at 1/shrink of its size; free() .memory. */
lt_image whole_decode(const uint8_t *bytes, size_t size, int channels, int shrink);
/* Returns a 24-bit BMP file in memory; free() it. */
uint8_t *make_bmp(int width, int height, uint32_t *seed, size_t *size);

uint32_t next_random(uint32_t *seed);
lt_window random_window(int width, int height, uint32_t *seed);
/* Compares part with window w of whole. */
bool same_window(const lt_image *part, const lt_image *whole, lt_window w);

/* Creates a folder below $TMPDIR; remove_folder() deletes it and its contents. */
char *make_folder(void);
void remove_folder(char *path);
/* Runs shell commands in a folder. */
void run_in(const char *folder, const char *commands);
/* Returns FOLDER/NAME; free() it. */
char *below(const char *folder, const char *name);
/* Writes FOLDER/NAME and creates the folders of NAME. */
void write_file(const char *folder, const char *name, const void *bytes, size_t size);
/* Inverts the bits of mask in a byte of a file. */
void flip_bits(const char *path, long at, int mask);

/* Creates a folder with small JPEG and BMP files in three classes of 4, 5 and 6 images. */
char *make_image_folder(void);
/* Opens such a folder. */
lt_dataset *open_images(char **root);
void close_images(lt_dataset **data, char *root);

/* Runs act with its n-th allocation failing, for n = 1, 2, ... until it returns LT_OK; checks that it returns LT_E_NOMEM
 * otherwise. Returns n. */
int fail_each_allocation(lt_status (*act)(void *context), void *context);

#endif
