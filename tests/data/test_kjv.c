/* The text of the King James Bible. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "data/tokens/corpus.h"
#include "data/tokens/kjv.h"
#include "images.h"
#include "near.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 1 << 16, TABLE_AT = 92, CODE_BITS = 9, CODES = 1 << CODE_BITS, FIRST = 257 };

/* Writes each byte as a 9-bit code, as compress does before its table is full. Returns the bytes written. */
static size_t encode(uint8_t *to, const char *text, size_t bytes)
{
    assert_true(bytes < CODES - FIRST);
    for (size_t i = 0, bit = 0; i < bytes * CODE_BITS; i++, bit++)
        to[bit / 8] |=
            (uint8_t)(((unsigned char)text[i / CODE_BITS] >> i % CODE_BITS & 1) << bit % 8);
    return (bytes * CODE_BITS + 7) / 8;
}

static void put_number(uint8_t *to, size_t number)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(number >> (24 - 8 * i));
}

/* Makes a file of two windows; the package's windows have 64 KiB. */
static size_t make_file(uint8_t *file, const char *text, size_t first, size_t bytes)
{
    const size_t begin = TABLE_AT + 8, coded = encode(file + begin, text, first);
    memcpy(file, "EC02Compressed Data File", 24);
    put_number(file + 84, WINDOW);
    put_number(file + 88, 2);
    put_number(file + 92, begin);
    put_number(file + 96, begin + coded);
    return begin + coded + encode(file + begin + coded, text + first, bytes - first);
}

static void check_file(void **state)
{
    (void)state;
    enum { BYTES = 300, FIRST_WINDOW = 250 };
    char text[BYTES], *got = NULL;
    uint8_t file[1000] = {0};
    size_t bytes;
    for (int i = 0; i < BYTES; i++)
        text[i] = "Ge1:1 In the beginning\n"[i % 23];
    const size_t size = make_file(file, text, FIRST_WINDOW, BYTES);
    assert_ok(lt_kjv_decode(file, size, "f", &got, &bytes));
    assert_int_equal(bytes, BYTES);
    assert_memory_equal(got, text, BYTES);
    lt_free(got);
    assert_fails(lt_kjv_decode(file, 80, "f", &got, &bytes), LT_E_FORMAT,
                 "f: not the data of Debian's bible-kjv-text");
    file[TABLE_AT + 8 + 1] = 0xff; /* a code that is not in the table */
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT,
                 "f: cannot expand window 0 of 2: it is corrupt, or gzip");
    put_number(file + 96, size + 1);
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT,
                 "f: cannot expand window 0 of 2");
    put_number(file + 88, 100000);
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT,
                 "f: 100000 windows of 65536 bytes");
    put_number(file + 88, 4000);
    assert_fails(lt_kjv_decode(file, size, "f", &got, &bytes), LT_E_FORMAT, "f: 4000 windows");
}

static lt_status append(void *context, const lt_text_part *text)
{
    strncat(context, text->text, text->bytes);
    return LT_OK;
}

static void check_corpus(void **state)
{
    (void)state;
    enum { MOST = 32 };
    const struct {
        lt_documents kind;
        const char *want[2];
    } rows[] = {{LT_DOCUMENTS_FILES, {"a\nb\n\nc\n", NULL}},
                {LT_DOCUMENTS_BLANK_LINES, {"a\nb\n", "c\n"}}};
    const char text[] = "a\nb\n\nc\n";
    uint8_t file[200] = {0};
    char *folder = make_folder(), *path = below(folder, "bible.data");
    write_file(folder, "bible.data", file, make_file(file, text, 4, strlen(text)));
    setenv("LATHER_KJV", path, 1);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        lt_corpus c = {0};
        size_t k = 0;
        assert_ok(lt_corpus_open(&c, "kjv", rows[i].kind));
        for (; k < COUNT_OF(rows[i].want) && rows[i].want[k]; k++) {
            char got[MOST] = "";
            assert_in_range(k, 0, c.documents - 1);
            assert_ok(lt_corpus_read_document(&c, &c.document[k], append, got));
            assert_string_equal(got, rows[i].want[k]);
        }
        assert_int_equal(c.documents, k);
        lt_corpus_clear(&c);
    }
    unsetenv("LATHER_KJV");
    free(path);
    remove_folder(folder);
}

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
    const struct CMUnitTest tests[] = {
        {"a file of two windows is decoded, an invalid one rejected", check_file, 0, 0, 0},
        {"the text of a file is divided into documents", check_corpus, 0, 0, 0},
        {"the package's text", check_package, 0, 0, 0},
    };
    return cmocka_run_group_tests_name("kjv", tests, NULL, NULL);
}
