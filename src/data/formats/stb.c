/* Decodes PNG, BMP and the first frame of GIF with stb_image. Reduces samples to 8 bits and drops alpha, as Pillow's
 * convert("RGB") does. */

#include "base/alloc.h"
#include "base/big_endian.h"
#include "data/formats/decoder.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#ifdef STBI_NO_ZLIB
#include <zlib.h>
#endif

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#define STBI_MAX_DIMENSIONS      (1 << 20)
#define STBI_MALLOC(bytes)       allocate_within_budget(NULL, bytes)
#define STBI_REALLOC(old, bytes) allocate_within_budget(old, bytes)
#define STBI_FREE(memory)        free_to_budget(memory)

/* Bytes that stb_image may still allocate on this thread: a file may inflate to more than its header claims. */
static _Thread_local size_t budget;
static _Thread_local bool over_budget, out_of_memory, timed_out;
static _Thread_local lt_image_timer timer;

/* Each allocation begins with its size. */
enum { HEAD = 16 };

static size_t size_of(const char *memory)
{
    return memory ? *(const size_t *)(const void *)(memory - HEAD) : 0;
}

static void free_to_budget(void *memory)
{
    budget += size_of(memory);
    lt_free(memory ? (char *)memory - HEAD : NULL);
}

static void *allocate_within_budget(void *old, size_t bytes)
{
    const size_t had = size_of(old);
    if (bytes > had && bytes - had > budget) {
        over_budget = true;
        return NULL;
    }
    char *memory =
        old ? lt_realloc((char *)old - HEAD, HEAD + bytes, 1) : lt_alloc(HEAD + bytes, 1);
    out_of_memory = out_of_memory || !memory;
    if (!memory)
        return NULL;
    *(size_t *)(void *)memory = bytes;
    budget = budget + had - bytes;
    return memory + HEAD;
}

#include <stb_image.h>

static void start_budget(size_t bytes, const lt_image_limits *limits)
{
    budget = bytes;
    over_budget = out_of_memory = timed_out = false;
    timer = lt_image_start_timer(limits);
}

#ifdef STBI_NO_ZLIB
/* Checks the header (RFC 1950, 2.2): deflate, no preset dictionary, correct check bits. */
static bool is_zlib(const uint8_t *b, int bytes)
{
    enum { METHOD = 15, DEFLATE = 8, DICTIONARY = 32, MODULUS = 31 };
    return bytes > 1 && (*b & METHOD) == DEFLATE && !(b[1] & DICTIONARY)
           && (*b * 256 + b[1]) % MODULUS == 0;
}

/* Replaces stb_image's inflate by a faster one with a time limit. Like stb_image's, it ignores the checksum at the
 * end. */
static char *stbi_zlib_decode_malloc_guesssize_headerflag(const char *from, int bytes, int guess,
                                                          int *length, int has_header)
{
    enum {
        HEADER = 2,
        RAW = -15,
        STEP = 1 << 16 /* bytes of the file between two clock readings */
    };
    const int begin = has_header ? HEADER : 0;
    /* one byte more, so that a correct guess needs no second allocation */
    size_t size = guess > 0 ? (size_t)guess + 1 : 1;
    char *out = allocate_within_budget(NULL, size);
    z_stream z = {.next_in = (Bytef *)(uintptr_t)from + begin};
    bool good = out && (!has_header || is_zlib((const uint8_t *)from, bytes));
    int code = good ? inflateInit2(&z, RAW) : Z_DATA_ERROR;
    for (int at = begin; code == Z_OK && !timed_out;
         timed_out = lt_image_check_time(&timer) != LT_OK) {
        if (z.total_out == size) {
            char *grown = size > INT_MAX / 2 ? NULL : allocate_within_budget(out, 2 * size);
            if (!grown)
                break;
            out = grown;
            size *= 2;
        }
        z.next_out = (Bytef *)out + z.total_out;
        z.avail_out = (uInt)(size - z.total_out);
        z.avail_in = (uInt)(bytes - at < STEP ? bytes - at : STEP);
        at += (int)z.avail_in;
        code = inflate(&z, Z_NO_FLUSH);
        at -= (int)z.avail_in;
    }
    out_of_memory = out_of_memory || code == Z_MEM_ERROR;
    inflateEnd(&z);
    *length = (int)z.total_out;
    if (code == Z_STREAM_END)
        return out;
    free_to_budget(out);
    (void)stbi__err("corrupt or truncated deflate data", "");
    return NULL;
}
#endif

