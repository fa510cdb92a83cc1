/* The text of the King James Bible, and the compression that its file has. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "data/tokens/kjv.h"
#include "data/tokens/lzw.h"
#include "images.h"
#include "near.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 1 << 16, TABLE_AT = 92, CLEAR = 256, FIRST = 257 };

/* --- An encoder, as plain as can be --- */

typedef struct encoder {
    uint8_t *to;
    size_t bit, group;
    int width;
    uint32_t next;
    uint16_t *child; /* [codes][256]; 0: none */
} encoder;

static void pad(encoder *e, int width)
{
    const size_t group = (size_t)e->width * 8;
    e->bit = e->group + (e->bit - e->group + group - 1) / group * group;
    e->group = e->bit;
    e->width = width;
}

static void put(encoder *e, uint32_t code)
{
    for (int i = 0; i < e->width; i++, e->bit++)
        e->to[e->bit / 8] |= (uint8_t)((code >> i & 1) << e->bit % 8);
    if (e->next == 1U << e->width && e->width < 16)
        pad(e, e->width + 1);
}

/* Clears the table once, at this many bytes. Returns the bytes written. */
static size_t encode(encoder *e, const uint8_t *text, size_t bytes, size_t clear_at)
{
    uint32_t code = text[0];
    for (size_t i = 1; i < bytes; i++) {
        uint16_t *child = &e->child[(size_t)code * 256 + text[i]];
        if (*child) {
            code = *child;
            continue;
        }
        put(e, code);
        if (e->next < LT_LZW_CODES)
            *child = (uint16_t)e->next++;
        code = text[i];
        if (clear_at && i >= clear_at) {
            put(e, CLEAR);
            pad(e, 9);
            memset(e->child, 0, (size_t)LT_LZW_CODES * 256 * sizeof *e->child);
            e->next = FIRST;
            clear_at = 0;
        }
    }
    put(e, code);
    return (e->bit + 7) / 8;
}

static size_t compress(const uint8_t *text, size_t bytes, size_t clear_at, uint8_t **out)
{
    encoder e = {.width = 9, .next = FIRST};
    e.to = calloc(1, 4 * bytes + 64);
    e.child = calloc((size_t)LT_LZW_CODES * 256, sizeof *e.child);
    assert_true(e.to && e.child);
    const size_t size = encode(&e, text, bytes, clear_at);
    free(e.child);
    *out = e.to;
    return size;
}

typedef struct row {
    const char *name;
    size_t bytes, clear_at;
    uint32_t symbols; /* that the text is made of */
} row;

static row rows[] = {
    {"one byte", 1, 0, 1},
    {"one byte again and again", 5000, 0, 1}, /* codes that are not in the table yet */
    {"two bytes", WINDOW, 0, 2},
    {"text", WINDOW, 0, 26},
    {"text, and the table cleared", WINDOW, 30000, 26},
    {"noise fills the table", 200000, 0, 256},
};

static void check_lzw(void **state)
{
    const row *r = *state;
    uint32_t seed = 5;
    uint8_t *text = malloc(r->bytes), *again = malloc(r->bytes), *coded;
    lt_lzw *w = malloc(sizeof *w);
    assert_true(text && again && w);
    for (size_t i = 0; i < r->bytes; i++)
        text[i] = (uint8_t)(next_random(&seed) % r->symbols);
    const size_t size = compress(text, r->bytes, r->clear_at, &coded);
    assert_int_equal(lt_lzw_decode(w, coded, size, again, r->bytes), r->bytes);
    assert_memory_equal(again, text, r->bytes);
    assert_int_equal(lt_lzw_decode(w, coded, size, again, r->bytes - 1), -1); /* it has more */
    free(w);
    free(coded);
    free(again);
    free(text);
}

static void check_damage(void **state)
{
    (void)state;
    static const uint8_t ahead[] = {0x61, 0x04, 0x06}; /* 'a', then a code of the far future */
    static const uint8_t first[] = {0x01, 0x01};       /* 257 before there is any */
    uint8_t out[64];
    lt_lzw *w = calloc(1, sizeof *w);
    assert_non_null(w);
    assert_int_equal(lt_lzw_decode(w, ahead, sizeof ahead, out, sizeof out), -1);
    assert_int_equal(lt_lzw_decode(w, first, sizeof first, out, sizeof out), -1);
    assert_int_equal(lt_lzw_decode(w, first, 0, out, sizeof out), 0);
    assert_int_equal(lt_lzw_decode(w, ahead, 2, out, sizeof out), 1);
    free(w);
}

/* --- Its file --- */

static void put_number(uint8_t *to, size_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(number >> (24 - 8 * i));
}

/* A file of two windows, the second one short. */
static uint8_t *make_file(const char *text, size_t bytes, size_t *size)
{
    uint8_t *part[2], *file;
    const size_t begin = TABLE_AT + 8, first = compress((const uint8_t *)text, WINDOW, 0, &part[0]);
    const size_t second = compress((const uint8_t *)text + WINDOW, bytes - WINDOW, 0, &part[1]);
    *size = begin + first + second;
    file = calloc(1, *size);
    assert_non_null(file);
    memcpy(file, "EC02Compressed Data File", 24);
    put_number(file + 84, WINDOW);
    put_number(file + 88, 2);
    put_number(file + 92, begin);
    put_number(file + 96, begin + first);
    memcpy(file + begin, part[0], first);
    memcpy(file + begin + first, part[1], second);
    free(part[0]);
    free(part[1]);
    return file;
}

static void check_file(void **state)
{
    (void)state;
    enum { BYTES = WINDOW + 1000 };
    char *text = malloc(BYTES), *got = NULL;
    size_t size, bytes;
    assert_non_null(text);
    for (int i = 0; i < BYTES; i++)
        text[i] = "Ge1:1 In the beginning\n"[i % 23];
    uint8_t *file = make_file(text, BYTES, &size);
    assert_ok(lt_kjv_decode(file, size, "f", &got, &bytes));
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(got, text, BYTES);
    lt_free(got);
    assert_fails(lt_kjv_decode(file, 80, "f", &got, &bytes), LT_E_FORMAT,
                 "f: not the data of Debian's bible-kjv-text");
    put_number(file + 96, size + 1);
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT,
                 "f: window 0 of 2 is damaged");
    put_number(file + 88, 100000);
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT,
                 "f: 100000 windows of 65536 bytes");
    put_number(file + 88, 4000);
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT, "f: 4000 windows");
    free(file);
    free(text);
}

/* gzip -d makes the same text of the package's windows, with compress's header before each. */
static void check_package(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    unsetenv("LATHER_KJV");
    if (access("/usr/lib/bible.data", F_OK)) {
        assert_fails(lt_kjv_text(&text, &bytes), LT_E_IO, "package bible-kjv-text");
        skip();
    }
    assert_ok(lt_kjv_text(&text, &bytes));
    assert_int_equal(bytes, 4404475); /* version 4.38 */
    assert_int_equal(lt_crc32c(0, text, bytes), 0x398d17ec);
    lt_free(text);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"codes that cannot be are refused", check_damage, 0, 0, 0},
        {"the file is windows of text", check_file, 0, 0, 0},
        {"the package's text", check_package, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(rows)];
    size_t n = COUNT_OF(more);
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[n++] = (struct CMUnitTest){rows[i].name, check_lzw, NULL, NULL, &rows[i]};
    return _cmocka_run_group_tests("kjv", tests, n, NULL, NULL);
}
