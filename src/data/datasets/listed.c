/* A data set of listed image files. lt_dataset_files() lists those that `predict` reads, where a folder
 * stands for the images below it. */

#include "data/datasets/listed.h"

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <string.h>

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const lt_listed *l = (const lt_listed *)self;
    lt_status st = lt_file_read(l->path[index], record);
    if (st
        && lt_is_folder(
            l->path[index])) /* walk() lists folders without images and unreadable ones */
        return lt_fail(LT_E_IO, "%s: no image can be read in this folder", l->path[index]);
    LT_TRY(st);
    record->encoding = LT_ENCODING_FILE;
    record->label = l->label ? l->label[index] : 0;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    return ((const lt_listed *)self)->path[index];
}

static const char *class_name(const lt_dataset *self, int label)
{
    const lt_listed *l = (const lt_listed *)self;
    return l->kind ? l->kind[label] : NULL;
}

static void ahead(const lt_dataset *self, int64_t index)
{
    lt_file_ahead(((const lt_listed *)self)->path[index], 0, 0);
}

static void destroy(lt_dataset *self)
{
    lt_listed *l = (lt_listed *)self;
    lt_free_texts(l->path, (size_t)self->count);
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

lt_status lt_listed_add(lt_listed *l, char *path)
{
    char **grown =
        path ? lt_grow(l->path, &l->capacity, (size_t)l->base.count + 1, sizeof *grown) : NULL;
    if (!grown) {
        lt_free(path);
        return LT_E_NOMEM;
    }
    l->path = grown;
    l->path[l->base.count++] = path;
    return LT_OK;
}

/* --- Files and folders of the user --- */

static lt_status add(lt_listed *l, const char *path)
{
    return lt_listed_add(l, lt_strdup(path));
}

static int bytewise(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Links to folders are not followed: they may form cycles or lead out of the folder. */
static lt_status walk(lt_listed *l, FTS *tree)
{
    lt_status st = LT_OK;
    FTSENT *e;
    while (!st && (errno = 0, e = fts_read(tree))) {
        bool hidden = e->fts_level > 0 && lt_is_hidden(e->fts_name);
        if (hidden)
            (void)fts_set(tree, e, FTS_SKIP);
        else if (e->fts_info == FTS_DNR || e->fts_info == FTS_ERR)
            st = add(l, e->fts_path); /* reading it fails with the reason */
        else if ((e->fts_info == FTS_F || e->fts_info == FTS_NS
                  || (e->fts_info == FTS_SL && !lt_is_folder(e->fts_path)))
                 && lt_is_image(e->fts_name))
            st = add(l, e->fts_path);
    }
    return st || !errno ? st
                        : lt_fail(LT_E_IO, "files: a folder cannot be read: %s", strerror(errno));
}

static lt_status add_folder(lt_listed *l, const char *path)
{
    size_t begin = (size_t)l->base.count, bytes = strlen(path) + 1;
    char *root = lt_strdup(path); /* fts_open() wants it writable */
    if (!root)
        return LT_E_NOMEM;
    while (bytes > 2 && root[bytes - 2] == '/')
        root[--bytes - 1] = 0;
    char *const roots[] = {root, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    lt_status st = tree ? walk(l, tree) : LT_E_NOMEM;
    if (tree)
        fts_close(tree);
    size_t found = (size_t)l->base.count - begin;
    if (!st && !found)
        st = add(l, root);
    else if (!st)
        qsort(l->path + begin, found, sizeof *l->path, bytewise);
    lt_free(root);
    return st;
}

static lt_status add_paths(lt_listed *l, const char *const *paths, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        LT_TRY(lt_is_folder(paths[i]) ? add_folder(l, paths[i]) : add(l, paths[i]));
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
