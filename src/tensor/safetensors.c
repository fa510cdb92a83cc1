/* Reads safetensors files (huggingface/safetensors, "Format"): 8 bytes of header length, a JSON header, then
 * the contiguous data. The file is mapped; everything in it is checked before use. Files of torch.save() and models in
 * several files give the same entries. */

#include "tensor/safetensors.h"

#include "base/alloc.h"
#include "base/encoding/json.h"
#include "base/file.h"
#include "tensor/backend/dtype.h"
#include "tensor/weight_file/dtype.h"
#include "tensor/weight_file/index.h"
#include "tensor/weight_file/torch_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    LENGTH_BYTES = 8,
    DEPTH = 3,
    MAX_HEADER = 100000000,
    MAX_VALUES = 1 << 16 /* in one member: a tensor has at most 11, metadata one per string */
};

typedef struct note {
    const char *key, *value;
} note;

typedef struct part_file {
    const char *name;
    lt_safetensors *file;
} part_file;

struct lt_safetensors {
    const char *path; /* the caller's path while opening, for messages */
    void *map;
    size_t size;
    lt_json *json; /* owns the strings */
    note *metadata;
    size_t notes, note_capacity;
    bool has_metadata;
    lt_safetensors_entry *entry;
    const lt_safetensors_entry **by_name; /* sorted by name */
    size_t count, capacity;
    const char *data; /* first byte after the header */
    size_t data_bytes;
    lt_torch_file torch; /* owns the contents of a file of torch.save(), and changed entries */
    part_file *part;     /* files of an index, which own the entries */
    size_t parts, part_capacity, last_part;
};

static lt_status fail_entry(const lt_safetensors *f, const char *tensor, const char *what)
{
    return lt_fail(LT_E_FORMAT, "%s: tensor '%.100s': %s", f->path, tensor, what);
}

static lt_status read_dtype(const lt_safetensors *f, const lt_json_value *v,
                            lt_safetensors_entry *e, size_t *bytes)
{
    const char *name;
    if (lt_json_string(v, "dtype", &name))
        return fail_entry(f, e->name, "dtype is missing");
    return lt_weight_dtype(name, e, bytes)
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: tensor '%.100s': unknown dtype '%.20s'", f->path,
                         e->name, name);
}

/* Reads the shape and computes the size in bytes; fails on overflow. */
static lt_status read_shape(const lt_safetensors *f, const lt_json_value *v,
                            lt_safetensors_entry *e, size_t bytes)
{
    const lt_json_value *shape = lt_json_member(v, "shape");
    if (!shape || shape->type != LT_JSON_ARRAY)
        return fail_entry(f, e->name, "shape is missing");
    if (shape->count > LT_MAX_DIMS)
        return lt_fail(LT_E_FORMAT, "%s: tensor '%.100s': %zu dimensions, want at most %d", f->path,
                       e->name, shape->count, LT_MAX_DIMS);
    for (const lt_json_value *d = shape->child; d; d = d->next) {
        if (!d->is_integer || d->integer < 0)
            return fail_entry(f, e->name, "a size is not a non-negative integer");
        if (__builtin_mul_overflow(bytes, (size_t)d->integer, &bytes))
            return fail_entry(f, e->name, "the size in bytes overflows");
        e->shape.dim[e->shape.ndim++] = d->integer;
    }
    e->bytes = bytes;
    return LT_OK;
}

static lt_status read_offsets(const lt_safetensors *f, const lt_json_value *v,
                              lt_safetensors_entry *e)
{
    const lt_json_value *pair = lt_json_member(v, "data_offsets");
    if (!pair || pair->type != LT_JSON_ARRAY || pair->count != 2)
        return fail_entry(f, e->name, "data_offsets are not two numbers");
    const lt_json_value *begin = pair->child, *end = begin->next;
    if (!begin->is_integer || !end->is_integer || begin->integer < 0
        || end->integer < begin->integer || (uint64_t)end->integer > f->data_bytes)
        return fail_entry(f, e->name, "data_offsets are outside the file");
    size_t span = (size_t)(end->integer - begin->integer);
    if (span != e->bytes)
        return lt_fail(LT_E_FORMAT, "%s: tensor '%.100s': %zu bytes, but its shape needs %zu",
                       f->path, e->name, span, e->bytes);
    e->data = f->data + begin->integer;
    return LT_OK;
}

