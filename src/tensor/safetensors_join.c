/* Writes the tensors of several files to one. */

#include "tensor/safetensors.h"

#include "lather/ext/fail.h"

#include <string.h>

/* Adds the metadata of the whole file: the first of each key, except those that identify a part or describe a tensor. */
static lt_status join_metadata(const lt_safetensors *f, lt_safetensors_writer *w)
{
    const char *key, *value;
    for (size_t i = 0; lt_safetensors_metadata_at(f, i, &key, &value); i++)
        if (strcmp(key, LT_PART_STEP) != 0 && strcmp(key, LT_PART_RUN) != 0
            && lt_safetensors_metadata(f, key) == value && !lt_safetensors_find(f, key))
            LT_TRY(lt_safetensors_add_metadata(w, key, value));
    return LT_OK;
}

static lt_status join_tensors(const lt_safetensors *f, const char *path, lt_safetensors_writer *w)
{
    for (size_t i = 0; i < lt_safetensors_count(f); i++) {
        const lt_safetensors_entry *e = lt_safetensors_at(f, i);
        const char *note = lt_safetensors_metadata(f, e->name);
        if (e->unsupported)
            return lt_fail(LT_E_UNSUPPORTED,
                           "%s: tensor '%.100s' has dtype %.20s, which this build "
                           "cannot write",
                           path, e->name, e->unsupported);
        LT_TRY(lt_safetensors_add_host(w, e->name, e->dtype, e->shape, e->data));
        if (note)
            LT_TRY(lt_safetensors_add_metadata(w, e->name, note));
    }
    return LT_OK;
}

lt_status lt_safetensors_join(const char *path, const char *out)
{
    lt_safetensors *f = NULL;
    lt_safetensors_writer *w = NULL;
    lt_status st = lt_safetensors_open(&f, path);
    if (!st)
        st = lt_safetensors_create(&w, out);
    if (!st)
        st = join_metadata(f, w);
    if (!st)
        st = join_tensors(f, path, w);
    if (!st)
        st = lt_safetensors_finish(&w);
    lt_safetensors_discard(&w);
    lt_safetensors_close(&f);
    return st;
}
