/* Images of one folder without class folders, labelled by a file, as ImageNet's validation images
 * are distributed. Samples are ordered by class, then by name, as they would be in class
 * folders. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/datasets/labels.h"
#include "data/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

typedef struct image {
    char *name; /* owned */
    int32_t label;
} image;

typedef struct labelled {
    lt_dataset base;
    char *folder;
    image *image;
    size_t images, capacity;
    char **path; /* [count] */
    char **kind; /* [classes]; NULL: they have no names */
} labelled;

/* --- Images --- */

static lt_status add_image(labelled *l, const char *name)
{
    image *grown = lt_grow(l->image, &l->capacity, l->images + 1, sizeof *l->image);
    if (!grown)
        return LT_E_NOMEM;
    l->image = grown;
    grown[l->images] = (image){.name = lt_strdup(name), .label = -1};
    return grown[l->images++].name ? LT_OK : LT_E_NOMEM;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const image *)a)->name, ((const image *)b)->name);
}

static lt_status list_images(labelled *l)
{
    lt_status st = LT_OK;
    lt_left_out left_out = {0};
    DIR *dir = opendir(l->folder);
    if (!dir)
        return lt_fail(LT_E_IO, "%s: %s", l->folder, strerror(errno));
    const struct dirent *d;
    while (!st && (errno = 0, d = readdir(dir)))
        if (d->d_name[0] == '.' || lt_is_hidden(d->d_name))
            continue;
        else if (lt_is_image(d->d_name))
            st = add_image(l, d->d_name);
        else if (d->d_type != DT_DIR)
            lt_left_out_add(&left_out, d->d_name);
    if (!st && errno)
        st = lt_fail(LT_E_IO, "%s: %s", l->folder, strerror(errno));
    closedir(dir);
    lt_left_out_tell(&left_out, l->folder);
    if (!st && !l->images)
        st = lt_fail(LT_E_FORMAT, "%s: no " LT_IMAGE_NAMES " file in it", l->folder);
    if (!st)
        qsort(l->image, l->images, sizeof *l->image, compare_names);
    return st;
}

/* By its name, or by the last part of a path. */
static image *find_image(const labelled *l, char *file)
{
    char *slash = strrchr(file, '/');
    const image key = {.name = slash ? slash + 1 : file};
    return bsearch(&key, l->image, l->images, sizeof *l->image, compare_names);
}

static lt_status assign(labelled *l, const lt_labels *labels, const char *path)
{
    for (size_t i = 0; i < labels->count; i++) {
        const lt_label *at = &labels->line[i];
        image *p = at->file ? find_image(l, at->file) : &l->image[i];
        if (!p)
            return lt_fail(LT_E_FORMAT, "%s:%d: %s has no image '%s'", path, at->number, l->folder,
                           at->file);
        if (p->label >= 0)
            return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is there twice", path, at->number, p->name);
        p->label = at->label;
    }
    for (size_t i = 0; i < l->images; i++)
        if (l->image[i].label < 0)
            return lt_fail(LT_E_FORMAT, "%s: no label for %s/%s", path, l->folder,
                           l->image[i].name);
    return LT_OK;
}

static int by_class_then_name(const void *a, const void *b)
{
    const image *x = a, *y = b;
    int order = (x->label > y->label) - (x->label < y->label);
    return order ? order : strcmp(x->name, y->name);
}

static lt_status name_samples(labelled *l)
{
    qsort(l->image, l->images, sizeof *l->image, by_class_then_name);
    l->path = lt_alloc(l->images, sizeof *l->path);
    if (!l->path)
        return LT_E_NOMEM;
    for (size_t i = 0; i < l->images; i++)
        if (!(l->path[i] = lt_format("%s/%s", l->folder, l->image[i].name)))
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
    LT_TRY(list_images(l));
    LT_TRY(lt_labels_read(&labels, path, name, classes));
    lt_status st = LT_OK;
    if (!labels.line[0].file && labels.count != l->images)
        st = lt_fail(LT_E_FORMAT, "%s: %zu labels, %s holds %zu images", path, labels.count,
                     l->folder, l->images);
    if (!st)
        st = assign(l, &labels, path);
    lt_labels_clear(&labels);
    LT_TRY(st);
    LT_TRY(name_samples(l));
    l->base.count = (int64_t)l->images;
    l->base.channels = 3;
    l->base.classes = classes ? classes : l->image[l->images - 1].label + 1;
    return name && classes ? name_classes(l, name) : LT_OK;
}

/* --- The data set --- */

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const labelled *l = (const labelled *)self;
    LT_TRY(lt_file_read(l->path[index], record));
    record->encoding = LT_ENCODING_FILE;
    record->label = l->image[index].label;
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
    lt_file_ahead(((const labelled *)self)->path[index], 0, 0);
}

static void destroy(lt_dataset *self)
{
    labelled *l = (labelled *)self;
    for (size_t i = 0; i < l->images; i++) {
        lt_free(l->image[i].name);
        if (l->path)
            lt_free(l->path[i]);
    }
    for (int32_t i = 0; l->kind && i < self->classes; i++)
        lt_free(l->kind[i]);
    lt_free(l->image);
    lt_free(l->path);
    lt_free(l->kind);
    lt_free(l->folder);
}

static const lt_dataset_ops ops = {
    .name = "labelled",
    .bytes = sizeof(labelled),
    .read = read_sample,
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
