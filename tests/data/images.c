/* Makes images with libjpeg, and folders for tests. */

#include "images.h"

#include "base/alloc.h"
#include "data/formats/exif.h"
#include "near.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off: jpeglib.h needs stdio.h before it */
#include <jpeglib.h>
/* clang-format on */

uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525U + 1013904223U;
    return *seed >> 8;
}

static void *check(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

uint8_t *make_pixels(int width, int height, int components, uint32_t *seed)
{
    uint8_t *pixels = check(malloc((size_t)width * (size_t)height * (size_t)components));
    uint8_t *p = pixels;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < components; c++) {
                int edge = ((x / 11 + y / 7 + c) & 1) * 90;
                int slope = (x * (c + 1) * 20 / width) + y * 60 / height;
                *p++ = (uint8_t)((unsigned)(edge + slope) + next_random(seed) % 25);
            }
    return pixels;
}

static void choose(struct jpeg_compress_struct *c, const jpeg_spec *spec)
{
    c->image_width = (JDIMENSION)spec->width;
    c->image_height = (JDIMENSION)spec->height;
    c->input_components = spec->components;
    c->in_color_space = spec->components == 1   ? JCS_GRAYSCALE
                        : spec->components == 3 ? JCS_RGB
                                                : JCS_CMYK;
    jpeg_set_defaults(c);
    if (spec->rgb)
        jpeg_set_colorspace(c, JCS_RGB);
    jpeg_set_quality(c, spec->quality, TRUE);
    c->comp_info[0].h_samp_factor = spec->h;
    c->comp_info[0].v_samp_factor = spec->v;
    c->restart_interval = (unsigned)spec->restart;
    c->arith_code = spec->arithmetic;
    if (spec->progressive)
        jpeg_simple_progression(c);
}

uint8_t *make_jpeg(const jpeg_spec *spec, uint32_t *seed, size_t *size)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *bytes = NULL;
    unsigned long length = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &bytes, &length);
    choose(&c, spec);

    uint8_t *pixels = make_pixels(spec->width, spec->height, spec->components, seed);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < spec->height; y++) {
        JSAMPROW row = pixels + (size_t)y * (size_t)spec->width * (size_t)spec->components;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(pixels);
    *size = length;
    return bytes;
}

lt_image whole_decode(const uint8_t *bytes, size_t size, int channels, int shrink)
{
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    c.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&c);
    jpeg_mem_src(&c, bytes, size);
    jpeg_read_header(&c, TRUE);
    c.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    c.scale_num = 1;
    c.scale_denom = (unsigned)shrink;
    jpeg_start_decompress(&c);
    lt_image image = {.stride = (size_t)c.output_width * (size_t)channels,
                      .width = (int32_t)c.output_width,
                      .height = (int32_t)c.output_height,
                      .channels = channels};
    image.pixels = image.memory = check(malloc(image.stride * c.output_height));
    while (c.output_scanline < c.output_height) {
        JSAMPROW row = image.memory + c.output_scanline * image.stride;
        jpeg_read_scanlines(&c, &row, 1);
    }
    jpeg_finish_decompress(&c);
    jpeg_destroy_decompress(&c);
    return image;
}

lt_window random_window(int width, int height, uint32_t *seed)
{
    lt_window w = {.width = 1 + (int32_t)(next_random(seed) % (uint32_t)width),
                   .height = 1 + (int32_t)(next_random(seed) % (uint32_t)height)};
    w.x = (int32_t)(next_random(seed) % (uint32_t)(width - w.width + 1));
    w.y = (int32_t)(next_random(seed) % (uint32_t)(height - w.height + 1));
    return w;
}

bool same_window(const lt_image *part, const lt_image *whole, lt_window w)
{
    size_t channels = (size_t)part->channels;
    for (int32_t y = 0; y < w.height; y++)
        if (memcmp(part->pixels + (size_t)y * part->stride,
                   whole->pixels + (size_t)(w.y + y) * whole->stride + (size_t)w.x * channels,
                   (size_t)w.width * channels))
            return false;
    return part->width == w.width && part->height == w.height;
}