/* Reads the size of a PNG with 2^30 bytes of pixels or more, which stb_image does not report (ISO 15948, 11.2.2).
 * Returns false for other files. */
static bool read_huge_png_size(const uint8_t *b, size_t size, int32_t *width, int32_t *height)
{
    enum { WIDTH = 16, HEIGHT = 20, END = 24, COLOURS = 4 };
    const uint32_t most = 1U << 30;
    if (size < END || *b != 0x89)
        return false;
    const uint64_t w = lt_read_big_endian(b + WIDTH, 4), h = lt_read_big_endian(b + HEIGHT, 4);
    if (w > INT32_MAX || h > INT32_MAX || w * h < most / COLOURS)
        return false;
    *width = (int32_t)w;
    *height = (int32_t)h;
    return true;
}

static lt_status fail_budget(void)
{
    return lt_fail(LT_E_FORMAT, "image: decoding needs more memory than allowed for one image");
}

static lt_status stb_error(void)
{
    const char *why = stbi_failure_reason();
    if (timed_out)
        return lt_image_check_time(&timer);
    if (over_budget)
        return fail_budget();
    if (out_of_memory)
        return lt_fail(LT_E_NOMEM, "image: no memory for the pixels");
    return lt_fail(LT_E_FORMAT, "image: %s", why && *why ? why : "corrupt image");
}

/* Returns true if BITMAPINFOHEADER.biCompression is BI_RLE8 or BI_RLE4, which stb_image does not support. */
static bool is_rle_bmp(const uint8_t *b, size_t size)
{
    enum { HEADER = 14, OLD_HEADER = 12, COMPRESSION = 30, ENOUGH = 34 };
    return size >= ENOUGH && *b == 'B' && b[HEADER] > OLD_HEADER
           && (b[COMPRESSION] == 1 || b[COMPRESSION] == 2);
}

/* Returns the size of a PNG up to the end of its last complete chunk if it has pixels but no IEND chunk; otherwise
 * 0. */
static size_t png_size_without_end(const uint8_t *b, size_t size)
{
    enum { MAGIC = 8, CHUNK = 12, TYPE = 4 }; /* a chunk without its data */
    size_t at = MAGIC;
    bool has_pixels = false;
    for (uint64_t bytes; *b == 0x89 && at + CHUNK <= size; at += (size_t)bytes + CHUNK) {
        bytes = lt_read_big_endian(b + at, TYPE);
        if (!memcmp(b + at + TYPE, "IEND", 4) || bytes > size - at - CHUNK)
            return 0;
        has_pixels = has_pixels || !memcmp(b + at + TYPE, "IDAT", 4);
    }
    return has_pixels ? at : 0;
}

lt_status lt_stb_size(const uint8_t *bytes, size_t size, int32_t *width, int32_t *height)
{
    int w = 0, h = 0, channels = 0;
    if (size > INT_MAX)
        return lt_fail(LT_E_FORMAT, "image: a file of %zu bytes, want at most %d", size, INT_MAX);
    if (read_huge_png_size(bytes, size, width, height))
        return LT_OK;
    if (is_rle_bmp(bytes, size))
        return lt_fail(LT_E_FORMAT, "image: a BMP with RLE compression, which is not supported");
    start_budget(lt_image_workspace_limit(NULL, 0), NULL);
    if (!stbi_info_from_memory(bytes, (int)size, &w, &h, &channels))
        return stb_error();
    *width = w;
    *height = h < -INT_MAX ? 0 : abs(h); /* negative in a BMP whose first row is the top row */
    return LT_OK;
}

/* Sets the memory budget for an image. stb_image needs at least twice the size of the pixels in the file's sample
 * format. */
static lt_status set_budget(const uint8_t *bytes, size_t size, const lt_image_limits *limits)
{
    enum { COLOURS = 3 };
    int32_t w = 0, h = 0;
    int channels = 0;
    if (read_huge_png_size(bytes, size, &w, &h))
        return lt_fail(LT_E_FORMAT, "image: %d x %d pixels are more than stb_image can decode",
                       (int)w, (int)h);
    if (!stbi_info_from_memory(bytes, (int)size, &w, &h, &channels))
        return stb_error();
    size_t deep = stbi_is_16_bit_from_memory(bytes, (int)size) ? 2 : 1;
    size_t samples = (size_t)(channels > COLOURS ? channels : COLOURS); /* grey becomes RGB */
    size_t needed = (size_t)w * (size_t)abs(h) * samples * deep;
    start_budget(lt_image_workspace_limit(limits, needed), limits);
    return 2 * needed > budget ? fail_budget() : LT_OK;
}