static lt_status read_entry(lt_safetensors *f, const lt_json_value *v)
{
    LT_TRY(LT_GROW(&f->entry, &f->capacity, f->count + 1));
    lt_safetensors_entry *e = &f->entry[f->count];
    *e = (lt_safetensors_entry){.name = v->key};
    if (v->type != LT_JSON_OBJECT)
        return fail_entry(f, e->name, "is not an object");
    if (v->count != 3)
        return fail_entry(f, e->name, "needs exactly dtype, shape and data_offsets");
    size_t bytes = 0;
    LT_TRY(read_dtype(f, v, e, &bytes));
    LT_TRY(read_shape(f, v, e, bytes));
    LT_TRY(read_offsets(f, v, e));
    f->count++;
    return LT_OK;
}

static lt_status read_metadata(lt_safetensors *f, const lt_json_value *v)
{
    if (v->type != LT_JSON_OBJECT)
        return lt_fail(LT_E_FORMAT, "%s: __metadata__ is not an object", f->path);
    if (f->has_metadata)
        return lt_fail(LT_E_FORMAT, "%s: duplicate key '%s'", f->path, v->key);
    f->has_metadata = true;
    for (const lt_json_value *m = v->child; m; m = m->next) {
        if (m->type != LT_JSON_STRING)
            return lt_fail(LT_E_FORMAT, "%s: __metadata__: '%.100s' is not a string", f->path,
                           m->key);
        LT_TRY(LT_GROW(&f->metadata, &f->note_capacity, f->notes + 1));
        f->metadata[f->notes++] = (note){m->key, m->string};
    }
    return LT_OK;
}

static lt_status read_header_member(void *context, const lt_json_value *v)
{
    return !strcmp(v->key, "__metadata__") ? read_metadata(context, v) : read_entry(context, v);
}

static int compare_addresses(const void *a, const void *b)
{
    const lt_safetensors_entry *const *x = a, *const *y = b;
    const char *p = (*x)->data, *q = (*y)->data;
    if (p != q)
        return p < q ? -1 : 1;
    return ((*x)->bytes > (*y)->bytes) - ((*x)->bytes < (*y)->bytes); /* empty tensors first */
}

static int compare_names(const void *a, const void *b)
{
    const lt_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Checks that every byte of data belongs to exactly one tensor. */
static lt_status check_tiling(lt_safetensors *f)
{
    if (f->count)
        qsort(f->by_name, f->count, sizeof(lt_safetensors_entry *), compare_addresses);
    const char *at = f->data;
    for (size_t i = 0; i < f->count; i++) {
        const lt_safetensors_entry *e = f->by_name[i];
        if ((const char *)e->data != at)
            return fail_entry(f, e->name,
                              (const char *)e->data < at ? "its bytes overlap another tensor's"
                                                         : "bytes before it belong to no tensor");
        at += e->bytes;
    }
    if (at != f->data + f->data_bytes)
        return lt_fail(LT_E_FORMAT, "%s: %zu bytes at the end belong to no tensor", f->path,
                       (size_t)(f->data + f->data_bytes - at));
    return LT_OK;
}

/* Checks that names are unique; leaves the entries sorted by name. */
static lt_status check_names(lt_safetensors *f)
{
    if (f->count)
        qsort(f->by_name, f->count, sizeof(lt_safetensors_entry *), compare_names);
    for (size_t i = 1; i < f->count; i++)
        if (!strcmp(f->by_name[i - 1]->name, f->by_name[i]->name))
            return lt_fail(LT_E_FORMAT, "%s: duplicate key '%.100s'", f->path, f->by_name[i]->name);
    return LT_OK;
}

/* Sorts the entries by name. Errors: LT_E_FORMAT (bytes of no tensor, or of two; duplicate names). */
static lt_status index_entries(lt_safetensors *f, bool is_tiled)
{
    lt_free(f->by_name);
    LT_TRY(LT_ALLOC(&f->by_name, f->count));
    for (size_t i = 0; i < f->count; i++)
        f->by_name[i] = &f->entry[i];
    if (is_tiled)
        LT_TRY(check_tiling(f));
    return check_names(f);
}

/* Reports a file that does not begin with the length of a header. */
static lt_status fail_not_safetensors(const lt_safetensors *f, uint64_t length)
{
    if (length > MAX_HEADER)
        return lt_fail(LT_E_FORMAT, "%s: header of %" PRIu64 " bytes, want at most %d", f->path,
                       length, MAX_HEADER);
    return lt_fail(LT_E_FORMAT, "%s: header of %" PRIu64 " bytes in a file of %zu: truncated",
                   f->path, length, f->size);
}

static lt_status read_header(lt_safetensors *f)
{
    const unsigned char *map = f->map;
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)map[i] << (8 * i);
    if (length > MAX_HEADER || length > f->size - LENGTH_BYTES)
        return fail_not_safetensors(f, length);
    const char *text = (const char *)map + LENGTH_BYTES;
    if (length == 0 || text[0] != '{')
        return lt_fail(LT_E_FORMAT, "%s: the header does not begin with '{'", f->path);
    f->data = text + length;
    f->data_bytes = f->size - LENGTH_BYTES - (size_t)length;
    const lt_json_visitor visitor = {.name = f->path,
                                     .depth = DEPTH,
                                     .most = MAX_VALUES,
                                     .visit = read_header_member,
                                     .context = f};
    LT_TRY(lt_json_parse_members(&f->json, text, (size_t)length, &visitor));
    return index_entries(f, true);
}

