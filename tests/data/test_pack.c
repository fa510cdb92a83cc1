/* Packs: the samples of every mode, files that do not depend on threads and interruptions, and corrupt files. */

#include "base/alloc.h"
#include "base/encoding/crc32c.h"
#include "base/encoding/json.h"
#include "data/formats/image.h"
#include "data/pack/pack.h"
#include "images.h"
#include "near.h"
#include "temp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder with JPEG and BMP files, its data set, and the paths of a pack and its first shard. */
typedef struct place {
    char *root, *pack, *first;
    lt_dataset *data;
} place;

static place open_place(void)
{
    place p = {.root = make_image_folder()};
    p.pack = below(p.root, "pack");
    p.first = below(p.pack, "shard-00000.pack");
    assert_ok(lt_dataset_folder(&p.data, p.root));
    return p;
}

static void close_place(place *p)
{
    lt_dataset_free(&p->data);
    free(p->pack);
    free(p->first);
    remove_folder(p->root);
}

static void decode(const lt_dataset *d, int64_t index, lt_record *r, lt_image *out)
{
    assert_ok(d->ops->read(d, index, r));
    lt_window w = {.width = r->width, .height = r->height};
    if (r->encoding == LT_ENCODING_PIXELS) {
        *out = (lt_image){.pixels = r->bytes, .stride = (size_t)r->width * 3};
        out->width = r->width;
        out->height = r->height;
        out->channels = r->channels;
        return;
    }
    assert_ok(lt_image_size(r->bytes, r->size, NULL, &w.width, &w.height));
    assert_ok(lt_image_decode(r->bytes, r->size, NULL, 3, w, out));
}

/* Compares labels and pixels of a sample. */
static bool same_sample(const lt_dataset *a, const lt_dataset *b, int64_t index)
{
    lt_record x = {0}, y = {0};
    lt_image p = {0}, q = {0};
    decode(a, index, &x, &p);
    decode(b, index, &y, &q);
    bool same = x.label == y.label && p.width == q.width && p.height == q.height;
    for (int32_t row = 0; same && row < p.height; row++)
        same = !memcmp(p.pixels + (size_t)row * p.stride, q.pixels + (size_t)row * q.stride,
                       (size_t)p.width * 3);
    lt_free(p.memory);
    lt_free(q.memory);
    lt_free(x.bytes);
    lt_free(y.bytes);
    return same;
}

typedef struct mode_case {
    const char *name;
    lt_pack_config config;
    bool same; /* pixels */
} mode_case;

static const mode_case modes[] = {
    {"original: the files", {.mode = LT_PACK_ORIGINAL, .shard_samples = 4, .threads = 1}, true},
    {"lossless: the same pixels", {.mode = LT_PACK_LOSSLESS, .shard_samples = 4}, true},
    {"raw: the pixels", {.mode = LT_PACK_RAW, .shard_samples = 100}, true},
    {"resized to a larger side: the same pixels",
     {.mode = LT_PACK_RESIZED, .max_side = 4000, .shard_samples = 5},
     true},
    {"resized: other pixels", {.mode = LT_PACK_RESIZED, .max_side = 16, .quality = 80}, false},
    {"raw and smaller: other pixels", {.mode = LT_PACK_RAW, .max_side = 16}, false},
    {"resized to one pixel", {.mode = LT_PACK_RESIZED, .max_side = 1}, false},
};

/* A side of a pack's image: scaled by most / longest, rounded to the nearest. */
static int32_t scaled(int32_t side, int32_t longest, int most)
{
    return most && longest > most ? (int32_t)lround((double)side * most / longest) : side;
}

static void check_sides(const lt_dataset *from, const lt_dataset *to, int64_t index, int most)
{
    lt_record x = {0}, y = {0};
    lt_image p = {0}, q = {0};
    decode(from, index, &x, &p);
    decode(to, index, &y, &q);
    const int32_t longest = p.width > p.height ? p.width : p.height;
    assert_int_equal(q.width, scaled(p.width, longest, most));
    assert_int_equal(q.height, scaled(p.height, longest, most));
    lt_free(p.memory);
    lt_free(q.memory);
    lt_free(x.bytes);
    lt_free(y.bytes);
}

