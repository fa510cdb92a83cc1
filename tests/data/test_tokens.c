/* Token data sets: each token is a target once per epoch for any number of ranks and threads, epochs are resumable, and
 * corrupt token files are errors. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "data/tokens/token_file.h"
#include "images.h"
#include "near.h"
#include "ref_device.h"

#include "lather/ext/dataset.h"
#include "lather/ops/loss.h"
#include "lather/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IDS = 1000, MOST_BATCHES = 64 };

/* --- A token file in which each id occurs once: the end-of-text id 0, then 1, 2, ... --- */

static const lt_vocabulary counting = {.tokenizer = "byte", .size = IDS, .end = 0, .hash = 17};

static char *write_counting(const char *folder, int64_t count, const lt_vocabulary *v)
{
    char *path = below(folder, "counting.tokens");
    lt_token_writer w = {0};
    assert_ok(lt_token_writer_open(&w, path, v));
    assert_ok(lt_token_writer_begin_document(&w));
    for (int32_t i = 1; i < count; i++)
        assert_ok(lt_token_writer_add(&w, &i, 1));
    assert_ok(lt_token_writer_finish(&w));
    return path;
}

typedef struct set {
    const char *name;
    int length, batch, ranks, threads, epochs;
    int64_t count; /* tokens */
    bool shuffle;
} set;

static set sets[] = {
    {"each token once: 7 of 1000 tokens, in order", 7, 4, 1, 1, 2, 1000, false},
    {"each token once: 7 of 1000 tokens, shuffled", 7, 4, 1, 3, 5, 1000, true},
    {"each token once: 9 of 1000 tokens fill the windows", 9, 4, 1, 2, 3, 1000, true},
    {"each token once: 3 ranks", 7, 4, 3, 2, 3, 1000, true},
    {"each token once: 2 ranks, windows of 1", 1, 16, 2, 2, 2, 100, true},
    {"each token once: a window longer than the text", 50, 2, 1, 1, 4, 20, true},
    {"each token once: two tokens", 3, 1, 1, 1, 2, 2, true},
};

typedef struct rows {
    int32_t *input, *label;
} rows;

static rows take(const lt_batch *b, int length)
{
    const size_t bytes = (size_t)b->count * (size_t)length * sizeof(int32_t);
    assert_int_equal(lt_tensor_dtype(b->inputs), LT_I32);
    assert_int_equal(lt_tensor_dtype(b->labels), LT_I32);
    assert_true(lt_shape_equal(lt_tensor_shape(b->inputs), LT_SHAPE(b->count, length)));
    assert_true(lt_shape_equal(lt_tensor_shape(b->labels), LT_SHAPE(b->count, length)));
    rows r = {.input = malloc(bytes), .label = malloc(bytes)};
    assert_true(r.input && r.label);
    assert_ok(lt_tensor_read(b->inputs, r.input, bytes));
    assert_ok(lt_tensor_read(b->labels, r.label, bytes));
    return r;
}

static void clear(rows r)
{
    free(r.input);
    free(r.label);
}

/* Counts targets; each must be its input's id + 1 or ignored. */
static void count_targets(const lt_batch *b, const set *s, int *seen)
{
    rows r = take(b, s->length);
    for (int i = 0; i < b->count * s->length; i++) {
        if (r.label[i] == LT_IGNORED_LABEL)
            continue;
        assert_in_range(r.label[i], 1, s->count - 1);
        assert_int_equal(r.input[i], r.label[i] - 1);
        seen[r.label[i]]++;
    }
    clear(r);
}

static bool all_once(const int *seen, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (seen[i] != 1)
            return false;
    return true;
}

static lt_loader_config config_of(const set *s, int rank)
{
    return (lt_loader_config){.batch = s->batch,
                              .threads = s->threads,
                              .rank = rank,
                              .size = s->ranks,
                              .seed = 11,
                              .shuffle = s->shuffle};
}

