/* Decodes a window of a JPEG image with libjpeg-turbo.
 *
 * jpeg_crop_scanline() and jpeg_skip_scanlines() skip the inverse transforms and the colour conversion outside the
 * window. The library interpolates chroma from adjacent pixels, which are missing at the border of a crop. So the
 * window is decoded with MARGIN more pixels on each side; then its pixels equal those of a full decode
 * (tests/data/test_jpeg.c compares them).
 *
 * At 1/2, 1/4 or 1/8 of the size the library transforms only the low frequencies to smaller blocks; window and margin
 * are in pixels of the smaller image.
 *
 * If restart markers are at row ends, jpeg_crop_rows.c skips the rows above the window without Huffman-decoding them.
 *
 * The library calls error_exit() on an error, which must not return: all its calls run inside run_guarded(), the only
 * function with a setjmp(). Warnings (such as a corrupt Huffman code) are ignored, as in Pillow; a truncated file is an
 * error. */

#include "data/formats/jpeg.h"

#include "base/alloc.h"
#include "data/formats/jpeg_crop_rows.h"

#include "lather/data.h"

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
        500, /* progressive files need about 10; each scan is a pass over all coefficients */
    MAX_PASSES = 20, /* passes over an image of the largest size allowed */
    /* Every block of 64 pixels has at least one bit (T.81, F.1.2.1); 4 times that, as components may have fewer blocks.
     * Arithmetic coding has no such bound. */
    PIXELS_PER_BYTE = 64 * 8 * 4,
    CALLS = 64 /* calls of the progress monitor between two clock readings */
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
    unsigned calls; /* calls of the progress monitor */
    lt_window window;
    int channels, shrink;
    lt_image *out;
    lt_jpeg_crop crop; /* decoded in place of bytes if crop.bytes is set */
    bool ran_out;      /* the library asked for data after the end */
    bool truncated;    /* pixels were decoded from data after the end */
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

static void jump_to_error(decoder *d)
{
    d->status = LT_E_FORMAT;
    longjmp(d->escape, 1);
}

static void fail_with(decoder *d, const char *why)
{
    snprintf(d->why, sizeof d->why, "%s", why);
    jump_to_error(d);
}

static void on_warning(j_common_ptr c, int level)
{
    decoder *d = (decoder *)c;
    if (level < 0 && d->errors.msg_code == JWRN_HIT_MARKER && d->ran_out)
        d->truncated = true;
}

static void do_nothing(j_decompress_ptr c)
{
    (void)c;
}

static void discard_message(j_common_ptr c)
{
    (void)c;
}

/* Supplies an end marker after the end of the file. As the bit reader reads ahead, the file may still have all pixels;
 * on_warning() notices if some were missing. */
static boolean supply_end_marker(j_decompress_ptr c)
{
    static const JOCTET end[] = {0xFF, JPEG_EOI};
    decoder *d = (decoder *)c;
    d->ran_out = true;
    c->src->next_input_byte = end;
    c->src->bytes_in_buffer = sizeof end;
    return TRUE;
}

static void skip_input(j_decompress_ptr c, long count)
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
        snprintf(d->why, sizeof d->why, "%d scans of %u x %u pixels are too many",
                 d->c.input_scan_number, d->c.image_width, d->c.image_height);
        jump_to_error(d);
    }
    if (++d->calls % CALLS == 0 && lt_image_check_time(&d->timer))
        fail_with(d, lt_error_message());
}

static void read_header_of(decoder *d, const uint8_t *bytes, size_t size)
{
    d->source = (struct jpeg_source_mgr){.next_input_byte = bytes,
                                         .bytes_in_buffer = size,
                                         .init_source = do_nothing,
                                         .fill_input_buffer = supply_end_marker,
                                         .skip_input_data = skip_input,
                                         .resync_to_restart = jpeg_resync_to_restart,
                                         .term_source = do_nothing};
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

/* Runs work and turns the library's errors into a status. */
static lt_status run_guarded(decoder *d, void (*work)(decoder *))
{
    d->c.err = jpeg_std_error(&d->errors);
    d->errors.error_exit = on_error;
    d->errors.emit_message = on_warning;
    d->errors.output_message = discard_message;
    if (!setjmp(d->escape))
        work(d);
    jpeg_destroy_decompress(&d->c); /* also valid if creation failed, as the struct is zeroed */
    if (d->status == LT_E_NOMEM)
        return lt_fail(LT_E_NOMEM, "jpeg: %s", d->why);
    return d->status ? lt_fail(d->status, "jpeg: %s", d->why) : LT_OK;
}

lt_status lt_jpeg_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    decoder d = {.bytes = bytes, .size = size};
    LT_TRY(run_guarded(&d, read_header));
    *width = (int32_t)d.c.image_width;
    *height = (int32_t)d.c.image_height;
    return LT_OK;
}

/* Returns true if the file has its end marker. Coded data never contain it (FF is followed by 00 or a restart marker:
 * T.81, B.1.1.5), so the search from the end is short unless the file is truncated. */
static bool has_end(const decoder *d)
{
    const uint8_t *begin = d->source.next_input_byte;
    for (size_t i = d->source.bytes_in_buffer; i >= 2; i--)
        if (begin[i - 2] == 0xFF && begin[i - 1] == JPEG_EOI)
            return true;
    return false;
}

/* Returns true for a chroma subsampling for which cropping is exact: luma has 1 or 2 times the resolution of chroma in
 * each direction, and chroma has sampling factor 1. */
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

static void find_max_shrink(decoder *d)
{
    read_header(d);
    d->shrink = can_crop(&d->c) ? DCTSIZE : 1;
}