static void check_manifest(const place *p, const lt_pack_config *c)
{
    static const char *const names[] = {"original", "lossless", "resized", "raw"};
    const int64_t count = lt_dataset_count(p->data);
    const struct {
        const char *key;
        int64_t want;
    } numbers[] = {{"version", 1},
                   {"max_side", c->max_side},
                   {"quality", c->quality ? c->quality : 90},
                   {"samples", count},
                   {"bad", 0},
                   {"shards", c->shard_samples ? (count - 1) / c->shard_samples + 1 : 1},
                   {"channels", lt_dataset_channels(p->data)},
                   {"classes", lt_dataset_classes(p->data)}};
    char *path = below(p->pack, "manifest.json");
    lt_json *json = NULL;
    const char *mode = NULL;
    assert_ok(lt_json_load(&json, path));
    assert_ok(lt_json_string(lt_json_root(json), "mode", &mode));
    assert_string_equal(mode, names[c->mode]);
    for (size_t i = 0; i < COUNT_OF(numbers); i++) {
        int64_t got = -1;
        assert_ok(lt_json_integer(lt_json_root(json), numbers[i].key, &got));
        if (got != numbers[i].want)
            fail_msg("%s is %lld, want %lld", numbers[i].key, (long long)got,
                     (long long)numbers[i].want);
    }
    lt_json_free(&json);
    free(path);
}

static void check_mode(void **state)
{
    const mode_case *m = *state;
    place p = open_place();
    lt_dataset *d = NULL;
    lt_pack_report report;
    assert_ok(lt_pack_write(p.pack, p.data, &m->config, NULL, NULL, &report));
    assert_int_equal(report.samples, lt_dataset_count(p.data));
    assert_int_equal(report.bad, 0);
    assert_ok(lt_dataset_open(&d, p.pack, true));
    assert_int_equal(lt_dataset_count(d), lt_dataset_count(p.data));
    assert_int_equal(lt_dataset_classes(d), lt_dataset_classes(p.data));
    assert_string_equal(lt_dataset_class_name(d, 1), lt_dataset_class_name(p.data, 1));
    for (int64_t i = 0; i < lt_dataset_count(d); i++) {
        assert_string_equal(lt_dataset_sample_name(d, i), lt_dataset_sample_name(p.data, i));
        check_sides(p.data, d, i, m->config.max_side);
        if (same_sample(p.data, d, i) != m->same)
            fail_msg("%s: the pixels are %s", lt_dataset_sample_name(d, i),
                     m->same ? "different" : "the same");
    }
    lt_dataset_free(&d);
    int64_t samples = 0;
    assert_ok(lt_pack_verify(p.pack, NULL, &samples));
    assert_int_equal(samples, lt_dataset_count(p.data));
    check_manifest(&p, &m->config);
    close_place(&p);
}

static void assert_same_pack(const char *a, const char *b)
{
    static const char *const files[] = {"manifest.json", "shard-00000.pack", "shard-00001.pack",
                                        "shard-00003.pack"};
    for (size_t i = 0; i < COUNT_OF(files); i++) {
        char *p = below(a, files[i]), *q = below(b, files[i]);
        assert_true(temp_same(p, q));
        free(p);
        free(q);
    }
}

static bool stop_at_second(void *context, const lt_pack_report *so_far)
{
    (void)context;
    return so_far->samples < 8;
}

