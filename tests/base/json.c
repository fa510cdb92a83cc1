/* JSON: accepted and rejected texts, error positions, and the writer's output. */

#include "base/encoding/json.h"

#include "temp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct refused {
    const char *name, *text, *message;
    size_t bytes; /* 0: strlen */
} refused;

static const refused bad[] = {
    {"empty text", "", "line 1, column 1: unexpected end of the text", 0},
    {"two values", "1 2", "line 1, column 3: unexpected text after the value", 0},
    {"a duplicate key", "{\"a\":1,\n \"b\":2,\n \"a\":3}", "line 3, column 6: duplicate key 'a'",
     0},
    {"a duplicate key by escape", "{\"a\":1,\"\\u0061\":2}", "duplicate key 'a'", 0},
    {"a comma at the end", "[1,]", "column 4: not a value", 0},
    {"no comma", "[1 2]", "expected ',' or ']'", 0},
    {"no colon", "{\"a\" 1}", "expected ':'", 0},
    {"a key that is not a string", "{1:2}", "expected a string", 0},
    {"an open string", "\"abc", "column 1: unterminated string", 0},
    {"an open array", "[[1]", "unexpected end of the text", 0},
    {"a leading zero", "01", "not a value", 0},
    {"a plus", "+1", "not a value", 0},
    {"a point without digits", "1.", "not a value", 0},
    {"an exponent without digits", "1e", "not a value", 0},
    {"NaN", "NaN", "not a value", 0},
    {"infinity by exponent", "1e999", "outside the range of double", 0},
    {"a cut word", "tru", "not a value", 0},
    {"a newline in a string", "\"a\nb\"", "a control character", 0},
    {"NUL by escape", "\"a\\u0000b\"", "NUL inside a string", 0},
    {"NUL in the text", "\"a\0b\"", "a control character", 5},
    {"a lone high surrogate", "\"\\ud800x\"", "a high surrogate without a low one", 0},
    {"a lone low surrogate", "\"\\udc00\"", "a low surrogate without a high one", 0},
    {"an unknown escape", "\"\\x\"", "an unknown escape", 0},
    {"half a hexadecimal escape", "\"\\u12g4\"", "four hexadecimal digits", 0},
    {"a bare continuation byte", "\"\x80\"", "not UTF-8", 0},
    {"an overlong form", "\"\xc0\xaf\"", "not UTF-8", 0},
    {"a surrogate in UTF-8", "\"\xed\xa0\x80\"", "not UTF-8", 0},
    {"beyond Unicode", "\"\xf4\x90\x80\x80\"", "not UTF-8", 0},
    {"too deep", "[[[[1]]]]", "nested too deeply", 0},
};

static void test_refused(void **state)
{
    const refused *row = *state;
    lt_json *json = NULL;
    size_t bytes = row->bytes ? row->bytes : strlen(row->text);
    char *copy = malloc(bytes + 1); /* exact size, so that sanitizers detect a read past its end */
    assert_non_null(copy);
    memcpy(copy, row->text, bytes);
    lt_status st = lt_json_parse(&json, copy, bytes, "text", 3);
    free(copy);
    assert_status(st, LT_E_FORMAT);
    assert_null(json);
    if (!strstr(lt_error_message(), row->message))
        fail_msg("'%s' does not say '%s'", lt_error_message(), row->message);
}

