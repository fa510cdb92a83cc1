/* A data set of listed image files, which `predict` reads. A folder stands for the images below
 * it. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <errno.h>
#include <fts.h>
#include <inttypes.h>
#include <string.h>

typedef struct listed {
    lt_dataset base;
    char **path; /* owned; count of them */
    size_t capacity;
} listed;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const char *path = ((const listed *)self)->path[index];
    if (lt_is_folder(path)) /* walk() lists folders without images and unreadable ones */
        return lt_fail(LT_E_IO, "%s: no image can be read in this folder", path);
    LT_TRY(lt_file_read(path, record));
    record->encoding = LT_ENCODING_FILE;
    record->label = 0;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    return ((const listed *)self)->path[index];
}

static void destroy(lt_dataset *self)
{
    listed *l = (listed *)self;
    for (int64_t i = 0; i < self->count && l->path; i++)
        lt_free(l->path[i]);
    lt_free(l->path);
}

static const lt_dataset_ops ops = {
    .name = "files",
    .bytes = sizeof(listed),
    .read = read_sample,
    .sample_name = sample_name,
    .destroy = destroy,
};

static lt_status add(listed *l, const char *path)
{
    size_t count = (size_t)l->base.count;
    char **grown = lt_grow(l->path, &l->capacity, count + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    l->path = grown;
    l->path[count] = lt_strdup(path);
    if (!l->path[count])
        return LT_E_NOMEM;
    l->base.count++;
    return LT_OK;
}

static int bytewise(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Links to folders are not followed: they may form cycles or lead out of the folder. */
static lt_status walk(listed *l, FTS *tree)
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

static lt_status add_folder(listed *l, const char *path)
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

static lt_status add_paths(listed *l, const char *const *paths, int64_t count)
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
    LT_TRY(lt_dataset_new(&d, &ops));
    d->classes = 1;
    d->channels = channels;
    lt_status st = add_paths((listed *)d, paths, count);
    if (st) {
        lt_dataset_free(&d);
        return st;
    }
    *out = d;
    return LT_OK;
}
