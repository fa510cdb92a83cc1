/* Opens data sets by their names. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"
#include "data/pack/pack.h"

#include "lather/data_service.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    lt_paths tars = {0};
    lt_status st = lt_tar_list(&tars, folder, part);
    if (!st && tars.count)
        st = lt_dataset_tar(out, (const char *const *)tars.path, tars.count);
    lt_free_texts(tars.path, tars.count);
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
