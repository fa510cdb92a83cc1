/* Writes safetensors files. The header is padded with spaces to a multiple of 8, so that data is aligned.
 * The file is written under another name, synced, and renamed. */

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/json.h"
#include "base/shared_file.h"
#include "tensor/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ALIGN = 8 };

typedef struct item {
    char *name;
    lt_dtype dtype;
    lt_shape shape;
    size_t bytes;
    const lt_tensor *tensor; /* source of the data: one of tensor, source, data */
    lt_safetensors_source *source;
    void *context;
    const void *data; /* row-major elements in host memory */
} item;

typedef struct note {
    char *key, *value;
} note;

struct lt_safetensors_writer {
    char *path;
    item *item;
    size_t count, capacity;
    note *note;
    size_t notes;
};

lt_status lt_safetensors_create(lt_safetensors_writer **out, const char *path)
{
    lt_safetensors_writer *w = NULL;
    LT_TRY(LT_ALLOC(&w, 1));
    w->path = lt_strdup(path);
    if (!w->path) {
        lt_safetensors_discard(&w);
        return LT_E_NOMEM;
    }
    *out = w;
    return LT_OK;
}

lt_status lt_safetensors_add_metadata(lt_safetensors_writer *w, const char *key, const char *value)
{
    for (size_t i = 0; i < w->notes; i++)
        if (!strcmp(w->note[i].key, key))
            return lt_fail(LT_E_ARG, "%s: duplicate metadata '%s'", w->path, key);
    LT_TRY(LT_RESIZE(&w->note, w->notes + 1));
    note n = {.key = lt_strdup(key), .value = lt_strdup(value)};
    if (!n.key || !n.value) {
        lt_free(n.key);
        lt_free(n.value);
        return LT_E_NOMEM;
    }
    w->note[w->notes++] = n;
    return LT_OK;
}

static lt_status add_item(lt_safetensors_writer *w, const char *name, item what)
{
    if (!strcmp(name, "__metadata__"))
        return lt_fail(LT_E_ARG, "%s: a tensor cannot be called %s", w->path, name);
    LT_TRY(LT_GROW(&w->item, &w->capacity, w->count + 1));
    what.name = lt_strdup(name);
    if (!what.name)
        return LT_E_NOMEM;
    what.bytes = lt_dtype_size(what.dtype) * (size_t)lt_shape_count(what.shape);
    w->item[w->count++] = what;
    return LT_OK;
}

static bool has_name(const lt_safetensors_writer *w, const char *name)
{
    for (size_t i = 0; i < w->count; i++)
        if (!strcmp(w->item[i].name, name))
            return true;
    return false;
}

lt_status lt_safetensors_add(lt_safetensors_writer *w, const char *name, const lt_tensor *tensor)
{
    if (has_name(w, name))
        return lt_fail(LT_E_ARG, "%s: duplicate tensor '%s'", w->path, name);
    return add_item(w, name,
                    (item){.tensor = tensor,
                           .dtype = lt_tensor_dtype(tensor),
                           .shape = lt_tensor_shape(tensor)});
}

lt_status lt_safetensors_add_host(lt_safetensors_writer *w, const char *name, lt_dtype dtype,
                                  lt_shape shape, const void *data)
{
    if (has_name(w, name))
        return lt_fail(LT_E_ARG, "%s: duplicate tensor '%s'", w->path, name);
    return add_item(w, name, (item){.data = data, .dtype = dtype, .shape = shape});
}

lt_status lt_safetensors_add_source(lt_safetensors_writer *w, const char *name, lt_dtype dtype,
                                    lt_shape shape, lt_safetensors_source *source, void *context)
{
    if (has_name(w, name))
        return lt_fail(LT_E_ARG, "%s: duplicate tensor '%s'", w->path, name);
    return add_item(w, name,
                    (item){.source = source, .context = context, .dtype = dtype, .shape = shape});
}

