/* Text divided into documents, into parts, and into training and validation data. */

#include "data/tokens/corpus.h"
#include "data/tokens/token_file.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/dataset.h"
#include "lather/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LENGTH = 4 };

typedef struct text_row {
    const char *name, *text;
    lt_documents kind;
    const char *want[4]; /* documents */
} text_row;

static text_row texts[] = {
    {"a file is a document", "a\n\n<|endoftext|>b", LT_DOCUMENTS_FILES, {"a\n\n<|endoftext|>b"}},
    {"blank lines end documents",
     "\n \na\nb\n\t\n\n\nc\n\n",
     LT_DOCUMENTS_BLANK_LINES,
     {"a\nb\n", "c\n"}},
    {"blank lines end documents, CR LF", "a\r\n\r\nb", LT_DOCUMENTS_BLANK_LINES, {"a\r\n", "b"}},
    {"one blank line at the beginning", "\na", LT_DOCUMENTS_BLANK_LINES, {"a"}},
    {"a blank beginning is text", "  a", LT_DOCUMENTS_BLANK_LINES, {"  a"}},
    {"<|endoftext|> ends documents",
     "<|endoftext|>a<|endoftext|> \n<|endoftext|><<|endoftext|>b<|",
     LT_DOCUMENTS_END_OF_TEXT,
     {"a", "<", "b<|"}},
    {"half a separator is text",
     "<|endoftext|><|endoftext|><|endof",
     LT_DOCUMENTS_END_OF_TEXT,
     {"<|endof"}},
};

static lt_status append(void *context, const lt_text_part *text)
{
    char *to = context;
    strncat(to, text->text, text->bytes);
    return LT_OK;
}

static void check_documents(void **state)
{
    const text_row *row = *state;
    char *folder = make_folder(), *path = below(folder, "a.txt");
    lt_corpus c = {0};
    write_file(folder, "a.txt", row->text, strlen(row->text));
    assert_ok(lt_corpus_open(&c, folder, row->kind));
    size_t i = 0;
    for (; i < COUNT_OF(row->want) && row->want[i]; i++) {
        char got[64] = "";
        assert_in_range(i, 0, c.documents - 1);
        assert_ok(lt_corpus_read_document(&c, &c.document[i], append, got));
        assert_string_equal(got, row->want[i]);
    }
    assert_int_equal(c.documents, i);
    lt_corpus_clear(&c);
    free(path);
    remove_folder(folder);
}

typedef struct whole {
    char *text;
    size_t bytes;
    int parts;
} whole;

static lt_status compare_part(void *context, const lt_text_part *text)
{
    whole *w = context;
    assert_int_equal(text->offset, w->bytes);
    assert_memory_equal(text->text, w->text + w->bytes, text->bytes);
    if (w->bytes) /* never within a word or white space */
        assert_true(w->text[w->bytes] == ' ' && w->text[w->bytes - 1] > ' ');
    w->bytes += text->bytes;
    w->parts++;
    return LT_OK;
}

static void check_parts(void **state)
{
    (void)state;
    const size_t size = 5000000;
    char *folder = make_folder(), *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < size; i++) /* short words and one of 3 MB */
        text[i] = i > 1500000 && i < 4500000 ? 'x' : "ab c  d \xc3\xa9"[i % 10];
    lt_corpus c = {0};
    whole w = {.text = text};
    write_file(folder, "deep/a.TXT", text, size);
    write_file(folder, "b.md", text, size);
    assert_ok(lt_corpus_open(&c, folder, LT_DOCUMENTS_FILES));
    assert_int_equal(c.documents, 1);
    assert_ok(lt_corpus_read_document(&c, &c.document[0], compare_part, &w));
    assert_int_equal(w.bytes, size);
    assert_in_range(w.parts, 2, 5);
    lt_corpus_clear(&c);
    free(text);
    remove_folder(folder);
}

