/* A data set of listed image files. lt_dataset_files() lists those that `predict` reads, where a folder
 * stands for the images below it. */

#include "data/datasets/file_list.h"

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <inttypes.h>

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const lt_listed *l = (const lt_listed *)self;
    lt_status st = lt_file_read(l->files.path[index], record);
    if (st && lt_is_folder(l->files.path[index])) /* lt_paths_rule.folders */
        return lt_fail(LT_E_IO, "%s: no image can be read in this folder", l->files.path[index]);
    LT_TRY(st);
    record->encoding = LT_ENCODING_FILE;
    record->label = l->label ? l->label[index] : 0;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    return ((const lt_listed *)self)->files.path[index];
}

static const char *class_name(const lt_dataset *self, int label)
{
    const lt_listed *l = (const lt_listed *)self;
    return l->kind ? l->kind[label] : NULL;
}

static void ahead(const lt_dataset *self, int64_t index)
{
    lt_file_ahead(((const lt_listed *)self)->files.path[index], 0, 0);
}

static void destroy(lt_dataset *self)
{
    lt_listed *l = (lt_listed *)self;
    lt_free_texts(l->files.path, l->files.count);
    lt_free_texts(l->kind, (size_t)self->classes);
    lt_free(l->label);
}

static const lt_dataset_ops ops = {
    .name = "files",
    .bytes = sizeof(lt_listed),
    .read = read_sample,
    .ahead = ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .destroy = destroy,
};

lt_status lt_listed_new(lt_dataset **out, int classes, int channels)
{
    LT_TRY(lt_dataset_new(out, &ops));
    (*out)->classes = classes;
    (*out)->channels = channels;
    return LT_OK;
}

static lt_status add_paths(lt_listed *l, const char *const *paths, int64_t count)
{
    static const lt_paths_rule images = {lt_is_image, lt_is_hidden, .folders = true};
    for (int64_t i = 0; i < count; i++)
        LT_TRY(lt_is_folder(paths[i]) ? lt_paths_below(&l->files, paths[i], &images)
                                      : lt_paths_add(&l->files, lt_strdup(paths[i])));
    l->base.count = (int64_t)l->files.count;
    return LT_OK;
}

lt_status lt_dataset_files(lt_dataset **out, const char *const *paths, int64_t count, int channels)
{
    if (count < 1 || (channels != 1 && channels != 3))
        return lt_fail(LT_E_ARG, "files: %" PRId64 " images of %d channels; want >= 1, and 1 or 3",
                       count, channels);
    lt_dataset *d = NULL;
    LT_TRY(lt_listed_new(&d, 1, channels));
    lt_status st = add_paths((lt_listed *)d, paths, count);
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}
