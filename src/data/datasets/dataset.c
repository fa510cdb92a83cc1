/* Functions of all data sets: construction, getters, and opening one by its name. */

#include "lather/ext/dataset.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "data/cache/disk_cache.h"
#include "data/datasets/datasets.h"
#include "data/datasets/tar.h"
#include "data/files/files.h"
#include "data/formats/image.h"
#include "data/pack/pack.h"

#include "lather/data_service.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

lt_status lt_record_reserve(lt_record *record, size_t bytes)
{
    if (record->bytes && record->capacity >= bytes)
        return LT_OK;
    lt_free(record->bytes);
    *record = (lt_record){.epoch_key = record->epoch_key};
    record->bytes = lt_alloc(bytes + LT_IMAGE_SPARE, 1);
    if (!record->bytes)
        return LT_E_NOMEM;
    record->capacity = bytes;
    return LT_OK;
}

lt_status lt_dataset_new(lt_dataset **out, const lt_dataset_ops *ops)
{
    LT_ASSERT(ops->bytes >= sizeof(lt_dataset) && ops->read);
    lt_dataset *d = lt_alloc(1, ops->bytes);
    if (!d)
        return LT_E_NOMEM;
    d->ops = ops;
    *out = d;
    return LT_OK;
}

void lt_dataset_free(lt_dataset **dataset)
{
    lt_dataset *d = *dataset;
    *dataset = NULL;
    if (!d)
        return;
    for (int32_t i = 0; i < d->map_classes; i++)
        lt_free(d->map_name[i]);
    lt_free(d->map_name);
    lt_free(d->label_map);
    lt_disk_cache_free(&d->disk_cache); /* first: its thread reads paths that the data set owns */
    if (d->ops->destroy)
        d->ops->destroy(d);
    lt_free(d);
}

lt_status lt_dataset_cache(lt_dataset *dataset, const char *folder)
{
    if (!dataset->ops->shards)
        return lt_fail(LT_E_UNSUPPORTED, "data: a data set '%s' has no files to keep copies of",
                       dataset->ops->name);
    lt_disk_cache_free(&dataset->disk_cache);
    return lt_disk_cache_new(&dataset->disk_cache, folder, dataset->ops->shards(dataset));
}

lt_status lt_dataset_cache_limit(lt_dataset *dataset, int64_t bytes)
{
    if (!dataset->disk_cache || bytes < 0)
        return lt_fail(LT_E_ARG, "data: a limit of %lld bytes for %s", (long long)bytes,
                       dataset->disk_cache ? "a disk cache" : "a data set without disk cache");
    lt_disk_cache_limit(dataset->disk_cache, bytes);
    return LT_OK;
}

int64_t lt_dataset_count(const lt_dataset *dataset)
{
    return dataset->count;
}

int lt_dataset_classes(const lt_dataset *dataset)
{
    return dataset->label_map ? dataset->map_classes : dataset->classes;
}

lt_shape lt_dataset_shape(const lt_dataset *dataset)
{
    return dataset->shape;
}

int lt_dataset_channels(const lt_dataset *dataset)
{
    return dataset->channels ? dataset->channels : 3;
}

const char *lt_dataset_class_name(const lt_dataset *dataset, int label)
{
    if (label < 0 || label >= lt_dataset_classes(dataset))
        return NULL;
    if (dataset->label_map)
        return dataset->map_name[label];
    if (!dataset->ops->class_name)
        return NULL;
    return dataset->ops->class_name(dataset, label);
}

const char *lt_dataset_sample_name(const lt_dataset *dataset, int64_t index)
{
    if (!dataset->ops->sample_name || index < 0 || index >= dataset->count)
        return NULL;
    return dataset->ops->sample_name(dataset, index);
}

uint64_t lt_dataset_fingerprint(const lt_dataset *d)
{
    const int64_t numbers[] = {d->count, d->classes};
    const bool has_names = !d->tokens && lt_dataset_sample_name(d, 0);
    uint64_t hash = lt_fnv1a(LT_FNV1A_BEGIN, numbers, sizeof numbers);
    /* The data's own names of classes, not those of a model that it is mapped to. */
    for (int i = 0; i < d->classes && d->ops->class_name && d->ops->class_name(d, i); i++)
        hash = lt_fnv1a_text(lt_fnv1a(hash, "", 1), d->ops->class_name(d, i));
    for (int64_t i = 0; has_names && i < d->count; i++) {
        const char *name = lt_dataset_sample_name(d, i), *slash = name ? strrchr(name, '/') : NULL;
        hash = lt_fnv1a_text(hash, slash ? slash + 1 : name ? name : "");
    }
    if (!has_names && d->ops->fingerprint)
        hash = d->ops->fingerprint(d, hash);
    return hash ? hash : 1;
}