/* Decodes all ids of the training or validation data. */
static char *split_text(const char *path, const lt_tokens_config *c, bool train)
{
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_tokenizer *t = NULL;
    lt_vocabulary v;
    lt_batch b;
    const lt_loader_config usual = {.batch = 1, .threads = 1};
    assert_ok(lt_dataset_tokens(&d, path, c, train));
    assert_ok(lt_dataset_vocabulary(d, &v));
    assert_ok(lt_tokenizer_open(&t, v.tokenizer));
    const lt_vocabulary again = lt_tokenizer_vocabulary(t);
    assert_ok(lt_vocabulary_check(&v, "data", &again, "tokenizer"));
    assert_ok(lt_loader_new(&l, d, device, &usual));
    char *text = calloc(1, (size_t)lt_dataset_token_count(d) * 16);
    assert_non_null(text);
    while (!lt_loader_next(l, &b)) {
        int32_t label[LENGTH];
        assert_ok(lt_tensor_read(b.labels, label, sizeof label));
        for (int i = 0; i < LENGTH; i++) {
            size_t bytes;
            const char *token = lt_tokenizer_text(t, label[i], &bytes);
            if (token)
                strncat(text, token, bytes);
        }
    }
    lt_loader_free(&l);
    lt_tokenizer_free(&t);
    lt_dataset_free(&d);
    return text;
}

static void check_division(void **state)
{
    (void)state;
    /* The second file is one line: it is divided between characters. */
    static const char *const files[][2] = {
        {"line 1\nline 2\nline \xc3\xa9\nline 4\nline 5\n", "line 6\nline 7\n"},
        {"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", "\xc3\xa9\xc3\xa9\xc3\xa9"}};
    static const char *const names[] = {"byte", "char"};
    char *folder = make_folder(), *path = below(folder, "one.txt"), *text[2], many[480];
    for (size_t i = 0; i < 2 * COUNT_OF(files); i++) {
        const char *const *parts = files[i / 2];
        const lt_tokens_config c = {
            .length = LENGTH, .tokenizer = names[i % 2], .val_fraction = 0.4};
        snprintf(many, sizeof many, "%s%s", parts[0], parts[1]);
        write_file(folder, "one.txt", many, strlen(many));
        for (int train = 0; train < 2; train++)
            text[train] = split_text(path, &c, train);
        assert_string_equal(text[1], parts[0]);
        assert_string_equal(text[0], parts[1]);
        free(text[0]);
        free(text[1]);
    }
    *many = 0;
    for (int i = 0; i < 20; i++)
        snprintf(many + strlen(many), 24, "doc%02d\n\n", i);
    write_file(folder, "one.txt", many, strlen(many));
    const lt_tokens_config c = {
        .length = LENGTH, .documents = LT_DOCUMENTS_BLANK_LINES, .val_fraction = 0.25};
    for (int train = 0; train < 2; train++)
        text[train] = split_text(path, &c, train);
    int count[2] = {0};
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "doc%02d", i);
        assert_int_equal(!!strstr(text[0], name) + !!strstr(text[1], name), 1);
        count[strstr(text[1], name) != NULL]++;
    }
    assert_int_equal(count[0], 5);
    free(text[0]);
    free(text[1]);
    free(path);
    remove_folder(folder);
}

static void check_wrong(void **state)
{
    (void)state;
    char *folder = make_folder(), *path = below(folder, "a.txt");
    lt_tokens_config c = {.length = 0};
    lt_dataset *d = NULL;
    lt_vocabulary v;
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_ARG, "length is 0 tokens");
    c.length = 4;
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_IO, "a.txt: No such file");
    assert_fails(lt_dataset_tokens(&d, folder, &c, true), LT_E_FORMAT, "no .txt file");
    write_file(folder, "a.txt", "", 0);
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT, "a.txt: no text");
    write_file(folder, "a.txt",
               "ab\xff"
               "cdefghijk",
               12);
    c.tokenizer = "char";
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT,
                 "a.txt: the byte 0xff at offset 2 is not UTF-8");
    c.tokenizer = "char:ab";
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT, "offset 2 is not UTF-8");
    c.tokenizer = "word";
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_ARG, "got 'word', want byte");
    c.tokenizer = NULL;
    c.val_fraction = 1;
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_ARG, "validation fraction is 1,");
    c.val_fraction = -0.5;
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_ARG, "validation fraction is -0.5,");
    c.val_fraction = 0.1;
    write_file(folder, "a.txt", "abc", 3);
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT,
                 "a.txt: 3 bytes are too few for a validation fraction of 0.1");
    c.documents = (lt_documents)3;
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_ARG, "documents is 3, want 0 .. 2");
    c.documents = LT_DOCUMENTS_FILES;
    c.tokenizer = "char";
    write_file(folder, "a.txt", "abcde\0ghijkl", 12);
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT,
                 "a.txt: not text: zero byte at offset 5");
    assert_ok(lt_dataset_synthetic(&d, 4, 4, 3, 2));
    assert_fails(lt_dataset_vocabulary(d, &v), LT_E_ARG, "'synthetic' has no tokens");
    assert_int_equal(lt_dataset_token_count(d), 0);
    lt_dataset_free(&d);
    free(path);
    remove_folder(folder);
}

