/* A list of picture files as a data set: what `predict` reads. */

#include "base/alloc.h"
#include "data/files.h"
#include "data/store.h"

#include <inttypes.h>

typedef struct listed {
    lt_dataset base;
    char **path; /* owned; count of them */
} listed;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    LT_TRY(lt_store_read(self->store, ((const listed *)self)->path[index], record));
    record->encoding = LT_ENCODING_FILE;
    record->label = 0;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    return ((const listed *)self)->path[index];
}

static size_t shards(const lt_dataset *self)
{
    (void)self;
    return 0;
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
    .shards = shards,
    .sample_name = sample_name,
    .destroy = destroy,
};

static lt_status copy_paths(listed *l, const char *const *paths)
{
    l->path = lt_alloc((size_t)l->base.count, sizeof *l->path);
    if (!l->path)
        return LT_E_NOMEM;
    for (int64_t i = 0; i < l->base.count; i++)
        if (!(l->path[i] = lt_strdup(paths[i])))
            return LT_E_NOMEM;
    return LT_OK;
}

lt_status lt_dataset_files(lt_dataset **out, const char *const *paths, int64_t count, int channels)
{
    if (count < 1 || (channels != 1 && channels != 3))
        return lt_fail(LT_E_ARG,
                       "files: %" PRId64 " pictures of %d channels; want >= 1, and 1 or 3", count,
                       channels);
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    d->count = count;
    d->classes = 1;
    d->channels = channels;
    lt_status st = copy_paths((listed *)d, paths);
    if (st) {
        lt_dataset_free(&d);
        return st;
    }
    *out = d;
    return LT_OK;
}