static lt_dataset *open_counting(const set *s, char **folder)
{
    lt_dataset *d = NULL;
    const lt_tokens_config c = {.length = s->length};
    *folder = make_folder();
    char *path = write_counting(*folder, s->count, &counting);
    assert_ok(lt_dataset_tokens(&d, path, &c, true));
    free(path);
    return d;
}

static void check_once(void **state)
{
    const set *s = *state;
    char *folder;
    lt_dataset *d = open_counting(s, &folder);
    assert_int_equal(lt_dataset_classes(d), IDS);
    assert_int_equal(lt_dataset_token_count(d), s->count);
    assert_true(lt_shape_equal(lt_dataset_shape(d), LT_SHAPE(s->length)));
    assert_int_equal(lt_dataset_count(d), (s->count - 2) / s->length + 1);
    lt_loader *l[3];
    for (int rank = 0; rank < s->ranks; rank++) {
        const lt_loader_config c = config_of(s, rank);
        assert_ok(lt_loader_new(&l[rank], d, device, &c));
    }
    for (int epoch = 0; epoch < s->epochs; epoch++) {
        int seen[IDS] = {0}, last[IDS] = {0};
        lt_status st;
        for (int rank = 0; rank < s->ranks; rank++) {
            lt_batch b;
            while (!(st = lt_loader_next(l[rank], &b))) {
                count_targets(&b, s, seen);
                memset(last, 0, sizeof last);
                count_targets(&b, s, last);
            }
            assert_int_equal(st, LT_END);
        }
        assert_true(all_once(seen, s->count));
        for (int i = 0; i < IDS; i++) /* control: an epoch without its last batch */
            seen[i] -= last[i];
        assert_false(all_once(seen, s->count));
    }
    for (int rank = 0; rank < s->ranks; rank++)
        lt_loader_free(&l[rank]);
    lt_dataset_free(&d);
    remove_folder(folder);
}

/* --- Order --- */

typedef struct epoch {
    int batches;
    rows batch[MOST_BATCHES];
    int count[MOST_BATCHES];
} epoch;

static void read_epoch(lt_loader *l, int length, epoch *e)
{
    lt_batch b;
    e->batches = 0;
    while (!lt_loader_next(l, &b)) {
        assert_in_range(e->batches, 0, MOST_BATCHES - 1);
        e->count[e->batches] = b.count * length;
        e->batch[e->batches++] = take(&b, length);
    }
}

static void clear_epoch(epoch *e)
{
    for (int i = 0; i < e->batches; i++)
        clear(e->batch[i]);
}

static bool same_rows(const epoch *a, int i, const epoch *b, int k)
{
    const size_t bytes = (size_t)a->count[i] * sizeof(int32_t);
    return a->count[i] == b->count[k] && !memcmp(a->batch[i].input, b->batch[k].input, bytes)
           && !memcmp(a->batch[i].label, b->batch[k].label, bytes);
}

/* Compares a from batch first on with b. */
static bool same_epochs(const epoch *a, int first, const epoch *b)
{
    bool same = a->batches - first == b->batches;
    for (int i = 0; same && i < b->batches; i++)
        same = same_rows(a, first + i, b, i);
    return same;
}

static void check_resume(void **state)
{
    (void)state;
    const set s = {
        .length = 7, .batch = 4, .ranks = 1, .threads = 3, .count = 1000, .shuffle = true};
    char *folder;
    epoch e[2], again;
    lt_loader *l = NULL;
    lt_dataset *d = open_counting(&s, &folder);
    lt_loader_config c = config_of(&s, 0);
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int i = 0; i < 2; i++)
        read_epoch(l, s.length, &e[i]);
    assert_false(same_epochs(&e[0], 0, &e[1])); /* the control */
    lt_loader_free(&l);
    c.threads = 1;
    assert_ok(lt_loader_new(&l, d, device, &c));
    for (int at = 0; at < 2; at++) {
        assert_ok(lt_loader_seek(l, 1, 17 * at));
        read_epoch(l, s.length, &again);
        assert_true(same_epochs(&e[1], 17 * at, &again));
        clear_epoch(&again);
    }
    lt_loader_free(&l);
    lt_dataset_free(&d);
    clear_epoch(&e[0]);
    clear_epoch(&e[1]);
    remove_folder(folder);
}

