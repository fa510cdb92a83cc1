/* Protocol buffers: written messages are read back; malformed messages are detected, and no byte past their end is
 * read. */

#include "lather/protobuf.h"

#include "temp.h"

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {0, 127, 128, 300, UINT32_MAX, UINT64_MAX};
    enum { NUMBERS = sizeof numbers / sizeof *numbers };
    char folder[TEMP_PATH], path[TEMP_PATH];
    temp_make(folder);
    temp_path(path, folder, "file");
    lt_protobuf_writer w = {0};
    lt_protobuf_begin(&w, 7);
    for (int i = 0; i < NUMBERS; i++)
        lt_protobuf_integer(&w, 8, numbers[i]);
    lt_protobuf_begin(&w, 2000);
    lt_protobuf_end(&w);
    lt_protobuf_end(&w);
    lt_protobuf_float(&w, 3, 1.5F);
    lt_protobuf_double(&w, 5, 1.5);
    lt_protobuf_text(&w, 4, "text");
    assert_int_equal(lt_protobuf_save(&w, path), LT_OK);
    lt_protobuf_clear(&w);

    size_t size;
    bool broken = false;
    char *text = temp_read(path, &size);
    const uint8_t *data = (const uint8_t *)text;
    lt_protobuf m = {data, data + size}, inner;
    lt_protobuf_field f;
    assert_true(lt_protobuf_next(&m, &f, &broken) && f.number == 7);
    inner = f.data;
    for (int i = 0; i < NUMBERS; i++) {
        assert_true(lt_protobuf_next(&inner, &f, &broken) && f.number == 8 && !f.data.at);
        assert_true(f.value == numbers[i]);
    }
    assert_true(lt_protobuf_next(&inner, &f, &broken) && f.number == 2000
                && f.data.at == f.data.end);
    assert_false(lt_protobuf_next(&inner, &f, &broken));
    assert_true(lt_protobuf_next(&m, &f, &broken) && f.number == 3 && f.value == 0x3FC00000);
    assert_true(lt_protobuf_next(&m, &f, &broken) && f.number == 5
                && f.value == 0x3FF8000000000000);
    assert_true(lt_protobuf_next(&m, &f, &broken) && f.number == 4);
    assert_true(f.data.end - f.data.at == 4 && !memcmp(f.data.at, "text", 4));
    assert_false(lt_protobuf_next(&m, &f, &broken));
    assert_false(broken);
    free(text);
    temp_remove(folder);
}

static const struct row {
    const char *what;
    uint8_t bytes[12];
    size_t size;
    bool good;
} rows[] = {
    {"a number", {0x08, 0x96, 0x01}, 3, true},
    {"a number of ten bytes", {0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, 11, true},
    {"one of eleven", {0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, 12, false},
    {"a number that is cut off", {0x08, 0x96}, 2, false},
    {"a tag without a value", {0x08}, 1, false},
    {"a text", {0x0A, 2, 'a', 'b'}, 4, true},
    {"a text that is cut off", {0x0A, 3, 'a', 'b'}, 4, false},
    {"a length that wraps", {0x0A, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1}, 11, false},
    {"fixed 64 bits", {0x09, 1, 2, 3, 4, 5, 6, 7, 8}, 9, true},
    {"fixed 64 bits that are cut off", {0x09, 1, 2, 3, 4, 5, 6, 7}, 8, false},
    {"fixed 32 bits", {0x0D, 1, 2, 3, 4}, 5, true},
    {"fixed 32 bits that are cut off", {0x0D, 1, 2, 3}, 4, false},
    {"a group, which is deprecated", {0x0B, 0x0C}, 2, false},
    {"an invalid type", {0x0F, 0}, 2, false},
};

static void broken_messages_are_noticed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint8_t *data = malloc(rows[i].size); /* a sanitizer detects a read past its end */
        assert_non_null(data);
        memcpy(data, rows[i].bytes, rows[i].size);
        lt_protobuf m = {data, data + rows[i].size};
        lt_protobuf_field f;
        bool broken = false, read = lt_protobuf_next(&m, &f, &broken);
        if (read != rows[i].good || broken == rows[i].good)
            fail_msg("%s: %s", rows[i].what, read ? "is read" : "is not read");
        assert_false(lt_protobuf_next(&m, &f, &broken));
        free(data);
    }
}

static void packed_numbers_end(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {1, 0x96, 0x01, 0x80};
    lt_protobuf packed = {bytes, bytes + sizeof bytes};
    uint64_t value;
    assert_true(lt_protobuf_varint(&packed, &value) && value == 1);
    assert_true(lt_protobuf_varint(&packed, &value) && value == 150);
    assert_false(lt_protobuf_varint(&packed, &value));
}

static void a_folder_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    lt_protobuf_writer w = {0};
    lt_protobuf_integer(&w, 1, 1);
    assert_fails(lt_protobuf_save(&w, "no/such/folder"), LT_E_IO, "no/such/folder: No such file");
    lt_protobuf_clear(&w);
}

/* Readers have lengths of 31 bits. The bytes themselves are not needed. */
static void a_message_is_smaller_than_2_gib(void **state)
{
    (void)state;
    lt_protobuf_writer w = {.size = (size_t)INT32_MAX + 1};
    assert_fails(lt_protobuf_save(&w, "x"), LT_E_UNSUPPORTED,
                 "x: 2147483648 bytes, at most 2147483647 fit");
    w.failed = true;
    assert_fails(lt_protobuf_save(&w, "x"), LT_E_NOMEM, "x: no memory for 2147483648 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(broken_messages_are_noticed),
        cmocka_unit_test(packed_numbers_end),
        cmocka_unit_test(a_message_is_smaller_than_2_gib),
        cmocka_unit_test(a_folder_that_is_not_there_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