static lt_status read_torch(lt_safetensors *f)
{
    LT_TRY(lt_torch_read(&f->torch, f->path, f->map, f->size));
    f->entry = f->torch.entry;
    f->count = f->torch.count;
    f->torch.entry = NULL;
    return index_entries(f, false);
}

static lt_status map_file(lt_safetensors *f)
{
    int fd = -1;
    struct stat info;
    lt_status st = LT_OK;
    LT_TRY(lt_file_open_descriptor(&fd, &info, f->path));
    if (info.st_size < LENGTH_BYTES)
        st = lt_fail(LT_E_FORMAT, "%s: %lld bytes: truncated, or not a safetensors file", f->path,
                     (long long)info.st_size);
    if (!st) {
        f->size = (size_t)info.st_size;
        f->map = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (f->map == MAP_FAILED) {
            f->map = NULL;
            st = lt_fail(LT_E_IO, "%s: %s", f->path, strerror(errno));
        }
    }
    close(fd);
    return st;
}

static lt_status read_index(lt_safetensors *f);

/* Opens a file; an index only if it is not part of one. */
static lt_status open_file(lt_safetensors **out, const char *path, bool is_part)
{
    const char *end = strrchr(path, '.');
    lt_safetensors *f = NULL;
    LT_TRY(LT_ALLOC(&f, 1));
    f->path = path;
    lt_status st = LT_OK;
    if (end && !strcmp(end, ".json") && !is_part) {
        st = read_index(f);
    } else {
        st = map_file(f);
        if (!st && lt_torch_is_file(f->map, f->size))
            st = read_torch(f);
        else if (!st)
            st = read_header(f);
    }
    f->path = NULL;
    if (st)
        lt_safetensors_close(&f);
    else
        *out = f;
    return st;
}

/* --- Models in several files --- */

static lt_status open_checked_part(lt_safetensors *f, const char *path, const char *name)
{
    const lt_index_part at = {lt_json_member(lt_json_root(f->json), "metadata"), f->path, path,
                              name};
    const lt_status st = open_file(&f->part[f->parts].file, path, true);
    if (st) { /* the reason may be that it is missing or truncated */
        if (st != LT_E_NOMEM)
            LT_TRY(lt_index_check_size(&at));
        return st;
    }
    f->part[f->parts++].name = name;
    const lt_safetensors *part = f->part[f->parts - 1].file;
    LT_TRY(lt_index_check_origin(&at, lt_safetensors_metadata(part, LT_PART_STEP),
                                 lt_safetensors_metadata(part, LT_PART_RUN)));
    return lt_index_check_size(&at);
}

/* Returns the open file of the index with this name, or NULL; consecutive tensors tend to be in the same. */
static const lt_safetensors *find_part(lt_safetensors *f, const char *name)
{
    for (size_t i = 0; i < f->parts; i++) {
        f->last_part = f->last_part < f->parts ? f->last_part : 0;
        if (!strcmp(f->part[f->last_part].name, name))
            return f->part[f->last_part].file;
        f->last_part++;
    }
    return NULL;
}