static void check_resume(void **state)
{
    (void)state;
    place p = open_place();
    char *other = below(p.root, "other");
    lt_pack_config c = {.mode = LT_PACK_LOSSLESS, .shard_samples = 4, .threads = 1};
    lt_dataset *d = NULL;
    assert_int_equal(lt_pack_write(p.pack, p.data, &c, stop_at_second, NULL, NULL), LT_END);
    assert_fails(lt_dataset_pack(&d, p.pack), LT_E_IO, "manifest.json");
    struct stat before, after;
    assert_int_equal(stat(p.first, &before), 0);
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL));
    assert_int_equal(stat(p.first, &after), 0);
    assert_true(before.st_ino == after.st_ino); /* not rewritten */
    c.threads = 3;
    assert_ok(lt_pack_write(other, p.data, &c, NULL, NULL, NULL));
    assert_same_pack(p.pack, other);
    c.quality = 50;
    assert_fails(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL), LT_E_ARG, "other settings");
    free(other);
    close_place(&p);
}

static void check_corrupt_images(void **state)
{
    (void)state;
    place p = open_place();
    lt_dataset_free(&p.data);
    write_file(p.root, "a-new-class/broken.jpg", "\xff\xd8\xff nothing", 11);
    write_file(p.root, "a-new-class/text.jpg", "text", 4);
    assert_ok(lt_dataset_folder(&p.data, p.root));
    lt_pack_config c = {.mode = LT_PACK_ORIGINAL, .shard_samples = 1};
    lt_pack_report report;
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, &report));
    assert_int_equal(report.bad, 2);
    char *list = below(p.pack, "bad_images.txt"), *second = below(p.pack, "shard-00001.pack");
    assert_int_equal(unlink(second), 0);
    for (int i = 0; i < 2; i++) { /* the list keeps the entries of existing shards */
        assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, &report));
        assert_int_equal(report.bad, 2);
    }
    free(second);
    char *text = temp_read(list, NULL);
    assert_non_null(strstr(text, "broken.jpg: "));
    assert_non_null(strstr(text, "text.jpg: image: neither"));
    lt_dataset *d = NULL;
    assert_ok(lt_dataset_pack(&d, p.pack));
    assert_int_equal(lt_dataset_count(d), report.samples - 2);
    lt_dataset_free(&d);
    free(text);
    free(list);
    close_place(&p);
}

/* An image that is repaired, or allowed, is packed by the next call. */
static void check_images_that_were_left_out(void **state)
{
    (void)state;
    place p = open_place();
    lt_dataset_free(&p.data);
    write_file(p.root, "a-new-class/broken.jpg", "text", 4);
    assert_ok(lt_dataset_folder(&p.data, p.root));
    lt_pack_config c = {.mode = LT_PACK_ORIGINAL, .shard_samples = 4, .limits.pixels = 1};
    lt_pack_report report;
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, &report));
    assert_int_equal(report.bad, report.samples);
    c.limits.pixels = 0;
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, &report));
    assert_int_equal(report.bad, 1);
    char *list = below(p.pack, "bad_images.txt"), *text = temp_read(list, NULL);
    assert_non_null(strstr(text, "broken.jpg: "));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    run_in(p.root, "cp \"$(find . -name '*.jpg' -size +1 | head -1)\" a-new-class/broken.jpg");
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, &report));
    assert_int_equal(report.bad, 0);
    assert_int_equal(access(list, F_OK), -1);
    free(text);
    free(list);
    close_place(&p);
}

/* A flipped bit is found: in a record when it is read, otherwise when the pack is opened. */
static void check_flipped_bits(void **state)
{
    (void)state;
    place p = open_place();
    lt_pack_config c = {.mode = LT_PACK_ORIGINAL};
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL));
    struct stat info;
    assert_int_equal(stat(p.first, &info), 0);
    int in_record = 0, outside = 0;
    for (long at = 0; at < info.st_size; at += 211) {
        int64_t samples;
        lt_dataset *d = NULL;
        flip_bits(p.first, at, 4);
        assert_int_equal(lt_pack_verify(p.pack, NULL, &samples), LT_E_FORMAT);
        assert_non_null(strstr(lt_error_message(), "shard-00000.pack"));
        assert_int_equal(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL), LT_E_FORMAT);
        assert_non_null(strstr(lt_error_message(), "shard-00000.pack"));
        lt_status st = lt_dataset_pack(&d, p.pack);
        in_record += st == LT_OK;
        outside += st != LT_OK;
        lt_dataset_free(&d);
        flip_bits(p.first, at, 4);
    }
    assert_true(in_record > 5 && outside > 0);
    int64_t samples;
    lt_pack_report again;
    assert_ok(lt_pack_verify(p.pack, NULL, &samples));
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, &again));
    assert_int_equal(again.found, samples);
    assert_int_equal(again.bad, 0);
    close_place(&p);
}

