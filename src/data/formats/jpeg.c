/* JPEG by libjpeg-turbo, decoding no more than a window of the image.
 *
 * jpeg_crop_scanline() and jpeg_skip_scanlines() leave out the inverse transforms and the colour
 * conversion outside of the window. Chroma is interpolated from neighbours, and at the border of
 * a crop the library has none, so the window is decoded with MARGIN more pixels on each side: then
 * its pixels equal those of a whole decode (tests/data/test_jpeg.c compares them).
 *
 * At 1/2, 1/4 or 1/8 of its size the library makes smaller blocks out of the low frequencies; then
 * window and margin are in the smaller pixels.
 *
 * Where restart markers stand at the ends of rows, jpeg_crop_rows.c leaves out those above the window.
 *
 * The library reports an error by calling error_exit(), which must not return: every entry here
 * runs inside guarded(), the only function with a setjmp(). Its warnings (a broken Huffman code)
 * are ignored, as Pillow ignores them; a file that ends early is an error. */

#include "data/formats/jpeg.h"

#include "base/alloc.h"
#include "data/formats/jpeg_crop_rows.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off: jpeglib.h needs stdio.h before it, and jerror.h needs jpeglib.h */
#include <jerror.h>
#include <jpeglib.h>
/* clang-format on */

enum {
    MARGIN = 4,
    MAX_SCANS =
        500, /* a progressive file needs about 10; each costs a pass over all coefficients */
    MAX_PASSES = 20, /* over as many pixels as are allowed */
    /* Every block of 64 pixels has at least one bit (T.81, F.1.2.1); a fourth of that, for
     * components may share the blocks. Arithmetic coding has no such bound. */
    PIXELS_PER_BYTE = 64 * 8 * 4,
    CALLS = 64 /* of the progress monitor between two readings of the clock */
};

typedef struct decoder {
    struct jpeg_decompress_struct c; /* first: the library's callbacks get a pointer to it */
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    const uint8_t *bytes;
    size_t size;
    lt_image_limits limits;
    lt_image_timer timer;
    unsigned calls; /* of the progress monitor */
    lt_window window;
    int channels, shrink;
    lt_image *out;
    lt_jpeg_piece piece; /* decoded instead of bytes, if its own bytes are not NULL */
    bool ran_out;        /* the library asked for bytes after the end */
    bool truncated;      /* and made pixels of them */
    lt_status status;
    char why[JMSG_LENGTH_MAX];
} decoder;

static void on_error(j_common_ptr c)
{
    decoder *d = (decoder *)c;
    d->status = d->errors.msg_code == JERR_OUT_OF_MEMORY ? LT_E_NOMEM : LT_E_FORMAT;
    d->errors.format_message(c, d->why);
    if (d->ran_out && d->status == LT_E_FORMAT)
        snprintf(d->why, sizeof d->why, "the file is truncated");
    longjmp(d->escape, 1);
}

static void give_up(decoder *d)
{
    d->status = LT_E_FORMAT;
    longjmp(d->escape, 1);
}

static void fail_with(decoder *d, const char *why)
{
    snprintf(d->why, sizeof d->why, "%s", why);
    give_up(d);
}

static void on_message(j_common_ptr c, int level)
{
    decoder *d = (decoder *)c;
    if (level < 0 && d->errors.msg_code == JWRN_HIT_MARKER && d->ran_out)
        d->truncated = true;
}

static void ignore(j_decompress_ptr c)
{
    (void)c;
}

static void ignore_output(j_common_ptr c)
{
    (void)c;
}

/* The bit reader reads ahead, so a file without its end marker may have all pixels: supplies the
 * marker and notes whether pixels were missing (on_message). */