/* Opens a file of the index in its folder, once. */
static lt_status open_part(lt_safetensors *f, const lt_json_value *v)
{
    if (find_part(f, v->string))
        return LT_OK;
    if (!*v->string || strchr(v->string, '/'))
        return lt_fail(LT_E_FORMAT, "%s: '%.100s' is not the name of a file in its folder", f->path,
                       v->string);
    LT_TRY(LT_GROW(&f->part, &f->part_capacity, f->parts + 1));
    const char *slash = strrchr(f->path, '/');
    char *path = lt_format("%.*s%s", slash ? (int)(slash - f->path) + 1 : 0, f->path, v->string);
    lt_status st = path ? open_checked_part(f, path, v->string) : LT_E_NOMEM;
    lt_free(path);
    return st;
}

static lt_status add_part_entry(lt_safetensors *f, const lt_json_value *v)
{
    LT_TRY(LT_GROW(&f->entry, &f->capacity, f->count + 1));
    const lt_safetensors *part = find_part(f, v->string);
    const lt_safetensors_entry *e = part ? lt_safetensors_find(part, v->key) : NULL;
    if (!e)
        return lt_fail(LT_E_FORMAT, "%s: tensor '%.100s' is not in '%.100s'", f->path, v->key,
                       v->string);
    f->entry[f->count++] = *e;
    return LT_OK;
}

/* Reads HuggingFace's model.safetensors.index.json: the file of each tensor. */
static lt_status read_index(lt_safetensors *f)
{
    enum { MAX_PARTS = 1 << 16 };
    LT_TRY(lt_json_load(&f->json, f->path));
    const lt_json_value *map = lt_json_member(lt_json_root(f->json), "weight_map");
    if (!map || map->type != LT_JSON_OBJECT || !map->count)
        return lt_fail(LT_E_FORMAT, "%s: no 'weight_map': not an index of safetensors files",
                       f->path);
    for (const lt_json_value *v = map->child; v; v = v->next) {
        if (v->type != LT_JSON_STRING)
            return lt_fail(LT_E_FORMAT, "%s: the file of '%.100s' is not a text", f->path, v->key);
        LT_TRY(open_part(f, v));
        if (f->parts > MAX_PARTS)
            return lt_fail(LT_E_FORMAT, "%s: more than %d files", f->path, MAX_PARTS);
    }
    for (const lt_json_value *v = map->child; v; v = v->next)
        LT_TRY(add_part_entry(f, v));
    return index_entries(f, false);
}
/* --- Open and close --- */

/* Finds the file of a folder, to be freed. Errors: LT_E_IO, LT_E_NOMEM. */
static lt_status find_in_folder(char **file, const char *folder)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json",
                                        "pytorch_model.bin"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *file = lt_format("%s/%s", folder, names[i]);
        if (!*file)
            return LT_E_NOMEM;
        if (!access(*file, F_OK))
            return LT_OK;
        lt_free(*file);
        *file = NULL;
    }
    return lt_fail(LT_E_IO, "%s: a folder without %s, %s and %s", folder, names[0], names[1],
                   names[2]);
}

/* Finds the index of a missing file, to be freed; else its path. */
static lt_status find_index(char **file, const char *path)
{
    *file = lt_format("%s" LT_INDEX_ENDING, path);
    if (*file && access(*file, F_OK)) {
        lt_free(*file);
        *file = lt_strdup(path);
    }
    return *file ? LT_OK : LT_E_NOMEM;
}

lt_status lt_safetensors_open(lt_safetensors **out, const char *path)
{
    struct stat info;
    char *file = NULL;
    const bool missing = stat(path, &info) != 0;
    if (!missing && !S_ISDIR(info.st_mode))
        return open_file(out, path, false);
    if (missing) /* it may be in parts */
        LT_TRY(find_index(&file, path));
    else
        LT_TRY(find_in_folder(&file, path));
    lt_status st = open_file(out, file, false);
    lt_free(file);
    return st;
}

