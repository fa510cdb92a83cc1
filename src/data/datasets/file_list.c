/* A data set given by a list of image files. lt_dataset_files() makes the list that `predict` reads: files as given,
 * and all images below a folder. */

#include "data/datasets/file_list.h"

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <inttypes.h>

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const lt_file_list *l = (const lt_file_list *)self;
    lt_status st = lt_file_read(l->files.path[index], record);
    if (st && lt_is_folder(l->files.path[index])) /* lt_paths_rule.keep_empty */
        return lt_fail(LT_E_IO, "%s: is a folder, which is unreadable or has no image",
                       l->files.path[index]);
    LT_TRY(st);
    record->encoding = LT_ENCODING_FILE;
    record->label = l->label ? l->label[index] : 0;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    return ((const lt_file_list *)self)->files.path[index];
}

static const char *class_name(const lt_dataset *self, int label)
{
    const lt_file_list *l = (const lt_file_list *)self;
    return l->class_names ? l->class_names[label] : NULL;
}

static void read_ahead(const lt_dataset *self, int64_t index)
{
    lt_file_read_ahead(((const lt_file_list *)self)->files.path[index], 0, 0);
}

static void destroy(lt_dataset *self)
{
    lt_file_list *l = (lt_file_list *)self;
    lt_free_texts(l->files.path, l->files.count);
    lt_free_texts(l->class_names, (size_t)self->classes);
    lt_free(l->label);
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    const lt_file_list *l = (const lt_file_list *)self;
    *label = l->label ? l->label[index] : 0;
    return LT_OK;
}

static const lt_dataset_ops ops = {
    .name = "files",
    .bytes = sizeof(lt_file_list),
    .read = read_sample,
    .ahead = read_ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .label = read_label,
    .destroy = destroy,
};

lt_status lt_file_list_new(lt_dataset **out, int classes, int channels)
{
    LT_TRY(lt_dataset_new(out, &ops));
    (*out)->classes = classes;
    (*out)->channels = channels;
    return LT_OK;
}

static lt_status add_paths(lt_file_list *l, const char *const *paths, int64_t count)
{
    static const lt_paths_rule images = {lt_is_image, lt_is_hidden, .keep_empty = true};
    for (int64_t i = 0; i < count; i++)
        LT_TRY(lt_is_folder(paths[i]) ? lt_paths_add_below(&l->files, paths[i], &images)
                                      : lt_paths_add(&l->files, lt_strdup(paths[i])));
    l->base.count = (int64_t)l->files.count;
    return LT_OK;
}

lt_status lt_dataset_files(lt_dataset **out, const char *const *paths, int64_t count, int channels)
{
    if (count < 1 || (channels != 1 && channels != 3))
        return lt_fail(LT_E_ARG,
                       "files: got %" PRId64
                       " paths, %d channels; want at least 1 path, 1 or 3 channels",
                       count, channels);
    lt_dataset *d = NULL;
    LT_TRY(lt_file_list_new(&d, 1, channels));
    return lt_dataset_set_or_free(out, d, add_paths((lt_file_list *)d, paths, count));
}