/* A folder of this user, read as another one. */
static void check_unreadable(void **state)
{
    (void)state;
    if (geteuid())
        skip(); /* only root can read as another user */
    const lt_tokens_config c = {.length = 4};
    char *folder = make_folder();
    lt_dataset *d = NULL;
    write_file(folder, "deep/a.txt", "some text", 9);
    run_in(folder, "chmod 755 . && chmod 700 deep");
    assert_int_equal(seteuid(65534), 0);
    (void)lt_fail(LT_E_ARG, "that of an earlier call");
    const lt_status st = lt_dataset_tokens(&d, folder, &c, true);
    assert_int_equal(seteuid(0), 0);
    assert_failed(st, LT_E_IO, "/deep: Permission denied");
    remove_folder(folder);
}

/* Writes a token file with as many documents, which are empty. */
static lt_status write_tokens(const char *path, const lt_vocabulary *v, int documents)
{
    lt_token_writer w;
    lt_status st = lt_token_writer_open(&w, path, v);
    for (int i = 0; i < documents && !st; i++)
        st = lt_token_writer_begin_document(&w);
    return st ? st : lt_token_writer_finish(&w);
}

static void check_token_files(void **state)
{
    enum { MOST_NAME = 1 << 24 }; /* bytes with the NUL */
    (void)state;
    const lt_tokens_config c = {.length = 4};
    lt_vocabulary v = {.tokenizer = "byte", .size = 1000, .end = -1, .hash = 17};
    char *folder = make_folder(), *path = below(folder, "x.tokens"), *name = malloc(MOST_NAME + 1);
    int64_t tokens;
    lt_dataset *d = NULL;
    assert_fails(write_tokens(path, &v, 1), LT_E_ARG, "of byte has no end-of-text id");
    v.end = 0;
    assert_non_null(name);
    memset(name, 'x', MOST_NAME);
    name[MOST_NAME] = 0;
    v.tokenizer = name;
    assert_fails(write_tokens(path, &v, 1), LT_E_ARG, "has 16777217 bytes, want at most 16777216");
    v.tokenizer = "byte";
    assert_ok(write_tokens(path, &v, 2)); /* the control */
    assert_ok(lt_dataset_tokens(&d, path, &c, true));
    lt_dataset_free(&d);
    assert_ok(write_tokens(path, &v, 1));
    assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT, "1 tokens, want at least 2");
    flip_bits(path, 0, 1);
    assert_fails(lt_tokens_verify(path, &tokens), LT_E_FORMAT, "x.tokens: not a token file");
    free(name);
    free(path);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"a folder that is unreadable is named", check_unreadable, 0, 0, 0},
        {"token files without end of text, with a long name, of one id", check_token_files, 0, 0,
         0},
        {"a long document is read in parts", check_parts, 0, 0, 0},
        {"text is divided into training and validation", check_division, 0, 0, 0},
        {"invalid text and configs are rejected", check_wrong, 0, 0, 0},
    };
    struct CMUnitTest tests[COUNT_OF(more) + COUNT_OF(texts)];
    size_t n = COUNT_OF(more);
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(texts); i++)
        tests[n++] = row_test(texts[i].name, check_documents, &texts[i]);
    return _cmocka_run_group_tests("text", tests, n, open_device, close_device);
}