void lt_safetensors_close(lt_safetensors **file)
{
    lt_safetensors *f = *file;
    if (!f)
        return;
    for (size_t i = 0; i < f->parts; i++)
        lt_safetensors_close(&f->part[i].file);
    if (f->map)
        munmap(f->map, f->size);
    lt_torch_clear(&f->torch);
    lt_free(f->part);
    lt_json_free(&f->json);
    lt_free(f->metadata);
    lt_free(f->entry);
    lt_free(f->by_name);
    lt_free(f);
    *file = NULL;
}

size_t lt_safetensors_count(const lt_safetensors *file)
{
    return file->count;
}

const lt_safetensors_entry *lt_safetensors_at(const lt_safetensors *file, size_t index)
{
    LT_ASSERT(index < file->count);
    return &file->entry[index];
}

const lt_safetensors_entry *lt_safetensors_find(const lt_safetensors *file, const char *name)
{
    lt_safetensors_entry key = {.name = name};
    const lt_safetensors_entry *wanted = &key;
    const lt_safetensors_entry *const *found =
        file->count ? bsearch(&wanted, file->by_name, file->count, sizeof(lt_safetensors_entry *),
                              compare_names)
                    : NULL;
    return found ? *found : NULL;
}

lt_safetensors_entry *lt_safetensors_entries(lt_safetensors *file, size_t *count)
{
    *count = file->count;
    return file->entry;
}

lt_status lt_safetensors_reserve(lt_safetensors *file, size_t capacity)
{
    LT_TRY(LT_GROW(&file->entry, &file->capacity, capacity));
    return lt_safetensors_set_count(file, file->count);
}

lt_status lt_safetensors_set_count(lt_safetensors *file, size_t count)
{
    file->count = count;
    file->path = "renamed entries";
    return index_entries(file, false);
}

void *lt_safetensors_alloc(lt_safetensors *file, size_t bytes)
{
    return lt_arena_alloc(&file->torch.arena, bytes);
}

bool lt_safetensors_strip_prefix(lt_safetensors *file, const char *prefix)
{
    size_t bytes = strlen(prefix);
    for (size_t i = 0; i < file->count; i++)
        if (strncmp(file->entry[i].name, prefix, bytes) != 0)
            return false;
    for (size_t i = 0; i < file->count; i++)
        file->entry[i].name += bytes; /* keeps their order */
    return file->count > 0;
}

const char *lt_safetensors_metadata(const lt_safetensors *file, const char *key)
{
    const char *found = NULL;
    if (file->torch.heads) /* nanoGPT has nn.GELU */
        found = !strcmp(key, "heads")        ? file->torch.heads
                : !strcmp(key, "activation") ? "gelu"
                                             : NULL;
    for (size_t i = 0; i < file->notes && !found; i++)
        if (!strcmp(file->metadata[i].key, key))
            found = file->metadata[i].value;
    for (size_t i = 0; i < file->parts && !found; i++)
        found = lt_safetensors_metadata(file->part[i].file, key);
    return found;
}

bool lt_safetensors_metadata_at(const lt_safetensors *f, size_t index, const char **key,
                                const char **value)
{
    for (size_t i = 0; index >= f->notes; i++) { /* an index has no metadata here */
        if (i == f->parts)
            return false;
        if (lt_safetensors_metadata_at(f->part[i].file, index, key, value))
            return true;
        index -= f->part[i].file->notes;
    }
    *key = f->metadata[index].key;
    *value = f->metadata[index].value;
    return true;
}

const char *lt_safetensors_part(const lt_safetensors *file)
{
    return file->torch.part;
}

double lt_safetensors_element(const lt_safetensors_entry *e, int64_t index)
{
    const size_t size = lt_dtype_size(e->dtype);
    union {
        float f32;
        double f64;
        uint16_t half;
        int32_t i32;
        int64_t i64;
        uint8_t u8;
    } v;
    memcpy(&v, (const char *)e->data + (size_t)index * size, size); /* it may be unaligned */
    switch (e->dtype) {
    case LT_F32:
        return (double)v.f32;
    case LT_F64:
        return v.f64;
    case LT_F16:
        return (double)lt_f32_from_f16(v.half);
    case LT_BF16:
        return (double)lt_f32_from_bf16(v.half);
    case LT_I32:
        return v.i32;
    case LT_I64:
        return (double)v.i64;
    case LT_U8:
        return v.u8;
    }
    return 0;
}
