/* CIFAR-10's and CIFAR-100's binary files: records of a label byte (CIFAR-100: the superclass, then the class) and 32 x 32
 * pixels, plane by plane. Kept in memory: 184 MB. Source: Krizhevsky, "Learning multiple layers of features from tiny
 * images", 2009, and the page of the data sets. */

#include "base/alloc.h"
#include "base/encoding/json.h"
#include "base/hash.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, MOST_FILES = 5, LABELS = 256 };

typedef struct layout {
    const char *folder, *train[MOST_FILES], *test, *names;
    int label_bytes, classes;
} layout;

static const layout layouts[] = {
    {"cifar-10-batches-bin",
     {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
      "data_batch_5.bin"},
     "test_batch.bin",
     "batches.meta.txt",
     1,
     10},
    {"cifar-100-binary", {"train.bin"}, "test.bin", "fine_label_names.txt", 2, 100},
};

typedef struct cifar {
    lt_dataset base;
    const layout *layout;
    lt_record file[MOST_FILES];
    int64_t first[MOST_FILES]; /* index of the first sample of each file */
    size_t files;
    char *text; /* contents of the file of names, cut into names */
    const char *name[LABELS];
} cifar;

/* Returns the record of a sample: its label bytes, then its pixels. */
static const uint8_t *find_record(const lt_dataset *self, int64_t index)
{
    const cifar *c = (const cifar *)self;
    const size_t i = lt_find_segment(c->first, c->files, index);
    return c->file[i].bytes + (index - c->first[i]) * (c->layout->label_bytes + PIXELS);
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    *label = find_record(self, index)[((const cifar *)self)->layout->label_bytes - 1];
    return LT_OK;
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const int label_bytes = ((const cifar *)self)->layout->label_bytes;
    const uint8_t *from = find_record(self, index);
    LT_TRY(lt_record_reserve(record, PIXELS));
    memcpy(record->bytes, from + label_bytes, PIXELS);
    record->size = PIXELS;
    record->encoding = LT_ENCODING_PLANES;
    record->width = record->height = SIDE;
    record->channels = 3;
    record->label = from[label_bytes - 1];
    return LT_OK;
}

static const char *class_name(const lt_dataset *self, int label)
{
    return ((const cifar *)self)->name[label];
}

static uint64_t fingerprint(const lt_dataset *self, uint64_t hash)
{
    for (int64_t i = 0; i < self->count; i++)
        hash = lt_fnv1a(hash, find_record(self, i),
                        (size_t)((const cifar *)self)->layout->label_bytes);
    return hash;
}

static void destroy(lt_dataset *self)
{
    cifar *c = (cifar *)self;
    for (int i = 0; i < MOST_FILES; i++)
        lt_free(c->file[i].bytes);
    lt_free(c->text);
}

static const lt_dataset_ops ops = {
    .name = "cifar",
    .bytes = sizeof(cifar),
    .read = read_sample,
    .class_name = class_name,
    .fingerprint = fingerprint,
    .label = read_label,
    .destroy = destroy,
};

static lt_status load_file(cifar *c, const char *path)
{
    const size_t bytes = (size_t)c->layout->label_bytes + PIXELS;
    lt_record *file = &c->file[c->files];
    LT_TRY(lt_file_read(path, file));
    if (file->size % bytes)
        return lt_fail(LT_E_FORMAT, "%s: %zu bytes, which are no whole records of %zu: truncated",
                       path, file->size, bytes);
    c->first[c->files++] = c->base.count;
    for (size_t i = 0; i < file->size / bytes; i++) {
        const int label = file->bytes[i * bytes + (size_t)c->layout->label_bytes - 1];
        if (label >= c->layout->classes)
            return lt_fail(LT_E_FORMAT, "%s: sample %zu has label %d, want 0 .. %d", path, i, label,
                           c->layout->classes - 1);
    }
    c->base.count += (int64_t)(file->size / bytes);
    return LT_OK;
}

static lt_status load_names(cifar *c, const char *path)
{
    size_t bytes;
    LT_TRY(lt_json_read_file(path, &c->text, &bytes));
    char *rest = c->text;
    for (int i = 0; i < c->base.classes; i++)
        if (!(c->name[i] = strtok_r(rest, "\r\n", &rest)))
            return lt_fail(LT_E_FORMAT, "%s: %d names of classes, want %d", path, i,
                           c->base.classes);
    return LT_OK;
}

static bool has_file(const char *folder, const char *inner, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s/%s", folder, inner, name) < (int)sizeof path
           && !access(path, F_OK);
}

/* Finds the layout whose files the folder has. *inner: their folder below it, "." or "cifar-10-batches-bin". NULL if
 * absent. */
static const layout *find_layout(const char *folder, const char **inner)
{
    for (size_t i = 0; i < 2 * sizeof layouts / sizeof *layouts; i++) {
        const layout *l = &layouts[i / 2];
        *inner = i % 2 ? l->folder : ".";
        if (has_file(folder, *inner, l->test) && has_file(folder, *inner, l->names))
            return l;
    }
    return NULL;
}

bool lt_has_cifar(const char *folder)
{
    const char *inner;
    return find_layout(folder, &inner);
}

static lt_status load(cifar *c, const char *root, bool train)
{
    const char *const *name = train ? c->layout->train : &c->layout->test;
    const int files = train ? MOST_FILES : 1;
    lt_status st = LT_OK;
    for (int i = 0; i < files && name[i] && !st; i++) {
        char *path = lt_format("%s/%s", root, name[i]);
        st = path ? load_file(c, path) : LT_E_NOMEM;
        lt_free(path);
    }
    char *path = st ? NULL : lt_format("%s/%s", root, c->layout->names);
    if (!st)
        st = path ? load_names(c, path) : LT_E_NOMEM;
    lt_free(path);
    return st;
}

lt_status lt_dataset_cifar(lt_dataset **out, const char *folder, bool train)
{
    lt_dataset *d = NULL;
    const char *inner;
    const layout *l = find_layout(folder, &inner);
    if (!l)
        return lt_fail(LT_E_IO, "%s: no CIFAR files", folder);
    char *root = strcmp(inner, ".") ? lt_format("%s/%s", folder, inner) : lt_strdup(folder);
    lt_status st = root ? lt_dataset_new(&d, &ops) : LT_E_NOMEM;
    if (!st) {
        d->classes = l->classes;
        d->channels = 3;
        ((cifar *)d)->layout = l;
        st = load((cifar *)d, root, train);
    }
    lt_free(root);
    return lt_dataset_set_or_free(out, d, st);
}