/* test_truncated_files.c reads prefixes of shards. */
static void check_missing_shard(void **state)
{
    (void)state;
    place p = open_place();
    lt_pack_config c = {.mode = LT_PACK_ORIGINAL};
    lt_dataset *d = NULL;
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL));
    assert_int_equal(truncate(p.first, 1000), 0);
    assert_fails(lt_dataset_pack(&d, p.pack), LT_E_FORMAT, "shard-00000.pack");
    assert_int_equal(unlink(p.first), 0);
    assert_fails(lt_dataset_pack(&d, p.pack), LT_E_IO, "shard-00000.pack");
    close_place(&p);
}

static void check_versions(void **state)
{
    (void)state;
    place p = open_place();
    lt_pack_config c = {.mode = LT_PACK_ORIGINAL};
    lt_dataset *d = NULL;
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL));
    flip_bits(p.first, offsetof(lt_pack_header, version), 4); /* 1 becomes 5 */
    assert_fails(lt_dataset_pack(&d, p.pack), LT_E_FORMAT,
                 "shard has version 5, this program reads 1");
    c.max_side = 1 << 20;
    assert_fails(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL), LT_E_ARG,
                 "max_side is 1048576");
    c = (lt_pack_config){.mode = LT_PACK_RESIZED};
    assert_fails(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL), LT_E_ARG, "max_side is 0");
    close_place(&p);
}

static void check_config(void **state)
{
    static const struct {
        lt_pack_config config;
        const char *says;
    } rows[] = {
        {{.mode = (lt_pack_mode)4}, "mode is 4, want 0 .. 3"},
        {{.quality = 101}, "quality is 101, want 1 .. 100"},
        {{.quality = -1}, "quality is -1, want 1 .. 100"},
        {{.shard_samples = -3}, "shard_samples is -3, threads is 0; want 0 or more samples"},
        {{.threads = -2}, "threads is -2; want 0 or more samples, 0 .. "},
    };
    (void)state;
    place p = open_place();
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        assert_fails(lt_pack_write(p.pack, p.data, &rows[i].config, NULL, NULL, NULL), LT_E_ARG,
                     rows[i].says);
    p.data->count = 0;
    assert_fails(lt_pack_write(p.pack, p.data, &rows[0].config, NULL, NULL, NULL), LT_E_ARG,
                 "the data set is empty");
    close_place(&p);
}

/* Overwrites bytes of a shard, from its table on or, if at < 0, from its end, and recomputes the checksums. */
static void forge(const char *path, long at, const void *bytes, size_t size)
{
    size_t all;
    lt_pack_header h;
    char *data = temp_read(path, &all);
    memcpy(&h, data, sizeof h);
    memcpy(data + (at < 0 ? all : h.table) + at, bytes, size);
    h.crc = lt_crc32c(0, data + h.table, all - h.table);
    h.self_crc = lt_crc32c(0, &h, offsetof(lt_pack_header, self_crc));
    memcpy(data, &h, sizeof h);
    temp_write(path, data, all);
    free(data);
}

