/* Opens data sets by name, or by the contents of a folder. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"
#include "data/pack/pack.h"

#include "lather/data_service.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* --- Parts of a folder --- */

typedef enum part_kind { ABSENT, PACK, TAR_FILES, CLASS_FOLDERS, MNIST, CIFAR } part_kind;

/* The part of a data set to train on, or to evaluate. */
typedef struct part {
    part_kind kind;
    bool train;
    char *folder;     /* its own folder, or that of the whole data set; owned */
    const char *name; /* text that the names of its tar files contain */
} part;

/* Lists the tar files of the part. Those to train on are never validation data: "train-val.tar". */
static lt_status list_tar_files(lt_paths *tars, const char *folder, const char *name, bool train)
{
    size_t kept = 0;
    LT_TRY(lt_list_tar_files(tars, folder, name));
    for (size_t i = 0; i < tars->count; i++)
        if (*name && !train && strstr(strrchr(tars->path[i], '/'), "train"))
            lt_free(tars->path[i]);
        else
            tars->path[kept++] = tars->path[i];
    tars->count = kept;
    return LT_OK;
}

static lt_status find_tar_files(part *p, const char *folder, const char *name)
{
    lt_paths tars = {0};
    lt_status st = list_tar_files(&tars, folder, name, p->train);
    if (!st && tars.count) {
        p->kind = TAR_FILES;
        p->name = name;
    }
    lt_free_texts(tars.path, tars.count);
    return st;
}

/* Returns true if a folder has a folder in it. A test/ without any has images without labels. */
static bool has_folder(const char *path)
{
    bool found = false;
    DIR *dir = opendir(path);
    for (struct dirent *d; dir && !found && (d = readdir(dir));) {
        char *below = lt_is_hidden(d->d_name) || d->d_name[0] == '.'
                          ? NULL
                          : lt_format("%s/%s", path, d->d_name);
        found = below && lt_is_folder(below);
        lt_free(below);
    }
    if (dir)
        closedir(dir);
    return found;
}

/* Finds the part in FOLDER/NAME, or in tar files FOLDER/...NAME.... */
static lt_status find_named(part *p, const char *path, const char *name)
{
    bool is_pack = false;
    lt_status st = LT_OK;
    lt_free(p->folder);
    if (!(p->folder = lt_format("%s/%s", path, name)))
        return LT_E_NOMEM;
    const bool is_folder = lt_is_folder(p->folder);
    if (is_folder)
        st = lt_is_pack(&is_pack, p->folder);
    if (!st && is_pack)
        p->kind = PACK;
    else if (!st && is_folder)
        st = find_tar_files(p, p->folder, "");
    if (st || p->kind)
        return st;
    LT_TRY(find_tar_files(p, path, name));
    if (!p->kind && is_folder && (strcmp(name, "test") != 0 || has_folder(p->folder)))
        p->kind = CLASS_FOLDERS;
    if (p->kind == TAR_FILES) {
        lt_free(p->folder);
        p->folder = lt_strdup(path);
    }
    return p->folder ? LT_OK : LT_E_NOMEM;
}

/* Finds a part of the data set in a folder: the part's kind is ABSENT if it has none. Without a part to train on, only
 * "val" is a part's name: the others may be class folders. */
static lt_status find_part(part *p, const char *path, const part *train)
{
    static const char *const val_names[] = {"val", "valid", "validation", "test"};
    const size_t names = train && train->kind ? sizeof val_names / sizeof *val_names : 1;
    bool mnist = false;
    p->train = !train;
    for (size_t i = 0; i < names && !p->kind; i++)
        LT_TRY(find_named(p, path, train ? val_names[i] : "train"));
    if (p->kind)
        return LT_OK;
    LT_TRY(lt_has_mnist(&mnist, path, p->train));
    p->kind = mnist ? MNIST : lt_has_cifar(path) ? CIFAR : ABSENT;
    lt_free(p->folder);
    p->folder = lt_strdup(path);
    return p->folder ? LT_OK : LT_E_NOMEM;
}

static lt_status open_tar_files(lt_dataset **out, const part *p)
{
    lt_paths tars = {0};
    lt_status st = list_tar_files(&tars, p->folder, p->name, p->train);
    if (!st)
        st = lt_dataset_tar(out, (const char *const *)tars.path, tars.count);
    lt_free_texts(tars.path, tars.count);
    return st;
}

static lt_status open_part(lt_dataset **out, const part *p)
{
    switch (p->kind) {
    case PACK:
        return lt_dataset_pack(out, p->folder);
    case TAR_FILES:
        return open_tar_files(out, p);
    case MNIST:
        return lt_dataset_mnist(out, p->folder, p->train);
    case CIFAR:
        return lt_dataset_cifar(out, p->folder, p->train);
    case CLASS_FOLDERS:
    case ABSENT:
        break;
    }
    return lt_dataset_folder(out, p->folder);
}

/* Returns true if the folder is that of CIFAR's Python version, or has one. */
static bool has_pickles(const char *path)
{
    static const char *const names[] = {"data_batch_1", "cifar-10-batches-py", "cifar-100-python"};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) {
        char name[PATH_MAX];
        found = snprintf(name, sizeof name, "%s/%s", path, names[i]) < (int)sizeof name
                && !access(name, F_OK);
    }
    return found;
}

/* Opens a folder that is one data set without parts: a pack, or class folders. */
static lt_status open_whole(lt_dataset **out, const char *path)
{
    bool is_pack = false;
    LT_TRY(lt_is_pack(&is_pack, path));
    if (!is_pack && has_pickles(path))
        return lt_fail(LT_E_UNSUPPORTED,
                       "%s: CIFAR's Python version, whose pickles are not read; unpack the binary "
                       "version, cifar-10-binary.tar.gz or cifar-100-binary.tar.gz, instead",
                       path);
    LT_TRY(is_pack ? lt_dataset_pack(out, path) : lt_dataset_folder(out, path));
    (*out)->unsplit = true;
    return LT_OK;
}

/* Opens a part; without a part to evaluate, that to train on. */
static lt_status open_train_or_val(lt_dataset **out, const char *path, bool train,
                                   const part *parts)
{
    const part *own = train ? &parts[0] : &parts[1];
    if (!parts[0].kind && !parts[1].kind)
        return open_whole(out, path);
    if (!own->kind && train)
        return lt_fail(LT_E_IO, "%s: has a part val, but no folder or tar files train", path);
    LT_TRY(open_part(out, own->kind ? own : &parts[0]));
    (*out)->unsplit = !parts[1].kind;
    return LT_OK;
}

static lt_status open_folder(lt_dataset **out, const char *path, bool train)
{
    part parts[2] = {{.kind = ABSENT}};
    lt_status st = find_part(&parts[0], path, NULL);
    if (!st)
        st = find_part(&parts[1], path, &parts[0]);
    if (!st)
        st = open_train_or_val(out, path, train, parts);
    lt_free(parts[0].folder);
    lt_free(parts[1].folder);
    return st;
}

/* --- Names --- */

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
    lt_left_out file = {0};
    lt_left_out_add_file(&file, spec);
    LT_TRY(lt_left_out_check_parquet(&file, spec, LT_OK));
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
    return open_folder(out, spec, train);
}