static void test_values(void **state)
{
    (void)state;
    static const char text[] =
        " {\"i\":-12,\"d\":1.5e3,\"s\":\"a\\n\\u00e4\\ud83d\\ude00\",\"t\":true,\"n\":null,"
        "\"a\":[1,[],{}],\"big\":99999999999999999999} ";
    lt_json *json = NULL;
    int64_t i;
    double d;
    const char *s;
    assert_ok(lt_json_parse(&json, text, strlen(text), "text", 3));
    const lt_json_value *root = lt_json_root(json);
    assert_ok(lt_json_integer(root, "i", &i));
    assert_int_equal(i, -12);
    assert_ok(lt_json_number(root, "d", &d));
    assert_near(d, 1500, 0);
    assert_ok(lt_json_string(root, "s", &s));
    assert_string_equal(s, "a\n\xc3\xa4\xf0\x9f\x98\x80");
    assert_true(lt_json_member(root, "t")->boolean);
    assert_int_equal(lt_json_member(root, "n")->type, LT_JSON_NULL);
    assert_int_equal(lt_json_member(root, "a")->count, 3);
    assert_status(lt_json_integer(root, "big", &i), LT_E_FORMAT); /* does not fit */
    assert_status(lt_json_integer(root, "d", &i), LT_E_FORMAT);
    assert_status(lt_json_integer(root, "none", &i), LT_E_FORMAT);
    assert_null(lt_json_member(lt_json_member(root, "a"), "x"));
    lt_json_free(&json);
}

static void test_round_trip(void **state)
{
    (void)state;
    static const double numbers[] = {0,      -0.0, 0.1,           1.0 / 3, 1e300,
                                     5e-324, 1e21, 123456789.125, 2.5e-7,  9007199254740993.0};
    lt_json_writer w = {0};
    lt_json_begin_object(&w, NULL);
    lt_json_put_string(&w, "text", "a\"b\\c\n\x01\xc3\xa4");
    lt_json_put_string(&w, "name of a file",
                       "caf\xe9 \xf0\x9f\x98\x80 \xe2\x82"); /* Latin 1; cut off */
    lt_json_put_integer(&w, "least", INT64_MIN);
    lt_json_put_number(&w, "nan", (double)NAN);
    lt_json_put_bool(&w, "yes", true);
    lt_json_begin_array(&w, "numbers");
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        lt_json_put_number(&w, NULL, numbers[i]);
    lt_json_end(&w);
    lt_json_end(&w);
    const char *text = NULL, *string;
    size_t bytes = 0;
    int64_t least;
    assert_ok(lt_json_text(&w, &text, &bytes));
    lt_json *json = NULL;
    assert_ok(lt_json_parse(&json, text, bytes, "written", 3));
    const lt_json_value *root = lt_json_root(json);
    assert_ok(lt_json_string(root, "text", &string));
    assert_string_equal(string, "a\"b\\c\n\x01\xc3\xa4");
    assert_ok(lt_json_string(root, "name of a file", &string));
    assert_string_equal(string, "caf\xef\xbf\xbd \xf0\x9f\x98\x80 \xef\xbf\xbd\xef\xbf\xbd");
    assert_ok(lt_json_integer(root, "least", &least));
    assert_true(least == INT64_MIN);
    assert_int_equal(lt_json_member(root, "nan")->type, LT_JSON_NULL);
    const lt_json_value *v = lt_json_member(root, "numbers")->child;
    for (size_t i = 0; i < COUNT_OF(numbers); i++, v = v->next)
        assert_memory_equal(&v->number, &numbers[i], sizeof v->number); /* bit for bit */
    lt_json_free(&json);
    lt_json_writer_clear(&w);
}

/* Space may be between all words. */
static void test_space(void **state)
{
    (void)state;
    static const char text[] =
        "\n{ \"a\" : [ ] ,\t\"b\" : { } , \"c\"\r\n: [ 1 , { \"d\" : 2 } ] }\n ";
    lt_json *json = NULL;
    int64_t d;
    assert_ok(lt_json_parse(&json, text, strlen(text), "text", 4));
    const lt_json_value *root = lt_json_root(json), *c = lt_json_member(root, "c");
    assert_int_equal(root->count, 3);
    assert_int_equal(lt_json_member(root, "a")->count, 0);
    assert_int_equal(lt_json_member(root, "b")->count, 0);
    assert_int_equal(c->count, 2);
    assert_ok(lt_json_integer(c->child->next, "d", &d));
    assert_int_equal(d, 2);
    lt_json_free(&json);
}

