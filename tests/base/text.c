/* src/base/text.c: escapes of names. */

#include "lather/detail/text.h"

#include "near.h"

#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct row {
    const char *bytes, *shown;
} rows[] = {
    {"", ""},
    {"tench, Tinca tinca", "tench, Tinca tinca"},
    {"gr\xc3\xbcn \xe2\x82\xac \xf0\x9f\x90\x9f", "gr\xc3\xbcn \xe2\x82\xac \xf0\x9f\x90\x9f"},
    {"b\xff", "b\\xff"},
    {"\xc3", "\\xc3"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* a lone surrogate */
    {"a\nb\x1b[2J\x7f", "a\\x0ab\\x1b[2J\\x7f"},
    {"\xc2\x9b", "\\xc2\\x9b"},              /* CSI of C1 */
    {"x\xe2\x80\xaey", "x\\xe2\\x80\\xaey"}, /* right-to-left override */
    {"x\xe2\x80\xa8y", "x\\xe2\\x80\\xa8y"}, /* line separator */
    {"x\xd8\x9cy", "x\\xd8\\x9cy"},          /* Arabic letter mark */
    {"C:\\x41", "C:\\\\x41"},
};

static void names_are_shown_and_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char shown[64], back[64];
        assert_string_equal(lt_text_escape(shown, sizeof shown, rows[i].bytes), rows[i].shown);
        assert_int_equal(lt_text_escape_bytes(rows[i].bytes), strlen(rows[i].shown) + 1);
        assert_status(lt_text_unescape(back, shown), LT_OK);
        assert_string_equal(back, rows[i].bytes);
    }
}

static void a_cut_is_between_characters(void **state)
{
    (void)state;
    char shown[8];
    assert_string_equal(lt_text_escape(shown, 5, "abc\xc3\xbc"), "abc");
    assert_string_equal(lt_text_escape(shown, 6, "abc\xc3\xbc"), "abc\xc3\xbc");
    assert_string_equal(lt_text_escape(shown, 6, "ab\xff"), "ab");
    assert_string_equal(lt_text_escape(shown, 1, "a"), "");
}

static void a_message_is_one_line_and_escaped_once(void **state)
{
    (void)state;
    char line[32], again[32];
    lt_text_line(line, sizeof line, "a\\.b: x\n\x1b[2J\xff");
    assert_string_equal(line, "a\\.b: x\\x0a\\x1b[2J\\xff");
    assert_string_equal(lt_text_line(again, sizeof again, line), line);
    assert_status(lt_fail(LT_E_IO, "%s: %s", "a\nb", "no"),
                  LT_E_IO); /* lt_fail() escapes its message */
    assert_string_equal(lt_error_message(), "a\\x0ab: no");
}

static void keep(void *context, lt_log_level level, const char *area, const char *text)
{
    (void)level;
    (void)area;
    snprintf(context, 64, "%s", text);
}

static void a_log_line_is_one_line(void **state)
{
    char line[64] = "";
    (void)state;
    lt_log_set(keep, line);
    lt_log(LT_LOG_ERROR, "base", "%s", "a\nlather error base: b");
    lt_log_set(NULL, NULL);
    assert_string_equal(line, "a\\x0alather error base: b");
}

static void what_is_no_escape_is_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"\\", "\\n", "\\x", "\\x4", "\\x4g", "\\x00", "\\xAA"};
    char out[8];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_status(lt_text_unescape(out, wrong[i]), LT_E_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_shown_and_come_back),
        cmocka_unit_test(a_cut_is_between_characters),
        cmocka_unit_test(a_message_is_one_line_and_escaped_once),
        cmocka_unit_test(a_log_line_is_one_line),
        cmocka_unit_test(what_is_no_escape_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