static void put(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

uint8_t *make_bmp(int width, int height, uint32_t *seed, size_t *size)
{
    enum { HEADER = 54 };
    size_t row = ((size_t)width * 3 + 3) / 4 * 4;
    *size = HEADER + row * (size_t)height;
    uint8_t *file = check(calloc(*size, 1));
    file[0] = 'B';
    file[1] = 'M';
    put(file + 2, (uint32_t)*size, 4);
    put(file + 10, HEADER, 4);
    put(file + 14, 40, 4);
    put(file + 18, (uint32_t)width, 4);
    put(file + 22, (uint32_t)height, 4);
    put(file + 26, 1, 2);
    put(file + 28, 24, 2);
    uint8_t *pixels = make_pixels(width, height, 3, seed);
    for (size_t y = 0; y < (size_t)height; y++) /* bottom row first, blue first */
        for (size_t i = 0; i < (size_t)width * 3; i++)
            file[HEADER + ((size_t)height - 1 - y) * row + i] =
                pixels[y * (size_t)width * 3 + i / 3 * 3 + 2 - i % 3];
    free(pixels);
    return file;
}

char *make_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path = NULL;
    if (asprintf(&path, "%s/lather-data-XXXXXX", base ? base : "/tmp") < 0 || !mkdtemp(path))
        abort();
    return path;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)type, (void)where;
    return remove(path);
}

void remove_folder(char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS))
        abort();
    free(path);
}

void write_file(const char *folder, const char *name, const void *bytes, size_t size)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        abort();
    for (char *slash = strchr(path + strlen(folder) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = 0;
        if (mkdir(path, 0777) && errno != EEXIST)
            abort();
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file))
        abort();
    free(path);
}

uint8_t *tag_jpeg(const uint8_t *jpeg, size_t size, int turn, size_t *tagged_size)
{
    uint8_t *out = malloc(size + 4 + LT_EXIF_BYTES);
    assert_non_null(out);
    memcpy(out, "\xff\xd8\xff\xe1\0", 5);
    out[5] = 2 + LT_EXIF_BYTES;
    lt_exif_write(turn, out + 6);
    memcpy(out + 6 + LT_EXIF_BYTES, jpeg + 2, size - 2);
    *tagged_size = size + 4 + LT_EXIF_BYTES;
    assert_int_equal(lt_exif_orientation(out, *tagged_size), turn);
    return out;
}

char *make_image_folder(void)
{
    char *root = make_folder();
    uint32_t seed = 5;
    for (int label = 0; label < 3; label++)
        for (int i = 0; i < 4 + label; i++) {
            jpeg_spec spec = {30 + 7 * i, 50 - 6 * label, 3, 1 + i % 2, 1, 85, i == 2, 0, 0, 0};
            size_t size = 0;
            bool bmp = i == 3;
            uint8_t *bytes = bmp ? make_bmp(40, 33, &seed, &size) : make_jpeg(&spec, &seed, &size);
            char name[32];
            snprintf(name, sizeof name, "class%d/%02d.%s", label, i, bmp ? "bmp" : "jpg");
            write_file(root, name, bytes, size);
            free(bytes);
        }
    return root;
}

void run_in(const char *folder, const char *commands)
{
    char *line = NULL;
    if (asprintf(&line, "cd '%s' && %s", folder, commands) < 0)
        abort();
    if (system(line)) {
        fprintf(stderr, "'%s' failed\n", line);
        abort();
    }
    free(line);
}

char *below(const char *folder, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        abort();
    return path;
}

void flip_bits(const char *path, long at, int mask)
{
    FILE *file = fopen(path, "r+b");
    if (!file || fseek(file, at, SEEK_SET))
        abort();
    int byte = fgetc(file);
    if (fseek(file, at, SEEK_SET) || fputc(byte ^ mask, file) == EOF || fclose(file))
        abort();
}

lt_dataset *open_images(char **root)
{
    lt_dataset *d = NULL;
    *root = make_image_folder();
    assert_ok(lt_dataset_open(&d, *root, true));
    return d;
}

void close_images(lt_dataset **data, char *root)
{
    lt_dataset_free(data);
    remove_folder(root);
}

int fail_each_allocation(lt_status (*act)(void *context), void *context)
{
    for (int n = 1;; n++) {
        lt_alloc_fail_at(n);
        lt_status st = act(context);
        lt_alloc_fail_at(0);
        if (!st)
            return n;
        assert_status(st, LT_E_NOMEM);
    }
}