bool lt_jpeg_can_shrink(const uint8_t *bytes, size_t size)
{
    decoder d = {.bytes = bytes, .size = size};
    return !run_guarded(&d, find_max_shrink) && d.shrink > 1;
}

/* Returns true if a progressive file lacks scans. Then the library smooths blocks using adjacent blocks (as in Pillow),
 * which are missing at the border of a window. */
static bool lacks_scans(const struct jpeg_decompress_struct *c)
{
    enum { SMOOTHED = 10 }; /* number of coefficients that smoothing reads */
    for (int i = 0; c->coef_bits && i < c->num_components; i++)
        for (int k = 0; k < SMOOTHED; k++)
            if (c->coef_bits[i][k])
                return true;
    return false;
}

static void set_output_format(decoder *d)
{
    bool four = d->c.jpeg_color_space == JCS_CMYK || d->c.jpeg_color_space == JCS_YCCK;
    d->c.out_color_space = four ? JCS_CMYK : d->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    d->c.scale_num = 1;
    d->c.scale_denom = (unsigned)d->shrink;
    d->c.dct_method = JDCT_ISLOW;
    d->c.do_fancy_upsampling = TRUE;
}

/* Converts CMYK (inverted, as Adobe stores it) to RGB or grey in place, rounded as in Pillow. */
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

static uint32_t subtract_or_0(uint32_t a, uint32_t low)
{
    return a > low ? a - low : 0;
}

/* Reads rows first .. last-1 into out, whose rows have `stride` bytes. Decoding has been started. */
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

/* Restarts decoding with a file of only the rows of the window, if restart markers permit. */
static void restart_with_cropped_file(decoder *d)
{
    const struct jpeg_decompress_struct *c = &d->c;
    if (c->progressive_mode || c->comps_in_scan != c->num_components || !can_crop(c))
        return;
    int64_t width = (int64_t)DCTSIZE * c->max_h_samp_factor;
    const lt_jpeg_scan scan = {
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
    high = high < scan.height ? high : scan.height;
    if (low <= 0 || lt_jpeg_crop_rows(&scan, low, high, &d->crop))
        return;
    jpeg_abort_decompress(&d->c);
    read_header_of(d, d->crop.bytes, d->crop.size);
    d->window.y -= d->crop.y / d->shrink;
}

static uint32_t shrunk_side(uint32_t side, int shrink)
{
    return (side + (uint32_t)shrink - 1) / (uint32_t)shrink;
}

/* Checks the limits before memory for pixels is allocated. Progressive files need two bytes per coefficient. */
static void check_limits(decoder *d)
{
    size_t pixels = (size_t)d->c.image_width * d->c.image_height;
    if (lt_image_check_size(&d->limits, d->c.image_width, d->c.image_height)
        || (!d->c.arith_code
            && lt_image_check_expansion(d->size, PIXELS_PER_BYTE, d->c.image_width,
                                        d->c.image_height)))
        fail_with(d, lt_error_message());
    d->c.mem->max_memory_to_use =
        (long)lt_image_workspace_limit(&d->limits, pixels * (size_t)d->c.num_components);
    d->timer = lt_image_start_timer(&d->limits);
}

static void decode_jpeg(decoder *d)
{
    read_header(d);
    check_limits(d);
    LT_ASSERT((uint32_t)(d->window.x + d->window.width)
              <= shrunk_side(d->c.image_width, d->shrink));
    LT_ASSERT((uint32_t)(d->window.y + d->window.height)
              <= shrunk_side(d->c.image_height, d->shrink));
    bool ended = has_end(d);
    if (!ended && (d->c.arith_code || jpeg_has_multiple_scans(&d->c)))
        fail_with(d, "the file is truncated");
    if (ended)
        restart_with_cropped_file(d);
    set_output_format(d);
    jpeg_start_decompress(&d->c);

    uint32_t height = d->c.output_height;
    uint32_t x0 = 0, width = d->c.output_width, y0 = 0, y1 = height;
    if (can_crop(&d->c) && !lacks_scans(&d->c)) {
        uint32_t right = (uint32_t)(d->window.x + d->window.width) + MARGIN;
        x0 = subtract_or_0((uint32_t)d->window.x, MARGIN);
        width = (right < width ? right : width) - x0;
        if (width < d->c.output_width)
            jpeg_crop_scanline(&d->c, &x0, &width); /* moves x0 left to a block boundary */
        y0 = subtract_or_0((uint32_t)d->window.y, MARGIN);
        uint32_t low = (uint32_t)(d->window.y + d->window.height) + MARGIN;
        y1 = low < height && ended ? low
                                   : height; /* without an end marker, missing data must be found */
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

lt_status lt_jpeg_decode_shrunk(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                int channels, int shrink, lt_window window, lt_image *out)
{
    decoder d = {.bytes = bytes,
                 .size = size,
                 .limits = lt_image_limits_or_defaults(limits),
                 .channels = channels,
                 .shrink = shrink,
                 .window = window,
                 .out = out};
    lt_status st = run_guarded(&d, decode_jpeg);
    lt_free(d.crop.bytes);
    LT_TRY(st);
    out->width = window.width;
    out->height = window.height;
    out->channels = channels;
    return LT_OK;
}

lt_status lt_jpeg_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                         int channels, lt_window window, lt_image *out)
{
    return lt_jpeg_decode_shrunk(bytes, size, limits, channels, 1, window, out);
}

const char *lt_jpeg_library(void)
{
#ifdef LIBJPEG_TURBO_VERSION
#define TEXT_OF(value) #value
#define VERSION(value) "libjpeg-turbo " TEXT_OF(value)
    return VERSION(LIBJPEG_TURBO_VERSION);
#else
    return "libjpeg";
#endif
}
