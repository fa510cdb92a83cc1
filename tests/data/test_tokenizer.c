/* Tokenizers compared with Hugging Face's library, decoding, and invalid vocabularies. */

#include "base/alloc.h"
#include "golden.h"
#include "images.h"
#include "near.h"

#include "lather/detail/json.h"
#include "lather/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lt_text_part text_of(const char *text)
{
    return (lt_text_part){.text = text, .bytes = strlen(text)};
}

/* Decodes ids; free() the result. */
static char *decode(const lt_tokenizer *t, const lt_ids *ids)
{
    size_t all = 0, bytes;
    char *text = malloc(ids->count * 64 + 1);
    assert_non_null(text);
    for (size_t i = 0; i < ids->count; i++) {
        const char *part = lt_tokenizer_text(t, ids->id[i], &bytes);
        assert_non_null(part);
        assert_in_range(bytes, 0, 64);
        memcpy(text + all, part, bytes);
        all += bytes;
    }
    text[all] = 0;
    return text;
}

/* --- tests/golden/bpe --- */

static lt_tokenizer *open_gpt2(const char *folder)
{
    lt_tokenizer *t = NULL;
    char *name = lt_format("gpt2:%s", folder);
    assert_non_null(name);
    assert_ok(lt_tokenizer_open(&t, name));
    lt_free(name);
    return t;
}

/* Checks that a line's text is encoded as the line's ids and decoded again. */
static bool case_is_right(lt_tokenizer *t, char *line)
{
    lt_json *json = NULL;
    lt_ids ids = {0};
    char *tab = strchr(line, '\t'), *end;
    assert_non_null(tab);
    assert_ok(lt_json_parse(&json, line, (size_t)(tab - line), "cases.txt", 1));
    const char *text = lt_json_root(json)->string;
    const lt_text_part part = text_of(text);
    assert_ok(lt_tokenizer_encode(t, &part, &ids));
    bool right = true;
    size_t i = 0;
    for (char *at = tab; *at && *at != '\n'; at = end, i++) {
        const long id = strtol(at, &end, 10);
        if (end == at)
            break;
        right = right && i < ids.count && ids.id[i] == id;
    }
    right = right && i == ids.count;
    char *again = decode(t, &ids);
    assert_string_equal(again, text);
    free(again);
    lt_ids_clear(&ids);
    lt_json_free(&json);
    return right;
}

/* Returns the number of wrong cases. */
static int wrong_cases(lt_tokenizer *t, int *count)
{
    FILE *file = open_golden("bpe/cases.txt");
    char *line = NULL;
    size_t capacity = 0;
    int wrong = 0;
    *count = 0;
    while (getline(&line, &capacity, file) > 0) {
        if (*line == '#')
            continue;
        wrong += !case_is_right(t, line);
        ++*count;
    }
    free(line);
    fclose(file);
    return wrong;
}

static void check_golden(void **state)
{
    static const char *const folders[] = {"bpe", "bpe/whole"};
    (void)state;
    lt_vocabulary v[2];
    for (size_t i = 0; i < COUNT_OF(folders); i++) {
        int count;
        char *folder = golden_path(folders[i]);
        lt_tokenizer *t = open_gpt2(folder);
        assert_int_equal(wrong_cases(t, &count), 0);
        assert_int_equal(count, 423);
        v[i] = lt_tokenizer_vocabulary(t);
        assert_int_equal(v[i].size, 700);
        assert_int_equal(v[i].end, 0);
        lt_tokenizer_free(&t);
        free(folder);
    }
    assert_true(v[0].hash == v[1].hash);
}

/* Control: reversed merges give different ids. */
static void check_order(void **state)
{
    (void)state;
    char *from = golden_path("bpe"), *folder = make_folder(), *commands = NULL;
    assert_true(asprintf(&commands,
                         "cp %s/vocab.json . && head -1 %s/merges.txt > merges.txt && "
                         "tail -n +2 %s/merges.txt | tac >> merges.txt",
                         from, from, from)
                > 0);
    run_in(folder, commands);
    int count;
    lt_tokenizer *t = open_gpt2(folder);
    const int wrong = wrong_cases(t, &count);
    assert_in_range(wrong, 50, count);
    lt_tokenizer_free(&t);
    free(commands);
    free(from);
    remove_folder(folder);
}