int64_t lt_dataset_bytes(const lt_dataset *dataset)
{
    return dataset->ops->bytes_of_files ? dataset->ops->bytes_of_files(dataset) : 0;
}

/* Parses ":NUMBER" and advances *at; false: no number, or above most. */
static bool read_number(const char **at, int64_t most, int64_t *out)
{
    char *end;
    if (**at != ':' || (*at)[1] < '0' || (*at)[1] > '9')
        return false;
    errno = 0;
    long long value = strtoll(*at + 1, &end, 10);
    *at = end;
    *out = value;
    return !errno && value <= most;
}

static lt_status open_synthetic(lt_dataset **out, const char *spec, bool train)
{
    int64_t count = 1024, size = 224, classes = 1000;
    const char *at = spec + strlen("synthetic");
    (void)train;
    if (*at
        && !(read_number(&at, INT64_MAX, &count) && read_number(&at, INT_MAX, &size)
             && read_number(&at, INT_MAX, &classes) && !*at))
        return lt_fail(LT_E_ARG, "data: '%s' is not synthetic:COUNT:SIZE:CLASSES", spec);
    return lt_dataset_synthetic(out, count, (int)size, 3, (int)classes);
}

/* A pack in FOLDER/train, or in FOLDER; no manifest: *out stays as it is. */
static lt_status open_pack(lt_dataset **out, const char *path, bool train)
{
    bool below = false, here = false;
    char *part = lt_format("%s/%s", path, train ? "train" : "val");
    lt_status st = part ? lt_is_pack(&below, part) : LT_E_NOMEM;
    if (!st)
        st = lt_is_pack(&here, path);
    if (!st && (below || here))
        st = lt_dataset_pack(out, below ? part : path);
    if (!st && here && !below)
        (*out)->unsplit = true;
    lt_free(part);
    return st;
}

/* The tar files of a folder with part in their names; none: *out stays as it is. */
static lt_status open_shards(lt_dataset **out, const char *folder, const char *part)
{
    char **path = NULL;
    size_t count = 0;
    LT_TRY(lt_tar_list(&path, &count, folder, part));
    lt_status st = count ? lt_dataset_tar(out, (const char *const *)path, count) : LT_OK;
    for (size_t i = 0; i < count; i++)
        lt_free(path[i]);
    lt_free(path);
    return st;
}

/* FOLDER/train/X.tar, or FOLDER/X-train-1.tar; no tar file: *out stays as it is. */
static lt_status open_tar_folder(lt_dataset **out, const char *path, bool train)
{
    const char *want = train ? "train" : "val";
    lt_dataset *found = NULL;
    char *part = lt_format("%s/%s", path, want);
    lt_status st = part ? LT_OK : LT_E_NOMEM;
    if (!st && lt_is_folder(part))
        st = open_shards(&found, part, "");
    if (!st && !found)
        st = open_shards(&found, path, want);
    lt_free(part);
    if (found)
        *out = found;
    return st;
}

/* FOLDER/train; or FOLDER/val, which next to FOLDER/train may be named valid or validation (without train they are classes). The last
 * name tried if there is no such folder; lt_free() it. */
static char *find_part(const char *path, bool train)
{
    static const char *const names[] = {"train", "val", "valid", "validation"};
    char *part = lt_format("%s/train", path);
    const int last = train ? 0 : part && lt_is_folder(part) ? 3 : 1;
    for (int i = 1; part && i <= last && (i == 1 || !lt_is_folder(part)); i++) {
        lt_free(part);
        part = lt_format("%s/%s", path, names[i]);
    }
    return part;
}

/* FOLDER/train or FOLDER/val, or FOLDER if it has neither. */
static lt_status open_folder(lt_dataset **out, const char *path, bool train)
{
    char *part = find_part(path, train), *rest = find_part(path, !train);
    lt_status st = part && rest ? LT_OK : LT_E_NOMEM;
    if (!st && lt_is_folder(part))
        st = lt_dataset_folder(out, part);
    else if (!st && lt_is_folder(rest))
        st = lt_fail(LT_E_IO, "%s: it has a folder %s, but none named %s", path,
                     strrchr(rest, '/') + 1, train ? "train" : "val, valid or validation");
    else if (!st && !(st = lt_dataset_folder(out, path)))
        (*out)->unsplit = true;
    lt_free(part);
    lt_free(rest);
    return st;
}

static lt_status open_fashion_mnist(lt_dataset **out, const char *spec, bool train)
{
    (void)spec;
    return lt_dataset_fashion_mnist(out, train);
}

