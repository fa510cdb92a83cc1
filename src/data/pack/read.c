/* Reads a pack as a data set. Reads records with pread(): if a shard is truncated or deleted, its records are corrupt
 * images, whereas a mapped file would raise SIGBUS. */

#include "base/alloc.h"
#include "base/encoding/json.h"
#include "data/files/files.h"
#include "data/formats/image.h"
#include "data/pack/pack.h"

#include "lather/detail/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct shard_file {
    lt_pack_shard shard;
    char *path;
} shard_file;

typedef struct pack {
    lt_dataset base;
    shard_file *file;
    int64_t *first; /* [files] index of the first sample of each shard */
    size_t files;
    char **class_names; /* [classes]; an element is NULL if the class has no name */
} pack;

/* Returns the record's table entry and sets *of to its shard. */
static const lt_pack_entry *find_entry(const lt_dataset *self, int64_t index, const shard_file **of)
{
    const pack *p = (const pack *)self;
    size_t i = lt_find_segment(p->first, p->files, index);
    *of = &p->file[i];
    return &p->file[i].shard.entry[index - p->first[i]];
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const shard_file *p;
    const lt_pack_entry *e = find_entry(self, index, &p);
    LT_TRY(lt_file_read_range(p->path, e->offset, e->size, record));
    if (lt_hash64(record->bytes, record->size) != e->hash)
        return lt_fail(LT_E_FORMAT, "%s: the record of %s is corrupt (wrong hash)", p->path,
                       p->shard.text + e->name);
    record->encoding = (lt_encoding)e->encoding;
    record->label = (int32_t)e->label;
    record->width = (int32_t)e->width;
    record->height = (int32_t)e->height;
    record->channels = e->channels;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    const shard_file *p;
    const lt_pack_entry *e = find_entry(self, index, &p);
    return p->shard.text + e->name;
}

static const char *class_name(const lt_dataset *self, int label)
{
    const pack *p = (const pack *)self;
    return p->class_names ? p->class_names[label] : NULL;
}

static void read_ahead(const lt_dataset *self, int64_t index)
{
    const shard_file *p;
    const lt_pack_entry *e = find_entry(self, index, &p);
    lt_file_read_ahead(p->path, e->offset, e->size);
}

static void destroy(lt_dataset *self)
{
    pack *p = (pack *)self;
    for (size_t i = 0; p->file && i < p->files; i++) {
        lt_pack_shard_clear(&p->file[i].shard);
        lt_free(p->file[i].path);
    }
    lt_free_texts(p->class_names, (size_t)self->classes);
    lt_free(p->file);
    lt_free(p->first);
}

/* Returns the total size of the image files; 0 for packs of decoded pixels, where it is unknown. */
static int64_t bytes_of_files(const lt_dataset *self)
{
    const pack *p = (const pack *)self;
    int64_t bytes = 0;
    for (size_t i = 0; i < p->files; i++)
        for (size_t k = 0; k < p->file[i].shard.count; k++) {
            if (p->file[i].shard.entry[k].encoding == LT_ENCODING_PIXELS)
                return 0;
            bytes += (int64_t)p->file[i].shard.entry[k].size;
        }
    return bytes;
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    const shard_file *p;
    *label = (int)find_entry(self, index, &p)->label;
    return LT_OK;
}

static const lt_dataset_ops ops = {
    .name = "pack",
    .bytes = sizeof(pack),
    .read = read_sample,
    .ahead = read_ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .bytes_of_files = bytes_of_files,
    .label = read_label,
    .destroy = destroy,
};

static lt_status read_class_names(pack *p, const lt_json_value *list, const char *path)
{
    if (!list || list->type != LT_JSON_ARRAY || list->count != (size_t)p->base.classes)
        return lt_fail(LT_E_FORMAT, "%s: class_names must be a list of %d names", path,
                       (int)p->base.classes);
    LT_TRY(LT_ALLOC(&p->class_names, list->count));
    size_t i = 0;
    for (const lt_json_value *v = list->child; v; v = v->next, i++) {
        if (v->type != LT_JSON_STRING)
            continue;
        p->class_names[i] = lt_strdup(v->string);
        if (!p->class_names[i])
            return LT_E_NOMEM;
        if (lt_text_unescape(p->class_names[i],
                             v->string)) /* earlier versions did not escape names */
            snprintf(p->class_names[i], strlen(v->string) + 1, "%s", v->string);
    }
    return LT_OK;
}