static void check_long_word(void **state)
{
    (void)state;
    enum { BYTES = 1000000 };
    char *folder = golden_path("bpe"), *text = malloc(BYTES + 1);
    assert_non_null(text);
    for (int i = 0; i < BYTES; i++)
        text[i] = "tokenizationalattention"[i % 23];
    text[BYTES] = 0;
    lt_tokenizer *t = open_gpt2(folder);
    lt_ids ids = {0};
    const lt_text_part part = text_of(text);
    assert_ok(lt_tokenizer_encode(t, &part, &ids));
    assert_in_range(ids.count, BYTES / 23, BYTES / 2);
    char *again = decode(t, &ids);
    assert_string_equal(again, text);
    free(again);
    lt_ids_clear(&ids);
    lt_tokenizer_free(&t);
    free(text);
    free(folder);
}

/* --- Invalid vocabularies --- */

typedef struct wrong_row {
    const char *name, *vocab, *merges, *whole; /* contents of files; NULL: no file */
    lt_status want;
    const char *says;
} wrong_row;

#define END_IS_0 "\"<|endoftext|>\": 0"
#define WORDS    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}"

static wrong_row wrong_rows[] = {
    {"a vocabulary without files", NULL, NULL, NULL, LT_E_IO, "vocab.json: No such file"},
    {"a vocabulary without merges", "{" END_IS_0 "}", NULL, NULL, LT_E_IO,
     "merges.txt: No such file"},
    {"a vocabulary without an end of text", "{\"a\": 0}", "", NULL, LT_E_FORMAT,
     "the vocabulary lacks <|endoftext|>"},
    {"a vocabulary that is a list", "[1]", "", NULL, LT_E_FORMAT, "is not an object of texts"},
    {"an id that is a text", "{\"a\": \"b\"}", "", NULL, LT_E_FORMAT,
     "the id of 'a' is not an integer"},
    {"a duplicate id", "{" END_IS_0 ", \"b\": 0}", "", NULL, LT_E_FORMAT,
     "'b' has the id 0, which another entry has"},
    {"a missing id", "{" END_IS_0 ", \"b\": 2}", "", NULL, LT_E_FORMAT,
     "id 1 is missing; the largest id is 2"},
    {"an id below 0", "{\"b\": -1}", "", NULL, LT_E_FORMAT, "'b' has the id -1"},
    {"an id that is too large", "{\"b\": 16777216}", "", NULL, LT_E_FORMAT,
     "'b' has the id 16777216; want 0 .. 16777215"},
    {"an entry with a space", "{\"a b\": 0}", "", NULL, LT_E_FORMAT, "'a b' (id 0) represents no"},
    {"an empty entry", "{\"\": 0}", "", NULL, LT_E_FORMAT, "'' (id 0) represents no bytes"},
    {"a merge of three", "{" END_IS_0 ", \"a\": 1}", "#version: 0.2\na b c\n", NULL, LT_E_FORMAT,
     "merges.txt: merge 1 is 'a b c'"},
    {"a merge of one", "{" END_IS_0 ", \"a\": 1}", "a\n", NULL, LT_E_FORMAT, "merge 1 is 'a'"},
    {"a merge of an unknown token", "{" END_IS_0 ", \"a\": 1, \"aa\": 2}", "a a\r\n\nb a\n", NULL,
     LT_E_FORMAT, "merge 2 has 'b', which is not in"},
    {"a merge into an unknown token", "{" END_IS_0 ", \"a\": 1, \"b\": 2}", "a b", NULL,
     LT_E_FORMAT, "merge 1 has 'ab', which is not in"},
    {"a duplicate merge", "{" END_IS_0 ", \"a\": 1, \"aa\": 2}", "a a\na a", NULL, LT_E_FORMAT,
     "merge 2, 'a a', occurs twice"},
    {"merges that are not UTF-8", "{" END_IS_0 "}", "a \xff", NULL, LT_E_FORMAT,
     "merges.txt: the byte 0xff at offset 2"},
    {"a tokenizer.json of another model", NULL, NULL, "{\"model\": {\"type\": \"Unigram\"}}",
     LT_E_UNSUPPORTED, "the model's type is not BPE"},
    {"a tokenizer.json with a normalizer", NULL, NULL,
     "{\"model\": {\"type\": \"BPE\"}, \"normalizer\": {\"type\": \"NFC\"}}", LT_E_UNSUPPORTED,
     "normalizers are not supported"},
    {"a tokenizer.json with another pre_tokenizer", NULL, NULL,
     "{\"model\": {\"type\": \"BPE\"}, \"pre_tokenizer\": {\"type\": \"Split\"}}", LT_E_UNSUPPORTED,
     "unsupported pre_tokenizer"},
    {"a tokenizer.json with add_prefix_space", NULL, NULL,
     "{\"model\": {\"type\": \"BPE\"}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
     "\"add_prefix_space\": true}}",
     LT_E_UNSUPPORTED, "unsupported pre_tokenizer"},
    {"a tokenizer.json that ignores merges", NULL, NULL,
     "{" WORDS ", \"model\": {\"type\": \"BPE\", \"ignore_merges\": true}}", LT_E_UNSUPPORTED,
     "the model option ignore_merges"},
    {"a tokenizer.json without a vocabulary", NULL, NULL,
     "{" WORDS ", \"model\": {\"type\": \"BPE\"}}", LT_E_FORMAT, "is not an object of texts"},
    {"a tokenizer.json with a merge of three", NULL, NULL,
     "{" WORDS ", \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\", "
     "\"a\", \"a\"]]}}",
     LT_E_FORMAT, "merge 1 is not a pair"},
    /* control */
    {"a tokenizer.json of pairs", NULL, NULL,
     "{" WORDS ", \"added_tokens\": [{\"id\": 2, \"content\": \"<|endoftext|>\"}], \"model\": "
     "{\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"aa\": 1}, \"merges\": [[\"a\", \"a\"]]}}",
     LT_OK, ""},
};