static boolean fill(j_decompress_ptr c)
{
    static const JOCTET end[] = {0xFF, JPEG_EOI};
    decoder *d = (decoder *)c;
    d->ran_out = true;
    c->src->next_input_byte = end;
    c->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void skip(j_decompress_ptr c, long count)
{
    if (count <= 0)
        return;
    if ((size_t)count > c->src->bytes_in_buffer)
        fail_with((decoder *)c, "the file is truncated");
    c->src->next_input_byte += count;
    c->src->bytes_in_buffer -= (size_t)count;
}

static void on_progress(j_common_ptr c)
{
    decoder *d = (decoder *)c;
    double pixels = (double)d->c.image_width * d->c.image_height;
    if (d->c.input_scan_number > MAX_SCANS
        || d->c.input_scan_number * pixels > MAX_PASSES * (double)d->limits.pixels) {
        snprintf(d->why, sizeof d->why, "%d scans of %u x %u pixels", d->c.input_scan_number,
                 d->c.image_width, d->c.image_height);
        give_up(d);
    }
    if (++d->calls % CALLS == 0 && lt_image_check_time(&d->timer))
        fail_with(d, lt_error_message());
}

static void read_header_of(decoder *d, const uint8_t *bytes, size_t size)
{
    d->source = (struct jpeg_source_mgr){.next_input_byte = bytes,
                                         .bytes_in_buffer = size,
                                         .init_source = ignore,
                                         .fill_input_buffer = fill,
                                         .skip_input_data = skip,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = ignore};
    d->c.src = &d->source;
    d->progress.progress_monitor = on_progress;
    d->c.progress = &d->progress;
    jpeg_read_header(&d->c, TRUE);
    if (d->ran_out)
        fail_with(d, "the file is truncated");
}

static void read_header(decoder *d)
{
    jpeg_create_decompress(&d->c);
    read_header_of(d, d->bytes, d->size);
}

/* Runs work; the library's errors become a status. */
static lt_status guarded(decoder *d, void (*work)(decoder *))
{
    d->c.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_message;
    d->errors.output_message = ignore_output;
    if (!setjmp(d->escape))
        work(d);
    jpeg_destroy_decompress(&d->c); /* valid after a failed create too: the struct is zeroed */
    if (d->status == LT_E_NOMEM)
        return lt_fail(LT_E_NOMEM, "jpeg: %s", d->why);
    return d->status ? lt_fail(d->status, "jpeg: %s", d->why) : LT_OK;
}

lt_status lt_jpeg_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    decoder d = {.bytes = bytes, .size = size};
    LT_TRY(guarded(&d, read_header));
    *width = (int32_t)d.c.image_width;
    *height = (int32_t)d.c.image_height;
    return LT_OK;
}

/* Whether the end marker is there. Inside of coded data FF is always followed by 00 or a restart
 * marker (T.81, B.1.1.5), so it is found from the end at once, unless the file is truncated. */
static bool has_end(const decoder *d)
{
    const uint8_t *begin = d->source.next_input_byte;
    for (size_t i = d->source.bytes_in_buffer; i >= 2; i--)
        if (begin[i - 2] == 0xFF && begin[i - 1] == JPEG_EOI)
            return true;
    return false;
}

/* Sampling for which the library's cropping is known to be exact: luma 1 or 2 times the chroma in
 * each direction, chroma at 1. */
static bool can_crop(const struct jpeg_decompress_struct *c)
{
    for (int i = 0; i < c->num_components; i++) {
        const jpeg_component_info *k = &c->comp_info[i];
        bool luma = i == 0 && c->num_components == 3;
        if (k->h_samp_factor > (luma ? 2 : 1) || k->v_samp_factor > (luma ? 2 : 1))
            return false;
    }
    return true;
}

static void read_shrinks(decoder *d)
{
    read_header(d);
    d->shrink = can_crop(&d->c) ? DCTSIZE : 1;
}

bool lt_jpeg_shrinks(const uint8_t *bytes, size_t size)
{
    decoder d = {.bytes = bytes, .size = size};
    return !guarded(&d, read_shrinks) && d.shrink > 1;
}

/* Whether a progressive file lacks scans. The library then smooths blocks by their neighbours, as
 * in Pillow, and a window would lack those at its border. */
static bool lacks_scans(const struct jpeg_decompress_struct *c)
{
    enum { SMOOTHED = 10 }; /* coefficients that smoothing reads */
    for (int i = 0; c->coef_bits && i < c->num_components; i++)
        for (int k = 0; k < SMOOTHED; k++)
            if (c->coef_bits[i][k])
                return true;
    return false;
}

static void choose_colours(decoder *d)
{
    bool four = d->c.jpeg_color_space == JCS_CMYK || d->c.jpeg_color_space == JCS_YCCK;
    d->c.out_color_space = four ? JCS_CMYK : d->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    d->c.scale_num = 1;
    d->c.scale_denom = (unsigned)d->shrink;
    d->c.dct_method = JDCT_ISLOW;
    d->c.do_fancy_upsampling = TRUE;
}

/* CMYK as Adobe stores it, inverted, to RGB or grey with Pillow's rounding, in place. */
static void convert_cmyk(uint8_t *row, uint32_t width, int channels)
{
    for (uint32_t x = 0; x < width; x++) {
        const uint8_t *from = row + (size_t)4 * x;
        unsigned k = from[3], rgb[3];
        for (int i = 0; i < 3; i++) {
            unsigned t = (255U - from[i]) * k + 128;
            rgb[i] = k - (((t >> 8) + t) >> 8);
        }
        if (channels == 3)
            for (int i = 0; i < 3; i++)
                row[(size_t)3 * x + (size_t)i] = (uint8_t)rgb[i];
        else
            row[x] = lt_luma(rgb[0], rgb[1], rgb[2]);
    }
}

static uint32_t minus(uint32_t a, uint32_t low)
{
    return a > low ? a - low : 0;
}

/* Reads rows first .. last-1 of the started decoder into out, whose rows hold `stride` bytes. */
static void read_rows(decoder *d, uint32_t first, uint32_t last, size_t stride)
{
    if (first > 0)
        jpeg_skip_scanlines(&d->c, first);
    for (uint32_t y = first; y < last; y++) {
        JSAMPROW row = d->out->memory + (y - first) * stride;
        jpeg_read_scanlines(&d->c, &row, 1);
        if (d->c.out_color_space == JCS_CMYK)
            convert_cmyk(row, d->c.output_width, d->channels);
    }
}