/* Row n of rank r of two is row 2 n + r of a single rank. */
static void check_ranks(void **state)
{
    (void)state;
    const set
        one = {.length = 7, .batch = 8, .ranks = 1, .threads = 2, .count = 1000, .shuffle = true},
        two = {.length = 7, .batch = 4, .ranks = 2, .threads = 1, .count = 1000, .shuffle = true};
    char *folder;
    lt_dataset *d = open_counting(&one, &folder);
    epoch whole, part[2];
    for (int rank = -1; rank < 2; rank++) {
        lt_loader *l = NULL;
        const lt_loader_config c = rank < 0 ? config_of(&one, 0) : config_of(&two, rank);
        assert_ok(lt_loader_new(&l, d, device, &c));
        read_epoch(l, one.length, rank < 0 ? &whole : &part[rank]);
        lt_loader_free(&l);
    }
    const size_t row = (size_t)one.length * sizeof(int32_t);
    int same = 0, other = 0, count = 0;
    for (int b = 0; b < whole.batches; b++)
        for (int i = 0; i < whole.count[b] / one.length; i++, count++) {
            const int32_t *want = whole.batch[b].label + (ptrdiff_t)i * one.length;
            const ptrdiff_t at = (ptrdiff_t)(i / 2) * one.length;
            same += !memcmp(want, part[i % 2].batch[b].label + at, row);
            other += i % 2 && !memcmp(want, part[0].batch[b].label + at, row); /* the control */
        }
    assert_int_equal(count, 143);
    assert_int_equal(same, count);
    assert_int_equal(other, 0);
    clear_epoch(&whole);
    clear_epoch(&part[0]);
    clear_epoch(&part[1]);
    lt_dataset_free(&d);
    remove_folder(folder);
}

/* Returns true if a window of the epoch begins with this id. */
static bool begins_with(const epoch *e, int length, int32_t id)
{
    for (int i = 0; i < e->batches; i++)
        for (int k = 0; k < e->count[i]; k += length)
            if (e->batch[i].input[k] == id)
                return true;
    return false;
}

static void check_shift(void **state)
{
    (void)state;
    const set s = {.length = 16, .batch = 4, .ranks = 1, .threads = 1, .count = 1000};
    char *folder;
    lt_dataset *d = open_counting(&s, &folder);
    int other = 0;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        lt_loader *l = NULL;
        lt_loader_config c = config_of(&s, 0);
        c.shuffle = shuffle;
        assert_ok(lt_loader_new(&l, d, device, &c));
        for (int i = 0; i < 8; i++) {
            epoch e;
            read_epoch(l, s.length, &e);
            const bool aligned = begins_with(&e, s.length, 32);
            assert_true(aligned || shuffle);
            other += !aligned;
            clear_epoch(&e);
        }
        lt_loader_free(&l);
    }
    assert_in_range(other, 4, 8);
    lt_dataset_free(&d);
    remove_folder(folder);
}

/* --- Ids and labels out of range in a user's data set --- */

enum { LENGTH = 3, SMALL = 5 };

static int32_t sample[2 * LENGTH]; /* ids, then labels */
static size_t sample_size = sizeof sample;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    (void)self, (void)index;
    LT_TRY(lt_record_reserve(record, sizeof sample));
    memcpy(record->bytes, sample, sizeof sample);
    record->size = sample_size;
    record->encoding = LT_ENCODING_TOKENS;
    return LT_OK;
}