/* A rewound writer begins again, whatever was open and failed. */
static void test_rewind(void **state)
{
    (void)state;
    const char *text = NULL;
    size_t bytes = 0;
    lt_json_writer w = {0};
    for (int i = 0; i < 100; i++) { /* more than the deepest nesting */
        lt_json_rewind(&w);
        lt_json_begin_object(&w, NULL);
        lt_json_put_integer(&w, "a", i);
        lt_json_begin_array(&w, "b");
    }
    lt_json_rewind(&w);
    lt_json_begin_object(&w, NULL);
    lt_json_end(&w);
    assert_ok(lt_json_text(&w, &text, &bytes));
    assert_string_equal(text, "{}");
    lt_json_writer_clear(&w);
}

/* A million keys: must not take a million squared steps. */
static void test_many_keys(void **state)
{
    (void)state;
    enum { KEYS = 200000 };
    lt_json_writer w = {0};
    lt_json_begin_object(&w, NULL);
    for (int i = 0; i < KEYS; i++) {
        char key[16];
        snprintf(key, sizeof key, "%x", i);
        lt_json_put_integer(&w, key, i);
    }
    lt_json_end(&w);
    const char *text = NULL;
    size_t bytes = 0;
    lt_json *json = NULL;
    assert_ok(lt_json_text(&w, &text, &bytes));
    assert_ok(lt_json_parse(&json, text, bytes, "many", 3));
    assert_int_equal(lt_json_root(json)->count, KEYS);
    lt_json_free(&json);
    lt_json_writer_clear(&w);
}

static void test_depths(void **state)
{
    (void)state;
    lt_json *json = NULL;
    assert_fails(lt_json_parse(&json, "1", 1, "text", 0), LT_E_ARG, "depth 0 is not in 1..64");
    assert_fails(lt_json_parse(&json, "1", 1, "text", 65), LT_E_ARG, "depth 65 is not in 1..64");
    assert_ok(lt_json_parse(&json, "1", 1, "text", 64));
    lt_json_free(&json);
}

static void test_files(void **state)
{
    (void)state;
    char folder[TEMP_PATH], path[TEMP_PATH];
    lt_json *json = NULL;
    lt_json_writer w = {0};
    temp_make(folder);
    lt_json_put_integer(&w, NULL, 7);
    assert_fails(lt_json_save(&w, temp_path(path, folder, "none/x.json")), LT_E_IO,
                 "none/x.json: No such file");
    assert_fails(lt_json_save(&w, "/dev/full"), LT_E_IO, "/dev/full: No space left");
    assert_ok(lt_json_save(&w, temp_path(path, folder, "x.json")));
    assert_ok(lt_json_load(&json, path));
    assert_int_equal(lt_json_root(json)->integer, 7);
    lt_json_free(&json);
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    assert_fails(lt_json_load(&json, path), LT_E_FORMAT,
                 "x.json: 67108865 bytes, at most 67108864 are allowed");
    lt_json_writer_clear(&w);
    temp_remove(folder);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(bad) + 7];
    size_t n = 0;
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        tests[n++] = (struct CMUnitTest){.name = bad[i].name,
                                         .test_func = test_refused,
                                         .initial_state = (void *)(uintptr_t)&bad[i]};
    tests[n++] = (struct CMUnitTest){"values of every type", test_values, NULL, NULL, NULL};
    tests[n++] =
        (struct CMUnitTest){"written values are read back", test_round_trip, NULL, NULL, NULL};
    tests[n++] = row_test("space between words", test_space, NULL);
    tests[n++] = row_test("a writer begins again", test_rewind, NULL);
    tests[n++] = row_test("depths that may be allowed", test_depths, NULL);
    tests[n++] =
        row_test("files: a missing folder, a full device, too many bytes", test_files, NULL);
    tests[n++] = (struct CMUnitTest){"two hundred thousand keys", test_many_keys, NULL, NULL, NULL};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