static lt_status read_fields(pack *p, const lt_json_value *m, const char *path, int64_t *samples,
                             int64_t *count)
{
    int64_t version = 0, classes = 0, shards = 0, channels = 0;
    LT_TRY(lt_json_integer(m, "version", &version));
    if (version != LT_PACK_VERSION)
        return lt_fail(LT_E_FORMAT, "%s: pack has version %" PRId64 ", this program reads %d", path,
                       version, LT_PACK_VERSION);
    LT_TRY(lt_json_integer(m, "classes", &classes));
    LT_TRY(lt_json_integer(m, "shards", &shards));
    LT_TRY(lt_json_integer(m, "channels", &channels));
    LT_TRY(lt_json_integer(m, "samples", samples));
    if (classes < 1 || classes > INT32_MAX || shards < 1 || shards > INT32_MAX
        || (channels != 1 && channels != 3))
        return lt_fail(LT_E_FORMAT,
                       "%s: got %" PRId64 " classes, %" PRId64 " shards, %" PRId64
                       " channels; want at least 1 class and 1 shard, 1 or 3 channels",
                       path, classes, shards, channels);
    p->base.classes = (int32_t)classes;
    p->base.channels = (int32_t)channels;
    *count = shards;
    return read_class_names(p, lt_json_member(m, "class_names"), path);
}

lt_status lt_is_pack(bool *out, const char *folder)
{
    char *path = lt_format("%s/manifest.json", folder);
    if (!path)
        return LT_E_NOMEM;
    *out = !access(path, F_OK);
    lt_free(path);
    return LT_OK;
}

static lt_status read_manifest(pack *p, const char *folder, int64_t *samples, int64_t *shards)
{
    char *path = lt_format("%s/manifest.json", folder);
    lt_json *json = NULL;
    lt_status st = path ? lt_json_load(&json, path) : LT_E_NOMEM;
    if (!st)
        st = read_fields(p, lt_json_root(json), path, samples, shards);
    lt_json_free(&json);
    lt_free(path);
    return st;
}

/* Opens the next shard. Arrays grow shard by shard, because a manifest may claim any number. */
static lt_status open_shard(pack *p, size_t *capacity, const char *folder)
{
    size_t i = p->files, first_capacity = *capacity;
    LT_TRY(LT_GROW(&p->file, capacity, i + 1));
    LT_TRY(LT_GROW(&p->first, &first_capacity, i + 1));
    shard_file *t = &p->file[i];
    *t = (shard_file){0};
    p->files++;
    t->path = lt_pack_shard_path(folder, (int64_t)i);
    if (!t->path)
        return LT_E_NOMEM;
    LT_TRY(lt_pack_shard_load(&t->shard, t->path, 0));
    p->first[i] = p->base.count;
    p->base.count += (int64_t)t->shard.count;
    for (size_t k = 0; k < t->shard.count; k++)
        if (t->shard.entry[k].label >= (uint32_t)p->base.classes)
            return lt_fail(LT_E_FORMAT, "%s: label %u of %s, but the pack has %d classes", t->path,
                           t->shard.entry[k].label, t->shard.text + t->shard.entry[k].name,
                           (int)p->base.classes);
    return LT_OK;
}

static lt_status open_pack(pack *p, const char *folder)
{
    int64_t samples = 0, shards = 0;
    size_t capacity = 0;
    LT_TRY(read_manifest(p, folder, &samples, &shards));
    for (int64_t i = 0; i < shards; i++)
        LT_TRY(open_shard(p, &capacity, folder));
    if (p->base.count != samples || !samples)
        return lt_fail(LT_E_FORMAT,
                       "%s: %" PRId64 " samples in the shards, %" PRId64 " in manifest.json",
                       folder, p->base.count, samples);
    return LT_OK;
}

lt_status lt_dataset_pack(lt_dataset **out, const char *folder)
{
    if (!lt_has_xxhash())
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: packs need xxHash, which this build lacks (meson option 'xxhash')",
                       folder);
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    return lt_dataset_set_or_free(out, d, open_pack((pack *)d, folder));
}

static lt_status verify_all(const lt_dataset *d, const lt_image_limits *limits)
{
    lt_record record = {0};
    lt_image image = {0};
    lt_status st = LT_OK;
    for (int64_t i = 0; i < d->count && !st; i++) {
        lt_window w = {0};
        st = read_sample(d, i, &record);
        if (st || record.encoding != LT_ENCODING_FILE)
            continue;
        st = lt_image_size(record.bytes, record.size, limits, &w.width, &w.height);
        if (!st)
            st = lt_image_decode(record.bytes, record.size, limits, lt_dataset_channels(d), w,
                                 &image);
        if (st)
            st = lt_fail(st, "%s: %s", sample_name(d, i), lt_error_message());
    }
    lt_image_clear(&image);
    lt_free(record.bytes);
    return st;
}

lt_status lt_pack_verify(const char *folder, const lt_image_limits *limits, int64_t *samples)
{
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_pack(&d, folder));
    lt_status st = verify_all(d, limits);
    *samples = d->count;
    lt_dataset_free(&d);
    return st;
}
