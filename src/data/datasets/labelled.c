/* Pictures of one folder, without class folders, and a file that says what each of them shows: ImageNet's
 * validation pictures as they are distributed. Samples are ordered by class, then by name, as if they lay
 * in class folders. */

#include "base/alloc.h"
#include "data/cache/store.h"
#include "data/datasets/datasets.h"
#include "data/datasets/labels.h"
#include "data/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

typedef struct picture {
    char *name; /* owned */
    int32_t label;
} picture;

typedef struct labelled {
    lt_dataset base;
    char *folder;
    picture *picture;
    size_t pictures, capacity;
    char **path; /* [count] */
    char **kind; /* [classes]; NULL: they have no names */
} labelled;

/* --- Pictures --- */

static lt_status add_picture(labelled *l, const char *name)
{
    picture *grown = lt_grow(l->picture, &l->capacity, l->pictures + 1, sizeof *l->picture);
    if (!grown)
        return LT_E_NOMEM;
    l->picture = grown;
    grown[l->pictures] = (picture){.name = lt_strdup(name), .label = -1};
    return grown[l->pictures++].name ? LT_OK : LT_E_NOMEM;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const picture *)a)->name, ((const picture *)b)->name);
}

static lt_status list_pictures(labelled *l)
{
    lt_status st = LT_OK;
    lt_left_out left_out = {0};
    DIR *dir = opendir(l->folder);
    if (!dir)
        return lt_fail(LT_E_IO, "%s: %s", l->folder, strerror(errno));
    const struct dirent *d;
    while (!st && (errno = 0, d = readdir(dir)))
        if (d->d_name[0] != '.' && lt_is_picture(strrchr(d->d_name, '.')))
            st = add_picture(l, d->d_name);
        else if (d->d_name[0] != '.' && d->d_type != DT_DIR)
            lt_left_out_add(&left_out, d->d_name);
    if (!st && errno)
        st = lt_fail(LT_E_IO, "%s: %s", l->folder, strerror(errno));
    closedir(dir);
    lt_left_out_tell(&left_out, l->folder);
    if (!st && !l->pictures)
        st = lt_fail(LT_E_FORMAT, "%s: no " LT_PICTURE_NAMES " file in it", l->folder);
    if (!st)
        qsort(l->picture, l->pictures, sizeof *l->picture, compare_names);
    return st;
}

/* By its name, or by the last part of a path. */
static picture *find_picture(const labelled *l, char *file)
{
    char *slash = strrchr(file, '/');
    const picture key = {.name = slash ? slash + 1 : file};
    return bsearch(&key, l->picture, l->pictures, sizeof *l->picture, compare_names);
}

static lt_status assign(labelled *l, const lt_labels *labels, const char *path)
{
    for (size_t i = 0; i < labels->count; i++) {
        const lt_label *at = &labels->line[i];
        picture *p = at->file ? find_picture(l, at->file) : &l->picture[i];
        if (!p)
            return lt_fail(LT_E_FORMAT, "%s:%d: %s has no picture '%s'", path, at->number,
                           l->folder, at->file);
        if (p->label >= 0)
            return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is there twice", path, at->number, p->name);
        p->label = at->label;
    }
    for (size_t i = 0; i < l->pictures; i++)
        if (l->picture[i].label < 0)
            return lt_fail(LT_E_FORMAT, "%s: no label for %s/%s", path, l->folder,
                           l->picture[i].name);
    return LT_OK;
}

static int by_class_then_name(const void *a, const void *b)
{
    const picture *x = a, *y = b;
    int order = (x->label > y->label) - (x->label < y->label);
    return order ? order : strcmp(x->name, y->name);
}

static lt_status name_samples(labelled *l)
{
    qsort(l->picture, l->pictures, sizeof *l->picture, by_class_then_name);
    l->path = lt_alloc(l->pictures, sizeof *l->path);
    if (!l->path)
        return LT_E_NOMEM;
    for (size_t i = 0; i < l->pictures; i++)
        if (!(l->path[i] = lt_format("%s/%s", l->folder, l->picture[i].name)))
            return LT_E_NOMEM;
    return LT_OK;
}

static lt_status name_classes(labelled *l, const char *const *name)
{
    l->kind = lt_alloc((size_t)l->base.classes, sizeof *l->kind);
    if (!l->kind)
        return LT_E_NOMEM;
    for (int32_t i = 0; i < l->base.classes; i++)
        if (name[i] && !(l->kind[i] = lt_strdup(name[i])))
            return LT_E_NOMEM;
    return LT_OK;
}

static lt_status label_all(labelled *l, const char *path, const char *const *name, int classes)
{
    lt_labels labels = {0};
    LT_TRY(list_pictures(l));
    LT_TRY(lt_labels_read(&labels, path, name, classes));
    lt_status st = LT_OK;
    if (!labels.line[0].file && labels.count != l->pictures)
        st = lt_fail(LT_E_FORMAT, "%s: %zu labels, %s holds %zu pictures", path, labels.count,
                     l->folder, l->pictures);
    if (!st)
        st = assign(l, &labels, path);
    lt_labels_clear(&labels);
    LT_TRY(st);
    LT_TRY(name_samples(l));
    l->base.count = (int64_t)l->pictures;
    l->base.channels = 3;
    l->base.classes = classes ? classes : l->picture[l->pictures - 1].label + 1;
    return name && classes ? name_classes(l, name) : LT_OK;
}

/* --- The data set --- */

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const labelled *l = (const labelled *)self;
    LT_TRY(lt_store_read(self->store, l->path[index], record));
    record->encoding = LT_ENCODING_FILE;
    record->label = l->picture[index].label;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    return ((const labelled *)self)->path[index];
}

static const char *class_name(const lt_dataset *self, int label)
{
    const labelled *l = (const labelled *)self;
    return l->kind ? l->kind[label] : NULL;
}

static void ahead(const lt_dataset *self, int64_t index)
{
    lt_store_ahead(self->store, ((const labelled *)self)->path[index]);
}

static size_t shards(const lt_dataset *self)
{
    (void)self;
    return 0;
}

static void destroy(lt_dataset *self)
{
    labelled *l = (labelled *)self;
    for (size_t i = 0; i < l->pictures; i++) {
        lt_free(l->picture[i].name);
        if (l->path)
            lt_free(l->path[i]);
    }
    for (int32_t i = 0; l->kind && i < self->classes; i++)
        lt_free(l->kind[i]);
    lt_free(l->picture);
    lt_free(l->path);
    lt_free(l->kind);
    lt_free(l->folder);
}

static const lt_dataset_ops ops = {
    .name = "labelled",
    .bytes = sizeof(labelled),
    .read = read_sample,
    .shards = shards,
    .ahead = ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .destroy = destroy,
};

lt_status lt_dataset_labelled(lt_dataset **out, const char *folder, const char *labels,
                              const char *const *class_names, int classes)
{
    lt_dataset *d = NULL;
    if (classes < 0)
        return lt_fail(LT_E_ARG, "data: %d classes", classes);
    LT_TRY(lt_dataset_new(&d, &ops));
    labelled *l = (labelled *)d;
    l->folder = lt_strdup(folder);
    lt_status st = l->folder ? label_all(l, labels, class_names, classes) : LT_E_NOMEM;
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}