static lt_status load_sample(void)
{
    static const lt_dataset_ops ops = {
        .name = "users", .bytes = sizeof(lt_dataset), .read = read_sample};
    const lt_loader_config c = {.batch = 1, .threads = 1};
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    lt_batch b;
    assert_ok(lt_dataset_new(&d, &ops));
    d->count = 1;
    d->classes = SMALL;
    d->shape = LT_SHAPE(LENGTH);
    d->tokens = true;
    assert_ok(lt_loader_new(&l, d, device, &c));
    const lt_status st = lt_loader_next(l, &b);
    lt_loader_free(&l);
    lt_dataset_free(&d);
    return st;
}

/* Only labels may be LT_IGNORED_LABEL. */
static void check_ids(void **state)
{
    static const int32_t values[] = {LT_IGNORED_LABEL, -1, 0, SMALL - 1, SMALL};
    (void)state;
    for (int place = 0; place < 2 * LENGTH; place++)
        for (size_t i = 0; i < COUNT_OF(values); i++) {
            const int32_t value = values[i];
            const bool ignored = place >= LENGTH && value == LT_IGNORED_LABEL;
            const bool good = ignored || (value >= 0 && value < SMALL);
            memset(sample, 0, sizeof sample);
            sample[place] = value;
            if (good)
                assert_ok(load_sample());
            else
                assert_fails(load_sample(), LT_E_FORMAT, "; the vocabulary has 5");
        }
    sample_size -= sizeof *sample;
    assert_fails(load_sample(), LT_E_FORMAT,
                 "users: sample 0 has a record of 20 bytes, want 3 ids");
    sample_size = sizeof sample;
}

/* --- Token files --- */

static void check_a_missing_file(void **state)
{
    (void)state;
    lt_token_file f = {.fd = -1};
    assert_fails(lt_token_file_open(&f, "/nowhere/missing.tokens"), LT_E_IO,
                 "/nowhere/missing.tokens: No such file");
    lt_token_file_close(&f);
}

static void check_widths(void **state)
{
    (void)state;
    const lt_vocabulary wide = {.tokenizer = "gpt2:x", .size = 65537, .end = 65536, .hash = 3};
    enum { COUNT = 2 * LT_TOKEN_CHUNK + 100 };
    char *folder = make_folder(), *path = below(folder, "wide.tokens");
    for (int size = 65536; size <= 65537; size++) {
        lt_vocabulary v = wide;
        lt_token_writer w = {0};
        lt_token_file f = {.fd = -1};
        int32_t got[LT_TOKEN_CHUNK + 2];
        v.size = size;
        v.end = size - 1;
        assert_ok(lt_token_writer_open(&w, path, &v));
        assert_ok(lt_token_writer_begin_document(&w));
        for (int32_t i = 0; i < COUNT; i++)
            assert_ok(lt_token_writer_add(&w, &i, 1));
        assert_ok(lt_token_writer_finish(&w));
        assert_true(lt_is_token_file(path));
        assert_ok(lt_token_file_open(&f, path));
        assert_int_equal(f.header.width, size == 65536 ? 2 : 4);
        assert_int_equal(f.header.count, COUNT + 1);
        assert_int_equal(f.header.documents, 1);
        assert_string_equal(f.name, "gpt2:x");
        assert_ok(lt_token_file_read(&f, 0, 1, got));
        assert_int_equal(got[0], size - 1);
        assert_ok(lt_token_file_read(&f, 4000, LT_TOKEN_CHUNK + 2, got));
        for (int32_t i = 0; i < LT_TOKEN_CHUNK + 2; i++)
            assert_int_equal(got[i], 3999 + i);
        lt_token_file_close(&f);
    }
    free(path);
    remove_folder(folder);
}

/* A change of a token file and the error that it causes. */
typedef struct corruption {
    const char *name, *says;
    long at;      /* offset of the byte to change */
    long shorter; /* bytes removed at the end */
    uint8_t flip; /* bits to invert */
    bool rehash;  /* recompute the checksums */
    bool on_read; /* reading fails instead of opening */
} corruption;