/* Restarts decoding with a file of the window's rows only, if restart markers allow one. */
static void leave_out_rows(decoder *d)
{
    const struct jpeg_decompress_struct *c = &d->c;
    if (c->progressive_mode || c->comps_in_scan != c->num_components || !can_crop(c))
        return;
    int64_t width = (int64_t)DCTSIZE * c->max_h_samp_factor;
    const lt_jpeg_rows rows = {
        .bytes = d->bytes,
        .size = d->size,
        .coded = d->size - d->source.bytes_in_buffer,
        .mcus_per_row = (c->image_width + width - 1) / width,
        .interval = c->restart_interval,
        .mcu_height = DCTSIZE * c->max_v_samp_factor,
        .height = (int32_t)c->image_height,
    };
    int32_t low = (d->window.y - MARGIN) * d->shrink;
    int32_t high = (d->window.y + d->window.height + MARGIN) * d->shrink;
    high = high < rows.height ? high : rows.height;
    if (low <= 0 || lt_jpeg_cut(&rows, low, high, &d->piece))
        return;
    jpeg_abort_decompress(&d->c);
    read_header_of(d, d->piece.bytes, d->piece.size);
    d->window.y -= d->piece.y / d->shrink;
}

static uint32_t smaller(uint32_t side, int shrink)
{
    return (side + (uint32_t)shrink - 1) / (uint32_t)shrink;
}

/* Checks limits before memory for pixels is allocated. Progressive files need two bytes a
 * coefficient. */
static void limit(decoder *d)
{
    size_t pixels = (size_t)d->c.image_width * d->c.image_height;
    if (lt_image_check(&d->limits, d->c.image_width, d->c.image_height)
        || (!d->c.arith_code
            && lt_image_check_file(d->size, PIXELS_PER_BYTE, d->c.image_width, d->c.image_height)))
        fail_with(d, lt_error_message());
    d->c.mem->max_memory_to_use =
        (long)lt_image_workspace(&d->limits, pixels * (size_t)d->c.num_components);
    d->timer = lt_image_start(&d->limits);
}

static void decode(decoder *d)
{
    read_header(d);
    limit(d);
    LT_ASSERT((uint32_t)(d->window.x + d->window.width) <= smaller(d->c.image_width, d->shrink));
    LT_ASSERT((uint32_t)(d->window.y + d->window.height) <= smaller(d->c.image_height, d->shrink));
    bool ended = has_end(d);
    if (!ended && (d->c.arith_code || jpeg_has_multiple_scans(&d->c)))
        fail_with(d, "the file is truncated");
    if (ended)
        leave_out_rows(d);
    choose_colours(d);
    jpeg_start_decompress(&d->c);

    uint32_t height = d->c.output_height;
    uint32_t x0 = 0, width = d->c.output_width, y0 = 0, y1 = height;
    if (can_crop(&d->c) && !lacks_scans(&d->c)) {
        uint32_t right = (uint32_t)(d->window.x + d->window.width) + MARGIN;
        x0 = minus((uint32_t)d->window.x, MARGIN);
        width = (right < width ? right : width) - x0;
        if (width < d->c.output_width)
            jpeg_crop_scanline(&d->c, &x0, &width); /* moves x0 left to a block's border */
        y0 = minus((uint32_t)d->window.y, MARGIN);
        uint32_t low = (uint32_t)(d->window.y + d->window.height) + MARGIN;
        y1 = low < height && ended
                 ? low
                 : height; /* without an end marker reads to the end, which finds missing data */
    }
    size_t stride = (size_t)width * (size_t)d->c.output_components;
    d->status = lt_image_reserve(d->out, stride * (y1 - y0));
    if (d->status) {
        snprintf(d->why, sizeof d->why, "no memory for the pixels");
        return;
    }
    read_rows(d, y0, y1, stride);
    if (d->truncated)
        fail_with(d, "the file is truncated");

    d->out->pixels = d->out->memory + ((uint32_t)d->window.y - y0) * stride
                     + ((uint32_t)d->window.x - x0) * (size_t)d->channels;
    d->out->stride = stride;
}

lt_status lt_jpeg_decode_small(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                               int channels, int shrink, lt_window window, lt_image *out)
{
    decoder d = {.bytes = bytes,
                 .size = size,
                 .limits = lt_image_limits_of(limits),
                 .channels = channels,
                 .shrink = shrink,
                 .window = window,
                 .out = out};
    lt_status st = guarded(&d, decode);
    lt_free(d.piece.bytes);
    LT_TRY(st);
    out->width = window.width;
    out->height = window.height;
    out->channels = channels;
    return LT_OK;
}

lt_status lt_jpeg_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_image *out)
{
    return lt_jpeg_decode_small(bytes, size, limits, channels, 1, window, out);
}