static void check_vocabulary(void **state)
{
    const wrong_row *row = *state;
    char *folder = make_folder(), *name = lt_format("gpt2:%s", folder);
    lt_tokenizer *t = NULL;
    assert_non_null(name);
    if (row->vocab)
        write_file(folder, "vocab.json", row->vocab, strlen(row->vocab));
    if (row->merges)
        write_file(folder, "merges.txt", row->merges, strlen(row->merges));
    if (row->whole)
        write_file(folder, "tokenizer.json", row->whole, strlen(row->whole));
    if (row->want)
        assert_fails(lt_tokenizer_open(&t, name), row->want, row->says);
    else
        assert_ok(lt_tokenizer_open(&t, name));
    lt_tokenizer_free(&t);
    lt_free(name);
    remove_folder(folder);
}

static void check_missing_byte(void **state)
{
    static const char vocab[] = "{" END_IS_0 ", \"a\": 1, \"aa\": 2, \"\u0120\": 3}";
    (void)state;
    char *folder = make_folder();
    write_file(folder, "vocab.json", vocab, strlen(vocab));
    write_file(folder, "merges.txt", "a a", 3);
    lt_tokenizer *t = open_gpt2(folder);
    lt_ids ids = {0};
    lt_text_part part = text_of("aaa a");
    static const int32_t want[] = {2, 1, 3, 1};
    assert_ok(lt_tokenizer_encode(t, &part, &ids));
    assert_int_equal(ids.count, COUNT_OF(want));
    assert_memory_equal(ids.id, want, sizeof want);
    part = text_of("aaa ab");
    part.name = "x.txt";
    part.offset = 100;
    assert_fails(lt_tokenizer_encode(t, &part, &ids), LT_E_FORMAT,
                 "x.txt: the byte 0x62 at offset 105 is not in the vocabulary");
    lt_ids_clear(&ids);
    lt_tokenizer_free(&t);
    remove_folder(folder);
}

/* --- Bytes and characters --- */

static void check_bytes(void **state)
{
    (void)state;
    lt_tokenizer *t = NULL;
    lt_ids ids = {0};
    char all[256];
    size_t bytes;
    for (int i = 0; i < 256; i++)
        all[i] = (char)(unsigned char)i;
    const lt_text_part part = {.text = all, .bytes = sizeof all};
    assert_ok(lt_tokenizer_open(&t, "byte"));
    assert_ok(lt_tokenizer_encode(t, &part, &ids));
    assert_int_equal(ids.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(ids.id[i], i);
        assert_memory_equal(lt_tokenizer_text(t, i, &bytes), all + i, 1);
        assert_int_equal(bytes, 1);
    }
    const lt_vocabulary v = lt_tokenizer_vocabulary(t);
    assert_int_equal(v.size, 257);
    assert_int_equal(v.end, 256);
    assert_string_equal(v.tokenizer, "byte");
    assert_memory_equal(lt_tokenizer_text(t, 256, &bytes), "<|endoftext|>", 13);
    assert_int_equal(bytes, 13);
    assert_null(lt_tokenizer_text(t, 257, &bytes));
    assert_null(lt_tokenizer_text(t, -1, &bytes));
    lt_ids_clear(&ids);
    lt_tokenizer_free(&t);
}

