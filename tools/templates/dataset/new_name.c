/* The data set new_name, a plugin: --data new_name:FOLDER reads FOLDER/train.bin and FOLDER/val.bin, whose records
 * are a label byte and then the pixels of an image, plane by plane. To be replaced by your format. */

#include "lather/ext/dataset.h"
#include "lather/plugin.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SIDE = 32,
    CHANNELS = 3,
    CLASSES = 10,
    PIXELS = CHANNELS * SIDE * SIDE,
    RECORD = 1 + PIXELS
};
enum { PATH = 1024 };

typedef struct dataset {
    lt_dataset base;
    int fd;
    char path[PATH];
} dataset;

/* Reads a sample; several threads call it, so it has no file position: pread. */
static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const dataset *d = (const dataset *)self;
    LT_TRY(lt_record_reserve(record, RECORD));
    const ssize_t got = pread(d->fd, record->bytes, RECORD, index * RECORD);
    if (got != RECORD)
        return lt_fail(LT_E_IO, "%s: sample %lld: %s", d->path, (long long)index,
                       got < 0 ? strerror(errno) : "the file has become shorter");
    if (record->bytes[0] >= CLASSES)
        return lt_fail(LT_E_FORMAT, "%s: sample %lld: label %d, the classes are 0 to %d", d->path,
                       (long long)index, record->bytes[0], CLASSES - 1);
    record->label = record->bytes[0];
    memmove(record->bytes, record->bytes + 1, PIXELS);
    record->size = PIXELS;
    record->encoding = LT_ENCODING_PLANES; /* or LT_ENCODING_FILE: the bytes of a JPEG, PNG, ... */
    record->width = record->height = SIDE;
    record->channels = CHANNELS;
    return LT_OK;
}

static void destroy(lt_dataset *self)
{
    close(((dataset *)self)->fd);
}

static const lt_dataset_ops ops = {
    .name = "new_name", .bytes = sizeof(dataset), .read = read_sample, .destroy = destroy};

/* Opens the file of a data set that lt_dataset_free() closes. */
static lt_status open_file(dataset *d)
{
    d->fd = open(d->path, O_RDONLY | O_CLOEXEC);
    const off_t bytes = d->fd < 0 ? -1 : lseek(d->fd, 0, SEEK_END);
    if (bytes < 0)
        return lt_fail(LT_E_IO, "%s: %s", d->path, strerror(errno));
    if (!bytes || bytes % RECORD)
        return lt_fail(LT_E_FORMAT, "%s: %lld bytes are not records of %d", d->path,
                       (long long)bytes, RECORD);
    d->base.count = bytes / RECORD;
    d->base.classes = CLASSES;
    d->base.channels = CHANNELS;
    return LT_OK;
}

static lt_status open_dataset(lt_dataset **out, const char *spec, bool train)
{
    const char *folder = strchr(spec, ':');
    lt_dataset *base = NULL;
    if (!folder || !folder[1])
        return lt_fail(LT_E_ARG, "--data %s: no folder; new_name:FOLDER reads one", spec);
    LT_TRY(lt_dataset_new(&base, &ops));
    dataset *d = (dataset *)base;
    d->fd = -1;
    snprintf(d->path, sizeof d->path, "%s/%s.bin", folder + 1, train ? "train" : "val");
    lt_status st = open_file(d);
    if (st)
        lt_dataset_free(&base);
    else
        *out = base;
    return st;
}

LT_PLUGIN(host)
{
    static const lt_dataset_kind kind = {"new_name:FOLDER", open_dataset};
    return lt_dataset_register(&kind);
}