/* Input of stb_image; reports the end of the file after the time limit. */
typedef struct source {
    const uint8_t *at;
    size_t left;
    unsigned calls;
} source;

static void skip_callback(void *context, int bytes)
{
    source *s = context;
    size_t count = (size_t)bytes < s->left ? (size_t)bytes : s->left;
    s->at += count;
    s->left -= count;
}

static int read_callback(void *context, char *to, int bytes)
{
    enum { CALLS = 64 }; /* calls between two clock readings; each reads 128 bytes */
    source *s = context;
    const uint8_t *from = s->at;
    if (s->calls++ % CALLS == 0 && lt_image_check_time(&timer))
        timed_out = true;
    if (timed_out)
        return 0;
    skip_callback(s, bytes);
    memcpy(to, from, (size_t)(s->at - from));
    return (int)(s->at - from);
}

static int eof_callback(void *context)
{
    const source *s = context;
    return timed_out || !s->left;
}

/* Reads GIF through callbacks, which limit its time: each code takes up to 4096 steps, even after the last pixel. The
 * time of other formats is proportional to their pixels and bytes. */
static lt_status load_with_stb(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                               int channels, lt_window *whole, uint8_t **out)
{
    const stbi_io_callbacks from = {read_callback, skip_callback, eof_callback};
    source s = {.at = bytes, .left = size};
    int found = 0;
    LT_TRY(set_budget(bytes, size, limits));
    if (*bytes == 'G')
        *out = stbi_load_from_callbacks(&from, &s, &whole->width, &whole->height, &found, channels);
    else
        *out = stbi_load_from_memory(bytes, (int)size, &whole->width, &whole->height, &found,
                                     channels);
    if (*out && !timed_out)
        return LT_OK;
    stbi_image_free(*out);
    return stb_error();
}

/* Appends a missing IEND chunk to a PNG before decoding it; libpng accepts such a file with a warning. */
static lt_status add_iend_and_load(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                                   int channels, lt_window *whole, uint8_t **out)
{
    static const uint8_t end[] = {0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};
    const size_t kept = png_size_without_end(bytes, size);
    if (!kept)
        return load_with_stb(bytes, size, limits, channels, whole, out);
    uint8_t *copy;
    LT_TRY(LT_ALLOC(&copy, kept + sizeof end));
    memcpy(copy, bytes, kept);
    memcpy(copy + kept, end, sizeof end);
    lt_status st = load_with_stb(copy, kept + sizeof end, limits, channels, whole, out);
    lt_free(copy);
    return st;
}

/* Copies the window, as stb_image's memory has no LT_IMAGE_PADDING bytes at its end. */
static lt_status copy_window(const uint8_t *pixels, int32_t width, int channels, lt_window window,
                             lt_image *out)
{
    size_t row = (size_t)window.width * (size_t)channels, all = (size_t)width * (size_t)channels;
    LT_TRY(lt_image_reserve(out, row * (size_t)window.height));
    const uint8_t *from = pixels + (size_t)window.y * all + (size_t)window.x * (size_t)channels;
    for (size_t y = 0; y < (size_t)window.height; y++)
        memcpy(out->memory + y * row, from + y * all, row);
    lt_image_set_window(out, window.width, channels,
                        (lt_window){0, 0, window.width, window.height});
    return LT_OK;
}

lt_status lt_stb_decode(const uint8_t *bytes, size_t size, const lt_image_limits *limits,
                        int channels, lt_window window, lt_image *out)
{
    lt_window header = {0}, found = {0};
    uint8_t *pixels = NULL;
    LT_TRY(lt_stb_size(bytes, size, &header.width, &header.height));
    LT_TRY(lt_image_check_size(limits, header.width, header.height));
    if (!lt_stb_is_complete(bytes, size))
        return lt_fail(LT_E_FORMAT, "image: the file is truncated");
    LT_ASSERT(window.x + window.width <= header.width && window.y + window.height <= header.height);
    lt_status st = add_iend_and_load(bytes, size, limits, channels, &found, &pixels);
    if (st)
        return st;
    if (found.width != header.width || found.height != header.height)
        st = lt_fail(LT_E_FORMAT, "image: the header has %d x %d pixels, the image %d x %d",
                     (int)header.width, (int)header.height, (int)found.width, (int)found.height);
    else
        st = copy_window(pixels, found.width, channels, window, out);
    stbi_image_free(pixels);
    return st;
}
