/* Opens data sets by name, or by the contents of a folder. */

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

/* Parses ":NUMBER" and advances *at; false if there is no number or it exceeds most. */
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
        return lt_fail(LT_E_ARG, "data: got '%s', want synthetic:COUNT:SIZE:CLASSES", spec);
    return lt_dataset_synthetic(out, count, (int)size, 3, (int)classes);
}

/* Opens the pack in FOLDER/train (or FOLDER/val), or in FOLDER. Without a manifest *out is unchanged. */
static lt_status open_pack(lt_dataset **out, const char *path, bool train)
{
    bool below = false, here = false;
    char *split = lt_format("%s/%s", path, train ? "train" : "val");
    lt_status st = split ? lt_is_pack(&below, split) : LT_E_NOMEM;
    if (!st)
        st = lt_is_pack(&here, path);
    if (!st && (below || here))
        st = lt_dataset_pack(out, below ? split : path);
    if (!st && here && !below)
        (*out)->unsplit = true;
    lt_free(split);
    return st;
}

/* Opens the tar files of a folder whose names contain part. Without any, *out is unchanged. */
static lt_status open_tar_files(lt_dataset **out, const char *folder, const char *part)
{
    lt_paths tars = {0};
    lt_status st = lt_list_tar_files(&tars, folder, part);
    if (!st && tars.count)
        st = lt_dataset_tar(out, (const char *const *)tars.path, tars.count);
    lt_free_texts(tars.path, tars.count);
    return st;
}

/* Opens FOLDER/train/X.tar or, without any, FOLDER/X-train-1.tar. Without tar files *out is unchanged. */
static lt_status open_tar_folder(lt_dataset **out, const char *path, bool train)
{
    const char *name = train ? "train" : "val";
    char *split = lt_format("%s/%s", path, name);
    lt_status st = split ? LT_OK : LT_E_NOMEM;
    if (!st && lt_is_folder(split))
        st = open_tar_files(out, split, "");
    if (!st && !*out)
        st = open_tar_files(out, path, name);
    lt_free(split);
    return st;
}

/* Returns FOLDER/train or FOLDER/val; if FOLDER/train exists, also FOLDER/valid or FOLDER/validation (otherwise these
 * are class folders). If none exists, the last one tried. lt_free() it. */
static char *find_split(const char *path, bool train)
{
    static const char *const names[] = {"train", "val", "valid", "validation"};
    char *split = lt_format("%s/train", path);
    const int last = train ? 0 : split && lt_is_folder(split) ? 3 : 1;
    for (int i = 1; split && i <= last && (i == 1 || !lt_is_folder(split)); i++) {
        lt_free(split);
        split = lt_format("%s/%s", path, names[i]);
    }
    return split;
}

/* Opens FOLDER/train or FOLDER/val, or FOLDER itself if it has neither. */
static lt_status open_folder(lt_dataset **out, const char *path, bool train)
{
    char *split = find_split(path, train), *other = find_split(path, !train);
    lt_status st = split && other ? LT_OK : LT_E_NOMEM;
    if (!st && lt_is_folder(split))
        st = lt_dataset_folder(out, split);
    else if (!st && lt_is_folder(other))
        st = lt_fail(LT_E_IO, "%s: has a folder %s, but no folder %s", path,
                     strrchr(other, '/') + 1, train ? "train" : "val, valid or validation");
    else if (!st && !(st = lt_dataset_folder(out, path)))
        (*out)->unsplit = true;
    lt_free(split);
    lt_free(other);
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
        return lt_fail(LT_E_ARG, "data: 'service' needs an address: service:tcp://HOST:PORT");
    return lt_dataset_service(out, at + 1, NULL, train);
}

enum { KINDS = 32 };
static const lt_dataset_kind fashion_mnist = {"fashion-mnist", open_fashion_mnist},
                             synthetic = {"synthetic:COUNT:SIZE:CLASSES", open_synthetic},
                             service = {"service:ADDRESS[,ADDRESS]", open_service},
                             *kinds[KINDS] = {&fashion_mnist, &synthetic, &service};

/* Returns the length of the name, such as that of "synthetic" in "synthetic:COUNT". */
static size_t kind_name_length(const char *usage)
{
    return strcspn(usage, ":");
}

/* Returns the kind that spec names, or NULL. Arguments after ':' are accepted if the kind takes any. */
static const lt_dataset_kind *find_kind(const char *spec)
{
    for (int i = 0; i < KINDS && kinds[i]; i++) {
        size_t bytes = kind_name_length(kinds[i]->usage);
        if (!strncmp(spec, kinds[i]->usage, bytes)
            && (!spec[bytes] || (spec[bytes] == ':' && kinds[i]->usage[bytes])))
            return kinds[i];
    }
    return NULL;
}

lt_status lt_dataset_register(const lt_dataset_kind *kind)
{
    int i = 0, bytes = (int)kind_name_length(kind->usage);
    for (; i < KINDS && kinds[i]; i++)
        if (bytes == (int)kind_name_length(kinds[i]->usage)
            && !strncmp(kind->usage, kinds[i]->usage, (size_t)bytes))
            return lt_fail(LT_E_ARG, "data: the name '%.*s' is taken", bytes, kind->usage);
    if (!bytes)
        return lt_fail(LT_E_ARG, "data: '%s' does not begin with a name", kind->usage);
    if (i == KINDS)
        return lt_fail(LT_E_NOMEM, "data: cannot register more than %d kinds", KINDS);
    kinds[i] = kind;
    return LT_OK;
}

static lt_status unknown_dataset_error(const char *spec)
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
    return lt_fail(
        LT_E_IO,
        "data: '%s' is not a folder, a .tar file, %s; other names are those of a --plugin FILE.so",
        spec, names);
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
        return lt_fail(LT_E_IO, "%s: %s", spec,
                       strerror(errno)); /* permission denied, for example */
    if (!lt_is_folder(spec))
        return unknown_dataset_error(spec);
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
