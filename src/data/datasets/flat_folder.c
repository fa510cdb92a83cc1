/* Images in one folder without class folders and a label file, as ImageNet's validation images are distributed. Samples
 * are ordered by class, then by name, as in class folders. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/datasets/file_list.h"
#include "data/datasets/labels.h"
#include "data/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

typedef struct image {
    char *name; /* owned */
    int32_t label;
} image;

typedef struct flat_folder {
    const char *folder;
    image *image;
    size_t images, capacity;
} flat_folder;

static lt_status add_image(flat_folder *l, const char *name)
{
    LT_TRY(LT_GROW(&l->image, &l->capacity, l->images + 1));
    l->image[l->images] = (image){.name = lt_strdup(name), .label = -1};
    return l->image[l->images++].name ? LT_OK : LT_E_NOMEM;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const image *)a)->name, ((const image *)b)->name);
}

static lt_status list_images(flat_folder *l)
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
            lt_left_out_add_file(&left_out, d->d_name);
    if (!st && errno)
        st = lt_fail(LT_E_IO, "%s: %s", l->folder, strerror(errno));
    closedir(dir);
    lt_left_out_log(&left_out, l->folder);
    if (!st && !l->images)
        st = lt_fail(LT_E_FORMAT, "%s: no " LT_IMAGE_NAMES " file in this folder", l->folder);
    if (!st)
        qsort(l->image, l->images, sizeof *l->image, compare_names);
    return st;
}

/* Finds the image whose name is the last component of the path; NULL if absent. */
static image *find_image(const flat_folder *l, char *file)
{
    char *slash = strrchr(file, '/');
    const image key = {.name = slash ? slash + 1 : file};
    return bsearch(&key, l->image, l->images, sizeof *l->image, compare_names);
}

static lt_status assign_labels(flat_folder *l, const lt_labels *labels, const char *path)
{
    for (size_t i = 0; i < labels->count; i++) {
        const lt_label *at = &labels->line[i];
        image *p = at->file ? find_image(l, at->file) : &l->image[i];
        if (!p)
            return lt_fail(LT_E_FORMAT, "%s:%d: %s has no image '%s'", path, at->line, l->folder,
                           at->file);
        if (p->label >= 0)
            return lt_fail(LT_E_FORMAT, "%s:%d: second label for '%s'", path, at->line, p->name);
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

static lt_status copy_class_names(lt_file_list *f, const char *const *name)
{
    LT_TRY(LT_ALLOC(&f->class_names, f->base.classes));
    for (int32_t i = 0; i < f->base.classes; i++)
        if (name[i] && !(f->class_names[i] = lt_strdup(name[i])))
            return LT_E_NOMEM;
    return LT_OK;
}

static lt_status label_images(flat_folder *l, const char *path, const char *const *name,
                              int classes)
{
    lt_labels labels = {0};
    LT_TRY(list_images(l));
    LT_TRY(lt_labels_read(&labels, path, name, classes));
    lt_status st = LT_OK;
    if (!labels.line[0].file && labels.count != l->images)
        st = lt_fail(LT_E_FORMAT, "%s: %zu labels, but %s has %zu images", path, labels.count,
                     l->folder, l->images);
    if (!st)
        st = assign_labels(l, &labels, path);
    lt_labels_clear(&labels);
    return st;
}

static lt_status fill_file_list(lt_file_list *f, const flat_folder *l, const char *const *name)
{
    LT_TRY(LT_ALLOC(&f->label, l->images));
    for (size_t i = 0; i < l->images; i++) {
        f->label[i] = l->image[i].label;
        LT_TRY(lt_paths_add(&f->files, lt_format("%s/%s", l->folder, l->image[i].name)));
    }
    f->base.count = (int64_t)l->images;
    return name ? copy_class_names(f, name) : LT_OK;
}

static lt_status make_dataset(lt_dataset **out, flat_folder *l, const char *const *name,
                              int classes)
{
    lt_dataset *d = NULL;
    qsort(l->image, l->images, sizeof *l->image, by_class_then_name);
    LT_TRY(lt_file_list_new(&d, classes ? classes : l->image[l->images - 1].label + 1, 3));
    return lt_dataset_set_or_free(out, d,
                                  fill_file_list((lt_file_list *)d, l, classes ? name : NULL));
}

lt_status lt_dataset_labelled(lt_dataset **out, const char *folder, const char *labels,
                              const char *const *class_names, int classes)
{
    flat_folder l = {.folder = folder};
    if (classes < 0)
        return lt_fail(LT_E_ARG, "data: got %d classes, want 0 or more", classes);
    lt_status st = label_images(&l, labels, class_names, classes);
    if (!st)
        st = make_dataset(out, &l, class_names, classes);
    for (size_t i = 0; i < l.images; i++)
        lt_free(l.image[i].name);
    lt_free(l.image);
    return st;
}