static void put_item_header(lt_json_writer *json, const item *it, size_t begin)
{
    static const char *const names[] = {
        [LT_F32] = "F32", [LT_F64] = "F64", [LT_F16] = "F16", [LT_BF16] = "BF16",
        [LT_I32] = "I32", [LT_I64] = "I64", [LT_U8] = "U8"};
    lt_json_begin_object(json, it->name);
    lt_json_put_string(json, "dtype", names[it->dtype]);
    lt_json_begin_array(json, "shape");
    for (int d = 0; d < it->shape.ndim; d++)
        lt_json_put_integer(json, NULL, it->shape.dim[d]);
    lt_json_end(json);
    lt_json_begin_array(json, "data_offsets");
    lt_json_put_integer(json, NULL, (int64_t)begin);
    lt_json_put_integer(json, NULL, (int64_t)(begin + it->bytes));
    lt_json_end(json);
    lt_json_end(json);
}

static void put_header(lt_json_writer *json, const lt_safetensors_writer *w)
{
    lt_json_begin_object(json, NULL);
    if (w->notes) {
        lt_json_begin_object(json, "__metadata__");
        for (size_t i = 0; i < w->notes; i++)
            lt_json_put_string(json, w->note[i].key, w->note[i].value);
        lt_json_end(json);
    }
    size_t begin = 0;
    for (size_t i = 0; i < w->count; begin += w->item[i++].bytes)
        put_item_header(json, &w->item[i], begin);
    lt_json_end(json);
}

static lt_status write_bytes(FILE *file, const char *path, const void *data, size_t bytes)
{
    if (bytes && fwrite(data, 1, bytes, file) != bytes)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    return LT_OK;
}

static lt_status write_header(const lt_safetensors_writer *w, FILE *file)
{
    lt_json_writer json = {0};
    put_header(&json, w);
    const char *text = NULL;
    size_t bytes = 0;
    lt_status st = lt_json_text(&json, &text, &bytes);
    if (!st) {
        size_t padded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
        unsigned char length[8];
        for (int i = 0; i < 8; i++)
            length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
        st = write_bytes(file, w->path, length, sizeof length);
        if (!st)
            st = write_bytes(file, w->path, text, bytes);
        if (!st)
            st = write_bytes(file, w->path, "       ", padded - bytes);
    }
    lt_json_writer_clear(&json);
    return st;
}

static lt_status write_item(const lt_safetensors_writer *w, const item *it, FILE *file)
{
    if (!it->tensor && !it->source)
        return write_bytes(file, w->path, it->data, it->bytes);
    void *host = lt_alloc_aligned(64, it->bytes);
    if (!host)
        return LT_E_NOMEM;
    lt_status st = it->source ? it->source(it->context, host, it->bytes)
                              : lt_tensor_read(it->tensor, host, it->bytes);
    if (!st)
        st = write_bytes(file, w->path, host, it->bytes);
    lt_free(host);
    return st;
}

static lt_status write_file(const lt_safetensors_writer *w, bool sync)
{
    lt_replacement r;
    LT_TRY(lt_replacement_open(&r, w->path));
    lt_status st = write_header(w, r.file);
    for (size_t i = 0; i < w->count && !st; i++)
        st = write_item(w, &w->item[i], r.file);
    return lt_replacement_close(&r, st, sync);
}

lt_status lt_safetensors_finish(lt_safetensors_writer **writer)
{
    lt_status st = write_file(*writer, true);
    if (!st)
        st = lt_sync_parent((*writer)->path);
    lt_safetensors_discard(writer);
    return st;
}

lt_status lt_safetensors_finish_unsynced(lt_safetensors_writer **writer)
{
    lt_status st = write_file(*writer, false);
    lt_safetensors_discard(writer);
    return st;
}

void lt_safetensors_discard(lt_safetensors_writer **writer)
{
    lt_safetensors_writer *w = *writer;
    if (!w)
        return;
    for (size_t i = 0; i < w->count; i++)
        lt_free(w->item[i].name);
    for (size_t i = 0; i < w->notes; i++) {
        lt_free(w->note[i].key);
        lt_free(w->note[i].value);
    }
    lt_free(w->item);
    lt_free(w->note);
    lt_free(w->path);
    lt_free(w);
    *writer = NULL;
}