static lt_status open_service(lt_dataset **out, const char *spec, bool train)
{
    const char *at = strchr(spec, ':');
    if (!at)
        return lt_fail(LT_E_ARG, "data: 'service' without an address: service:tcp://HOST:PORT");
    return lt_dataset_service(out, at + 1, NULL, train);
}

enum { KINDS = 32 };
static const lt_dataset_kind fashion_mnist = {"fashion-mnist", open_fashion_mnist},
                             synthetic = {"synthetic:COUNT:SIZE:CLASSES", open_synthetic},
                             service = {"service:ADDRESS[,ADDRESS]", open_service},
                             *kinds[KINDS] = {&fashion_mnist, &synthetic, &service};

/* Bytes of "synthetic" in "synthetic:COUNT". */
static size_t name_bytes(const char *usage)
{
    return strcspn(usage, ":");
}

/* The kind that spec names, with or without arguments, if it takes some. */
static const lt_dataset_kind *find_kind(const char *spec)
{
    for (int i = 0; i < KINDS && kinds[i]; i++) {
        size_t bytes = name_bytes(kinds[i]->usage);
        if (!strncmp(spec, kinds[i]->usage, bytes)
            && (!spec[bytes] || (spec[bytes] == ':' && kinds[i]->usage[bytes])))
            return kinds[i];
    }
    return NULL;
}

lt_status lt_dataset_register(const lt_dataset_kind *kind)
{
    int i = 0, bytes = (int)name_bytes(kind->usage);
    for (; i < KINDS && kinds[i]; i++)
        if (bytes == (int)name_bytes(kinds[i]->usage)
            && !strncmp(kind->usage, kinds[i]->usage, (size_t)bytes))
            return lt_fail(LT_E_ARG, "data: the name '%.*s' is taken", bytes, kind->usage);
    if (!bytes)
        return lt_fail(LT_E_ARG, "data: '%s' begins with no name", kind->usage);
    if (i == KINDS)
        return lt_fail(LT_E_NOMEM, "data: %d kinds are registered, which is the most", KINDS);
    kinds[i] = kind;
    return LT_OK;
}

static lt_status unknown(const char *spec)
{
    char names[1024] = "";
    size_t used = 0;
    for (int i = 0; i < KINDS && kinds[i] && used < sizeof names; i++) {
        bool last = i + 1 == KINDS || !kinds[i + 1];
        used += (size_t)snprintf(names + used, sizeof names - used, "%s'%s'",
                                 !i     ? ""
                                 : last ? " or "
                                        : ", ",
                                 kinds[i]->usage);
    }
    return lt_fail(LT_E_IO, "data: '%s' is no folder, no .tar file, nor %s", spec, names);
}

lt_status lt_dataset_open(lt_dataset **out, const char *spec, bool train)
{
    const lt_dataset_kind *kind = find_kind(spec);
    if (kind)
        return kind->open(out, spec, train);
    if (lt_is_tar(spec)) {
        LT_TRY(lt_dataset_tar(out, &spec, 1));
        (*out)->unsplit = true;
        return LT_OK;
    }
    if (!lt_is_folder(spec) && errno && errno != ENOENT && errno != ENOTDIR)
        return lt_fail(LT_E_IO, "%s: %s", spec, strerror(errno)); /* not permitted, for one */
    if (!lt_is_folder(spec))
        return unknown(spec);
    bool mnist = false;
    lt_dataset *found = NULL;
    LT_TRY(open_pack(&found, spec, train));
    if (!found)
        LT_TRY(open_tar_folder(&found, spec, train));
    if (found) {
        *out = found;
        return LT_OK;
    }
    LT_TRY(lt_has_mnist(&mnist, spec, train));
    return mnist ? lt_dataset_mnist(out, spec, train) : open_folder(out, spec, train);
}

lt_status lt_dataset_side(const lt_dataset *dataset, int *side)
{
    const lt_image_limits any = {.pixels = INT64_MAX}; /* only the header is read */
    lt_record record = {0};
    int32_t width = 0, height = 0;
    *side = 0;
    if (!dataset->count)
        return LT_OK;
    lt_status st = dataset->ops->read(dataset, 0, &record);
    if (!st && record.encoding == LT_ENCODING_FILE) {
        if (lt_image_size(record.bytes, record.size, &any, &width, &height))
            width = height = 0; /* a broken image has no size; the loader reports it */
    } else if (!st) {
        width = record.width;
        height = record.height;
    }
    lt_free(record.bytes);
    *side = width < height ? width : height;
    return st;
}