static void check_forged_shards(void **state)
{
    static const uint64_t far = UINT64_C(1) << 40;
    static const uint32_t other = 1 << 30;
    static const uint16_t encoding = LT_ENCODING_PIXELS + 1;
    static const struct {
        long at;
        const void *bytes;
        size_t size;
        const char *says;
    } rows[] = {
        {-1, "x", 1, "shard-00000.pack: the names are corrupt"},
        {offsetof(lt_pack_entry, offset), &far, sizeof far, "table entry 0 points outside"},
        {sizeof(lt_pack_entry) + offsetof(lt_pack_entry, size), &far, sizeof far,
         "table entry 1 points outside the file"},
        {offsetof(lt_pack_entry, name), &other, sizeof other, "table entry 0 points outside"},
        {offsetof(lt_pack_entry, encoding), &encoding, sizeof encoding, "table entry 0 points"},
        {offsetof(lt_pack_entry, label), &other, sizeof other, "label 1073741824 of "},
    };
    (void)state;
    place p = open_place();
    const lt_pack_config c = {.mode = LT_PACK_ORIGINAL};
    lt_dataset *d = NULL;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        run_in(p.root, "rm -rf pack");
        assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL));
        forge(p.first, rows[i].at, rows[i].bytes, rows[i].size);
        assert_fails(lt_dataset_pack(&d, p.pack), LT_E_FORMAT, rows[i].says);
    }
    flip_bits(p.first, offsetof(lt_pack_header, config_hash), 1);
    assert_fails(lt_dataset_pack(&d, p.pack), LT_E_FORMAT,
                 "the header is corrupt (wrong checksum)");
    close_place(&p);
}

static void check_manifests(void **state)
{
    static const struct {
        const char *manifest, *says;
    } rows[] = {
        {"{\"version\": 2}", "manifest.json: pack has version 2, this program reads 1"},
        {"{\"version\": 1, \"classes\": 0, \"shards\": 1, \"channels\": 3, \"samples\": 1}",
         "got 0 classes, 1 shards, 3 channels; want at least 1 class"},
        {"{\"version\": 1, \"classes\": 2, \"shards\": 0, \"channels\": 3, \"samples\": 1}",
         "got 2 classes, 0 shards, 3 channels"},
        {"{\"version\": 1, \"classes\": 2, \"shards\": 1, \"channels\": 2, \"samples\": 1}",
         "got 2 classes, 1 shards, 2 channels"},
    };
    (void)state;
    char *folder = make_folder();
    lt_dataset *d = NULL;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        write_file(folder, "manifest.json", rows[i].manifest, strlen(rows[i].manifest));
        assert_fails(lt_dataset_pack(&d, folder), LT_E_FORMAT, rows[i].says);
    }
    remove_folder(folder);
}

/* The hashes are right, but an image has more pixels than allowed. */
static void check_verify_limits(void **state)
{
    (void)state;
    place p = open_place();
    const lt_pack_config c = {.mode = LT_PACK_ORIGINAL};
    const lt_image_limits few = {.pixels = 5};
    int64_t samples;
    assert_ok(lt_pack_write(p.pack, p.data, &c, NULL, NULL, NULL));
    assert_fails(lt_pack_verify(p.pack, &few, &samples), LT_E_FORMAT,
                 lt_dataset_sample_name(p.data, 0));
    assert_non_null(strstr(lt_error_message(), ": image: "));
    close_place(&p);
}

int main(void)
{
    enum { MORE = 10 };
    struct CMUnitTest tests[MORE + COUNT_OF(modes)] = {
        row_test("an interrupted call is continued, for any number of threads", check_resume, NULL),
        row_test("corrupt images are left out and listed", check_corrupt_images, NULL),
        row_test("images that were left out are tried again", check_images_that_were_left_out,
                 NULL),
        row_test("flipped bits are found", check_flipped_bits, NULL),
        row_test("a truncated or missing shard", check_missing_shard, NULL),
        row_test("another version, settings out of range", check_versions, NULL),
        row_test("a mode, quality or numbers out of range, no samples", check_config, NULL),
        row_test("a table or names that point outside the shard", check_forged_shards, NULL),
        row_test("a manifest of another version or with impossible numbers", check_manifests, NULL),
        row_test("verification names an image above the limits", check_verify_limits, NULL),
    };
    for (size_t i = 0; i < COUNT_OF(modes); i++)
        tests[MORE + i] = row_test(modes[i].name, check_mode, &modes[i]);
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
