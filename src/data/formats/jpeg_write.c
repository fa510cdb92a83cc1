/* Writes the JPEG files of packs with libjpeg-turbo, from the coefficients of another file or from pixels: a sequential
 * file with one scan, optimized Huffman codes and a restart marker after every row of MCUs (see jpeg_crop_rows.c). */

#include "base/alloc.h"
#include "data/formats/exif.h"
#include "data/formats/jpeg.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: jpeglib.h needs stdio.h before it, and jerror.h needs jpeglib.h */
#include <jerror.h>
#include <jpeglib.h>
/* clang-format on */

typedef struct coder {
    struct jpeg_error_mgr errors; /* first: the library's callbacks get a pointer to it */
    jmp_buf escape;
    struct jpeg_decompress_struct from;
    struct jpeg_compress_struct to;
    unsigned char *bytes; /* the output, allocated by the library with malloc() */
    unsigned long size;
    unsigned char *row; /* copy of a row, as the library's interface is not const */
    bool warned;        /* the library ignored corrupt data */
    lt_status status;
    char why[JMSG_LENGTH_MAX];
    /* The input: a file or pixels. */
    const uint8_t *file;
    size_t file_size;
    const lt_pixels *image;
    int quality;
} coder;

static void on_error(j_common_ptr c)
{
    coder *k = (coder *)(void *)c->err;
    k->status = k->errors.msg_code == JERR_OUT_OF_MEMORY ? LT_E_NOMEM : LT_E_FORMAT;
    k->errors.format_message(c, k->why);
    longjmp(k->escape, 1);
}

static void on_warning(j_common_ptr c, int level)
{
    if (level < 0)
        ((coder *)(void *)c->err)->warned = true;
}

static void start_writer(coder *k)
{
    k->to.err = &k->errors;
    jpeg_create_compress(&k->to);
    jpeg_mem_dest(&k->to, &k->bytes, &k->size);
}

static void set_coding_options(struct jpeg_compress_struct *to)
{
    to->optimize_coding = TRUE;
    to->arith_code = FALSE;
    to->restart_in_rows = 1;
}

/* Writes the EXIF orientation unless upright. Must be called between the start and the end of compression. */
static void write_orientation(coder *k, int orientation)
{
    uint8_t exif[LT_EXIF_BYTES];
    if (orientation <= LT_EXIF_UPRIGHT)
        return;
    lt_exif_write(orientation, exif);
    jpeg_write_marker(&k->to, JPEG_APP0 + 1, exif, sizeof exif);
}

static void copy_coefficients(coder *k)
{
    k->from.err = &k->errors;
    jpeg_create_decompress(&k->from);
    jpeg_mem_src(&k->from, k->file, k->file_size);
    jpeg_read_header(&k->from, TRUE);
    jvirt_barray_ptr *coefficients = jpeg_read_coefficients(&k->from);
    start_writer(k);
    jpeg_copy_critical_parameters(&k->from, &k->to);
    set_coding_options(&k->to);
    jpeg_write_coefficients(&k->to, coefficients);
    write_orientation(k, lt_exif_orientation(k->file, k->file_size));
    jpeg_finish_compress(&k->to);
}

static void encode_pixels(coder *k)
{
    const lt_pixels *p = k->image;
    start_writer(k);
    k->to.image_width = (JDIMENSION)p->width;
    k->to.image_height = (JDIMENSION)p->height;
    k->to.input_components = p->channels;
    k->to.in_color_space = p->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&k->to);
    jpeg_set_quality(&k->to, k->quality, TRUE);
    set_coding_options(&k->to);
    jpeg_start_compress(&k->to, TRUE);
    write_orientation(k, p->orientation);
    size_t stride = (size_t)p->width * (size_t)p->channels;
    k->row = lt_alloc_aligned(64, stride);
    if (!k->row) {
        k->status = LT_E_NOMEM;
        return;
    }
    for (int32_t y = 0; y < p->height; y++) {
        memcpy(k->row, p->pixels + (size_t)y * stride, stride);
        jpeg_write_scanlines(&k->to, &k->row, 1);
    }
    jpeg_finish_compress(&k->to);
}

/* Runs work and turns the library's errors into a status. */
static lt_status run_guarded(coder *k, void (*work)(coder *))
{
    jpeg_std_error(&k->errors);
    k->errors.error_exit = on_error;
    k->errors.emit_message = on_warning;
    if (!setjmp(k->escape))
        work(k);
    jpeg_destroy_decompress(&k->from); /* also valid if not created, as the struct is zeroed */
    jpeg_destroy_compress(&k->to);
    lt_free(k->row);
    if (!k->status && k->warned)
        k->status = lt_fail(LT_E_FORMAT, "jpeg: corrupt data");
    else if (k->status)
        k->status = lt_fail(k->status, "jpeg: %s", k->why);
    return k->status;
}

/* Copies the result to memory for lt_free() and frees the library's. */
static lt_status move_result(coder *k, lt_status st, uint8_t **out, size_t *out_size)
{
    uint8_t *copy = st ? NULL : lt_alloc_aligned(64, k->size);
    if (!st && !copy)
        st = LT_E_NOMEM;
    if (!st) {
        memcpy(copy, k->bytes, k->size);
        *out = copy;
        *out_size = k->size;
    }
    free(k->bytes);
    return st;
}

lt_status lt_jpeg_transcode(const uint8_t *bytes, size_t size, uint8_t **out, size_t *out_size)
{
    coder k = {.file = bytes, .file_size = size};
    lt_status st = run_guarded(&k, copy_coefficients);
    return move_result(&k, st, out, out_size);
}

lt_status lt_jpeg_encode(const lt_pixels *image, int quality, uint8_t **out, size_t *out_size)
{
    coder k = {.image = image, .quality = quality};
    lt_status st = run_guarded(&k, encode_pixels);
    return move_result(&k, st, out, out_size);
}