static corruption corruptions[] = {
    {"a token file without its magic is text", "not UTF-8", 0, 0, 0x80, 0, 0},
    {"a token file of a later version", "has version 3, this program reads 1", 8, 0, 2, 0, 0},
    {"a token file with a corrupt header", "the header is corrupt", 40, 0, 1, 0, 0},
    {"a token file whose end-of-text id is outside its vocabulary",
     "invalid header: a vocabulary of 1000 ids of 2 bytes, end of text 16777216, a name of 5", 31,
     0, 1, 1, 0},
    {"a token file with a corrupt name", "the name or the table is corrupt", 72, 0, 1, 0, 0},
    {"a truncated token file", "; its header has 1000 ids of 2 bytes", 0, 5, 0, 0, 0},
    {"a token file of a few bytes", "20 bytes are too few", 0, 2112, 0, 0, 0},
    {"a token file with a corrupt id", "ids 0 .. 999 are corrupt", 128, 0, 1, 0, 1},
    {"a token file with an id outside the vocabulary",
     "counting.tokens: id 8202 at index 10; the vocabulary has 1000", 128 + 21, 0, 0x20, 1, 1},
};

/* Recomputes the checksum of the only chunk and those that depend on it. */
static void rehash(uint8_t *bytes)
{
    lt_token_header h;
    memcpy(&h, bytes, sizeof h);
    const size_t size = (size_t)(h.count * h.width);
    const uint32_t crc = lt_crc32c(0, bytes + h.ids, size);
    memcpy(bytes + h.ids + size, &crc, sizeof crc);
    h.crc = lt_crc32c(lt_crc32c(0, bytes + sizeof h, h.name_bytes), &crc, sizeof crc);
    h.self_crc = lt_crc32c(0, &h, offsetof(lt_token_header, self_crc));
    memcpy(bytes, &h, sizeof h);
}

static void check_corruption(void **state)
{
    const corruption *row = *state;
    const lt_tokens_config c = {.length = 8, .tokenizer = "char"};
    const lt_loader_config usual = {.batch = 4, .threads = 1, .max_bad = -1};
    char *folder = make_folder(), *path = write_counting(folder, 1000, &counting);
    uint8_t bytes[4096];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_int_equal(size, 2132);
    bytes[row->at] ^= row->flip;
    if (row->rehash)
        rehash(bytes);
    write_file(folder, "counting.tokens", bytes, size - (size_t)row->shorter);
    lt_dataset *d = NULL;
    lt_loader *l = NULL;
    if (!row->on_read) {
        assert_fails(lt_dataset_tokens(&d, path, &c, true), LT_E_FORMAT, row->says);
    } else {
        lt_batch b;
        assert_ok(lt_dataset_tokens(&d, path, &c, true));
        assert_ok(lt_loader_new(&l, d, device, &usual));
        assert_fails(lt_loader_next(l, &b), LT_E_FORMAT, row->says);
        lt_loader_free(&l);
    }
    lt_dataset_free(&d);
    free(path);
    remove_folder(folder);
}

static void check_parts_of_files(void **state)
{
    (void)state;
    char *folder = make_folder(), *path = write_counting(folder, 40, &counting);
    char *train = below(folder, "train.tokens"), *val = below(folder, "val.tokens");
    const lt_tokens_config c = {.length = 4};
    lt_dataset *d = NULL;
    assert_int_equal(rename(path, train), 0);
    assert_ok(lt_dataset_tokens(&d, folder, &c, true));
    assert_int_equal(lt_dataset_token_count(d), 40);
    lt_dataset_free(&d);
    assert_fails(lt_dataset_tokens(&d, folder, &c, false), LT_E_IO, "val.tokens: no such file");
    free(write_counting(folder, 30, &counting));
    assert_int_equal(rename(path, val), 0);
    assert_ok(lt_dataset_tokens(&d, folder, &c, false));
    assert_int_equal(lt_dataset_token_count(d), 30);
    lt_dataset_free(&d);
    free(path);
    free(train);
    free(val);
    remove_folder(folder);
}