static void check_chars(void **state)
{
    (void)state;
    lt_tokenizer *t = NULL, *other = NULL;
    lt_ids ids = {0};
    static const int32_t want[] = {2, 0, 1, 3, 3};
    lt_text_part part = text_of("\xc3\xa9"
                                "ba\n\n");
    assert_ok(lt_tokenizer_open(&t, "char:ba\xc3\xa9\n"));
    assert_ok(lt_tokenizer_encode(t, &part, &ids));
    assert_int_equal(ids.count, COUNT_OF(want));
    assert_memory_equal(ids.id, want, sizeof want);
    char *again = decode(t, &ids);
    assert_string_equal(again, part.text);
    free(again);
    part = text_of("ab\xe2\x82\xac");
    assert_fails(lt_tokenizer_encode(t, &part, &ids), LT_E_FORMAT,
                 "text: the character U+20AC at offset 2 is not one of the 4");
    part = text_of("ab\xe2\x82");
    assert_fails(lt_tokenizer_encode(t, &part, &ids), LT_E_FORMAT,
                 "text: the byte 0xe2 at offset 2 is not UTF-8");
    assert_fails(lt_tokenizer_open(&other, "char:aba"), LT_E_ARG, "has U+0061 twice");
    assert_fails(lt_tokenizer_open(&other, "char:\xff"), LT_E_FORMAT, "is not UTF-8");
    assert_ok(lt_tokenizer_open(&other, "byte"));
    const lt_vocabulary a = lt_tokenizer_vocabulary(t), b = lt_tokenizer_vocabulary(other);
    assert_ok(lt_vocabulary_check(&a, "model", &a, "data"));
    assert_fails(lt_vocabulary_check(&a, "model", &b, "data"), LT_E_FORMAT,
                 "data has that of 'byte' (257 ids");
    lt_ids_clear(&ids);
    lt_tokenizer_free(&other);
    lt_tokenizer_free(&t);
}

/* --- Allocation failures --- */

static lt_status open_and_encode(void *context)
{
    const char *name = context;
    lt_tokenizer *t = NULL;
    lt_ids ids = {0};
    const lt_text_part part = text_of("aaaa aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    lt_status st = lt_tokenizer_open(&t, name);
    if (!st)
        st = lt_tokenizer_encode(t, &part, &ids);
    lt_ids_clear(&ids);
    lt_tokenizer_free(&t);
    return st;
}

static void check_memory(void **state)
{
    static const char vocab[] = "{" END_IS_0 ", \"a\": 1, \"aa\": 2, \"\u0120\": 3}";
    (void)state;
    char *folder = make_folder(), *gpt2 = lt_format("gpt2:%s", folder);
    char byte[] = "byte", chars[] = "char:a ", *const names[] = {byte, chars, gpt2};
    write_file(folder, "vocab.json", vocab, strlen(vocab));
    write_file(folder, "merges.txt", "a a", 3);
    for (size_t i = 0; i < COUNT_OF(names); i++)
        assert_true(fail_each_allocation(open_and_encode, names[i]) > 3);
    lt_free(gpt2);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"GPT-2's ids equal Hugging Face's", check_golden, 0, 0, 0},
        {"merges in another order give other ids", check_order, 0, 0, 0},
        {"a word of a million bytes", check_long_word, 0, 0, 0},
        {"a byte that is not in the vocabulary", check_missing_byte, 0, 0, 0},
        {"bytes are ids", check_bytes, 0, 0, 0},
        {"characters are ids", check_chars, 0, 0, 0},
        {"a failed allocation is an error", check_memory, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(wrong_rows)];
    size_t n = COUNT_OF(more);
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(wrong_rows); i++)
        tests[n++] = row_test(wrong_rows[i].name, check_vocabulary, &wrong_rows[i]);
    return _cmocka_run_group_tests("tokenizer", tests, n, NULL, NULL);
}