/* --- Allocation failures --- */

static void verify_both(const char *folder)
{
    static const char *const names[] = {"train.tokens", "val.tokens"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        int64_t tokens = 0;
        char *path = below(folder, names[i]);
        assert_ok(lt_tokens_verify(path, &tokens));
        assert_true(tokens > 1);
        free(path);
    }
}

/* Packs a text, reads a sample, checks that the pack is complete or absent, and removes it. */
static lt_status pack_and_read(void *context)
{
    const lt_tokens_config c = {.length = 4, .tokenizer = "char"};
    const char *folder = context;
    char *text = below(folder, "a.txt"), *to = below(folder, "packed");
    lt_dataset *d = NULL;
    lt_record record = {0};
    lt_status st = lt_tokens_pack(to, text, &c, NULL, NULL, NULL);
    if (!st)
        st = lt_dataset_tokens(&d, to, &c, false);
    if (!st)
        st = d->ops->read(d, 0, &record);
    lt_alloc_fail_at(0);
    lt_free(record.bytes);
    lt_dataset_free(&d);
    if (!access(to, F_OK))
        verify_both(to);
    run_in(folder, "rm -rf packed && test \"$(ls)\" = a.txt");
    free(text);
    free(to);
    return st;
}

static void check_memory(void **state)
{
    (void)state;
    char *folder = make_folder();
    write_file(folder, "a.txt", "some text\nand more\nof it\n", 25);
    assert_in_range(fail_each_allocation(pack_and_read, folder), 20, 1000);
    remove_folder(folder);
}

/* --- Stopping --- */

static bool stop_at_third(void *context, const lt_tokens_report *r)
{
    int64_t *documents = context;
    *documents = r->documents[0] + r->documents[1];
    return *documents < 3;
}

static void check_stop(void **state)
{
    (void)state;
    const lt_tokens_config c = {.documents = LT_DOCUMENTS_BLANK_LINES};
    char *folder = make_folder(), *text = below(folder, "a.txt"), *to = below(folder, "packed");
    int64_t documents = 0;
    write_file(folder, "a.txt", "a\n\nb\n\nc\n\nd\n\ne", 13);
    assert_status(lt_tokens_pack(to, text, &c, stop_at_third, &documents, NULL), LT_END);
    assert_int_equal(documents, 3);
    run_in(folder, "test \"$(ls)\" = a.txt");
    free(text);
    free(to);
    remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest more[] = {
        {"an epoch of tokens can be resumed", check_resume, 0, 0, 0},
        {"ranks divide the windows of one order", check_ranks, 0, 0, 0},
        {"windows of shuffled epochs are shifted", check_shift, 0, 0, 0},
        {"ids and labels outside the vocabulary are errors", check_ids, 0, 0, 0},
        {"token files have ids of 2 or 4 bytes", check_widths, 0, 0, 0},
        {"a token file that is missing is named", check_a_missing_file, 0, 0, 0},
        {"failed allocations leave a complete pack or none", check_memory, 0, 0, 0},
        {"stopped packing leaves no files", check_stop, 0, 0, 0},
        {"a folder has train.tokens and val.tokens", check_parts_of_files, 0, 0, 0},
    };
    enum { ALL = COUNT_OF(more) + COUNT_OF(sets) + COUNT_OF(corruptions) };
    struct CMUnitTest tests[ALL];
    size_t n = COUNT_OF(more);
    memcpy(tests, more, sizeof more);
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        tests[n++] = row_test(sets[i].name, check_once, &sets[i]);
    for (size_t i = 0; i < COUNT_OF(corruptions); i++)
        tests[n++] = row_test(corruptions[i].name, check_corruption, &corruptions[i]);
    return _cmocka_run_group_tests("tokens", tests, ALL, open_device, close_device);
}
