/* Files of torch.save() (PyTorch, torch/serialization.py). Since 1.6: a ZIP archive with data.pkl, and data/KEY for each
 * storage. Before: consecutive pickles (a magic number, a protocol version, system facts, the object, the keys of its
 * storages), then for each key the number of elements and the elements. Tensors point into the mapped file; those that
 * are not contiguous are copied. */

#include "tensor/weight_file/torch_file.h"

#include "base/alloc.h"
#include "tensor/weight_file/dtype.h"
#include "tensor/weight_file/pickle.h"
#include "tensor/weight_file/zip.h"

#include <stdio.h>
#include <string.h>

enum {
    TAR_MAGIC = 257,   /* offset of "ustar" */
    LEGACY_HEADER = 3, /* pickles before the object */
    MAX_PARTS = 3,     /* dicts within dicts */
    MAX_COPIES = 4     /* bytes of all copies, in sizes of the file */
};

/* Argument indexes of storages and tensors. */
enum { STORAGE_CLASS = 1, STORAGE_KEY = 2, STORAGE_COUNT = 4, STORAGE_VIEW = 5 };
enum { TENSOR_STORAGE, TENSOR_OFFSET, TENSOR_SIZES, TENSOR_STRIDES };

#define SAVE_STATE_DICT "save model.state_dict() with torch.save()"

typedef struct reader {
    lt_torch_file *file;
    const char *path, *map;
    size_t size, copied;
    lt_zip zip;
    lt_pickle_list storages; /* their text and bytes become the data */
    lt_pickle_value *root;
} reader;

/* Returns true for a length below 2^32 and the beginning of a header, such as 640: 0x80 0x02, as a pickle begins. */
static bool is_safetensors(const char *map, size_t size)
{
    static const char high_bytes[4] = {0};
    return size > 8 && !memcmp(map + 4, high_bytes, 4) && map[8] == '{';
}

bool lt_torch_is_file(const char *map, size_t size)
{
    const unsigned char *byte = (const unsigned char *)map;
    return size > 4 && !is_safetensors(map, size)
           && (!memcmp(map, "PK\003\004", 4) || (byte[0] == 0x80 && byte[1] >= 2 && byte[1] <= 5)
               || (size > TAR_MAGIC + 5 && !memcmp(map + TAR_MAGIC, "ustar", 5)));
}

static bool is_text(const lt_pickle_value *v, const char *text)
{
    const size_t bytes = strlen(text);
    return v->kind == LT_PICKLE_TEXT && v->bytes == bytes && !memcmp(v->text, text, bytes);
}

/* Reads the element's size, and the element count of a storage. */
static lt_status measure_storage(const reader *r, const lt_pickle_value *v, uint64_t *size,
                                 uint64_t *count)
{
    lt_safetensors_entry e = {0};
    size_t bytes = 0;
    const int64_t elements = v->item[STORAGE_COUNT]->integer;
    if (elements < 0 || !lt_weight_dtype(v->item[STORAGE_CLASS]->text, &e, &bytes))
        return lt_fail(LT_E_FORMAT, "%s: a storage of %lld elements", r->path, (long long)elements);
    *size = bytes;
    *count = (uint64_t)elements;
    return LT_OK;
}

/* Sets a storage's data, of which `available` bytes exist. */
static lt_status set_data(const reader *r, lt_pickle_value *v, const char *data, size_t available)
{
    uint64_t size = 1, count = 0;
    LT_TRY(measure_storage(r, v, &size, &count));
    if (count > available / size)
        return lt_fail(LT_E_FORMAT, "%s: storage '%.*s': %llu elements of %llu bytes in %zu bytes",
                       r->path, (int)(v->item[STORAGE_KEY]->bytes & 63), v->item[STORAGE_KEY]->text,
                       (unsigned long long)count, (unsigned long long)size, available);
    v->text = data;
    v->bytes = (size_t)(count * size);
    return LT_OK;
}

/* --- The ZIP form --- */

static lt_status check_is_stored(const reader *r, const lt_zip_member *m)
{
    return m->data ? LT_OK
                   : lt_fail(LT_E_UNSUPPORTED,
                             "%s: '%.*s' is compressed or encrypted; torch.save() stores it",
                             r->path, (int)(m->name_bytes < 100 ? m->name_bytes : 100), m->name);
}

static lt_status load_zip_storage(const reader *r, const lt_zip_member *pickle, lt_pickle_value *v)
{
    char name[512];
    const lt_pickle_value *key = v->item[STORAGE_KEY];
    const size_t folder = pickle->name_bytes - strlen("data.pkl");
    const int bytes = folder < 256 && key->bytes < 128
                          ? snprintf(name, sizeof name, "%.*sdata/%.*s", (int)folder, pickle->name,
                                     (int)key->bytes, key->text)
                          : 0;
    const lt_zip_member *m = lt_zip_find(&r->zip, name, (size_t)bytes);
    if (!m)
        return lt_fail(LT_E_FORMAT, "%s: the archive has no '%.*s'", r->path, bytes, name);
    LT_TRY(check_is_stored(r, m));
    return set_data(r, v, m->data, m->bytes);
}

static lt_status read_zip(reader *r)
{
    LT_TRY(lt_zip_open(&r->zip, r->path, r->map, r->size));
    const lt_zip_member *pickle = lt_zip_find_below(&r->zip, "data.pkl");
    const lt_zip_member *order = lt_zip_find_below(&r->zip, "byteorder");
    if (lt_zip_find_below(&r->zip, "constants.pkl"))
        return lt_fail(LT_E_UNSUPPORTED, "%s: a TorchScript archive; " SAVE_STATE_DICT, r->path);
    if (!pickle)
        return lt_fail(LT_E_FORMAT, "%s: a ZIP archive without data.pkl: not from torch.save()",
                       r->path);
    LT_TRY(check_is_stored(r, pickle));
    if (order && (order->bytes < 6 || memcmp(order->data, "little", 6) != 0))
        return lt_fail(LT_E_UNSUPPORTED, "%s: numbers in big-endian order", r->path);
    const char *at = pickle->data;
    LT_TRY(
        lt_pickle_read(&r->root, &at, at + pickle->bytes, r->path, &r->file->arena, &r->storages));
    for (size_t i = 0; i < r->storages.count; i++)
        LT_TRY(load_zip_storage(r, pickle, r->storages.item[i]));
    return LT_OK;
}

/* --- The form of consecutive pickles --- */

static int compare_texts(const lt_pickle_value *a, const lt_pickle_value *b)
{
    const size_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    const int order = bytes ? memcmp(a->text, b->text, bytes) : 0;
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_storages(const void *a, const void *b)
{
    lt_pickle_value *const *x = a, *const *y = b;
    return compare_texts((*x)->item[STORAGE_KEY], (*y)->item[STORAGE_KEY]);
}

/* Returns the index of the first storage, in sorted order, whose key is not less. */
static size_t find_storage(const lt_pickle_list *storages, const lt_pickle_value *key)
{
    size_t low = 0, high = storages->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_texts(storages->item[middle]->item[STORAGE_KEY], key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Reads the data of all storages with one key at *at, and advances *at. */
static lt_status load_legacy_storage(const reader *r, const lt_pickle_value *key, const char **at)
{
    enum { COUNT_BYTES = 8 };
    const size_t left = r->size - (size_t)(*at - r->map), first = find_storage(&r->storages, key);
    if (key->kind != LT_PICKLE_TEXT || first == r->storages.count
        || compare_texts(r->storages.item[first]->item[STORAGE_KEY], key) != 0 || left < COUNT_BYTES
        || r->storages.item[first]->bytes)
        return lt_fail(LT_E_FORMAT, "%s: invalid list of storages, or truncated", r->path);
    *at += COUNT_BYTES; /* the number of elements again */
    for (size_t i = first;
         i < r->storages.count && !compare_texts(r->storages.item[i]->item[STORAGE_KEY], key); i++)
        LT_TRY(set_data(r, r->storages.item[i], *at, left - COUNT_BYTES));
    *at += r->storages.item[first]->bytes;
    return LT_OK;
}

static lt_status read_legacy(reader *r)
{
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    const char *at = r->map, *end = r->map + r->size;
    lt_pickle_value *keys = NULL;
    for (int i = 0; i <= LEGACY_HEADER; i++) {
        LT_TRY(lt_pickle_read(&r->root, &at, end, r->path, &r->file->arena, &r->storages));
        if (!i && (r->root->bytes != sizeof magic - 1 || memcmp(r->root->text, magic, 10) != 0))
            return lt_fail(LT_E_FORMAT, "%s: a pickle, but not from torch.save()", r->path);
    }
    LT_TRY(lt_pickle_read(&keys, &at, end, r->path, &r->file->arena, &r->storages));
    if (keys->kind != LT_PICKLE_LIST)
        return lt_fail(LT_E_FORMAT, "%s: its storages are not a list", r->path);
    if (r->storages.count)
        qsort(r->storages.item, r->storages.count, sizeof *r->storages.item, compare_storages);
    for (size_t i = 0; i < keys->count; i++)
        LT_TRY(load_legacy_storage(r, keys->item[i], &at));
    return LT_OK;
}

/* --- Tensors --- */

/* Shape, strides and storage of a tensor, in elements. */
typedef struct view {
    lt_shape shape;
    int64_t stride[LT_MAX_DIMS];
    const char *data;
    int64_t count, last; /* elements, and offset of the last one */
    bool is_contiguous;
} view;

static lt_status fail_tensor(const reader *r, const char *name, const char *what)
{
    return lt_fail(LT_E_FORMAT, "%s: tensor '%.100s': %s", r->path, name, what);
}

/* Checks sizes and strides; computes their count and last offset. */
static lt_status measure_view(const reader *r, const char *name, const lt_pickle_value *tensor,
                              view *v)
{
    const lt_pickle_value *sizes = tensor->item[TENSOR_SIZES];
    const lt_pickle_value *strides = tensor->item[TENSOR_STRIDES];
    if (sizes->count > LT_MAX_DIMS || strides->count != sizes->count)
        return lt_fail(LT_E_FORMAT, "%s: tensor '%.100s': %zu sizes and %zu strides, at most %d",
                       r->path, name, sizes->count, strides->count, LT_MAX_DIMS);
    v->count = 1;
    v->is_contiguous = true;
    for (size_t i = sizes->count; i-- > 0;) {
        const lt_pickle_value *size = sizes->item[i], *stride = strides->item[i];
        int64_t reach;
        if (size->kind != LT_PICKLE_INT || stride->kind != LT_PICKLE_INT || size->integer < 0
            || stride->integer < 0)
            return fail_tensor(r, name, "a size or stride is not a non-negative integer");
        if (size->integer > 1 && stride->integer != v->count)
            v->is_contiguous = false;
        if (__builtin_mul_overflow(v->count, size->integer, &v->count)
            || __builtin_mul_overflow(size->integer ? size->integer - 1 : 0, stride->integer,
                                      &reach)
            || __builtin_add_overflow(v->last, reach, &v->last))
            return fail_tensor(r, name, "its size overflows");
        v->shape.dim[i] = size->integer;
        v->stride[i] = stride->integer;
    }
    v->shape.ndim = (int)sizes->count;
    return LT_OK;
}

/* Places the view in its storage. */
static lt_status place_view(const reader *r, const char *name, const lt_pickle_value *tensor,
                            size_t element, view *v)
{
    const lt_pickle_value *storage = tensor->item[TENSOR_STORAGE];
    const lt_pickle_value *outer =
        storage->count > STORAGE_VIEW ? storage->item[STORAGE_VIEW] : NULL;
    const int64_t most = (int64_t)(storage->bytes / element);
    int64_t offset = tensor->item[TENSOR_OFFSET]->integer;
    if (outer && outer->kind == LT_PICKLE_LIST
        && (outer->count < 2 || outer->item[1]->kind != LT_PICKLE_INT || outer->item[1]->integer < 0
            || __builtin_add_overflow(offset, outer->item[1]->integer, &offset)))
        return fail_tensor(r, name, "an invalid view of a storage");
    v->data = r->map;
    if (!v->count)
        return LT_OK;
    if (offset < 0 || offset >= most || v->last >= most - offset)
        return lt_fail(LT_E_FORMAT,
                       "%s: tensor '%.100s': elements %lld to %lld of a storage of %lld", r->path,
                       name, (long long)offset, (long long)(offset + v->last), (long long)most);
    if (v->count > most)
        return fail_tensor(r, name, "an expanded view; save its contiguous()");
    v->data = storage->text + (size_t)offset * element;
    return LT_OK;
}

/* Copies the elements of a view in row-major order. */
static lt_status copy_view(reader *r, const char *name, size_t element, view *v)
{
    int64_t at[LT_MAX_DIMS] = {0};
    const size_t bytes = (size_t)v->count * element;
    if (bytes > MAX_COPIES * r->size - r->copied)
        return fail_tensor(r, name, "too many views of few elements; save their contiguous()");
    r->copied += bytes;
    char *to = lt_arena_alloc(&r->file->arena, bytes);
    if (!to)
        return LT_E_NOMEM;
    for (size_t done = 0; done < bytes; done += element) {
        int64_t from = 0;
        for (int d = 0; d < v->shape.ndim; d++)
            from += at[d] * v->stride[d];
        memcpy(to + done, v->data + (size_t)from * element, element);
        for (int d = v->shape.ndim; d-- > 0 && ++at[d] == v->shape.dim[d];)
            at[d] = 0;
    }
    v->data = to;
    return LT_OK;
}

static char *copy_text(reader *r, const lt_pickle_value *v)
{
    char *text = lt_arena_alloc(&r->file->arena, v->bytes + 1);
    if (text && v->bytes)
        memcpy(text, v->text, v->bytes);
    return text;
}

static lt_status add_tensor(reader *r, const lt_pickle_value *key, const lt_pickle_value *tensor)
{
    lt_torch_file *f = r->file;
    view v = {0};
    size_t element = 0;
    LT_TRY(LT_GROW(&f->entry, &f->capacity, f->count + 1));
    lt_safetensors_entry e = {.name = copy_text(r, key)};
    if (!e.name)
        return LT_E_NOMEM;
    (void)lt_weight_dtype(tensor->item[TENSOR_STORAGE]->item[STORAGE_CLASS]->text, &e,
                          &element); /* the storage was measured */
    LT_TRY(measure_view(r, e.name, tensor, &v));
    LT_TRY(place_view(r, e.name, tensor, element, &v));
    if (v.count && !v.is_contiguous)
        LT_TRY(copy_view(r, e.name, element, &v));
    e.shape = v.shape;
    e.data = v.data;
    e.bytes = (size_t)v.count * element;
    f->entry[f->count++] = e;
    return LT_OK;
}

/* --- The dict of tensors --- */

static lt_pickle_value *find_key(const lt_pickle_value *dict, const char *key)
{
    for (size_t i = 0; dict->kind == LT_PICKLE_DICT && i + 1 < dict->count; i += 2)
        if (is_text(dict->item[i], key))
            return dict->item[i + 1];
    return NULL;
}

/* Finds the dict of weights in a training script's checkpoint. Averages come first, as timm's load_checkpoint() takes
 * them. */
static lt_pickle_value *choose_part(const lt_pickle_value *dict, const char **key)
{
    static const char *const keys[] = {"state_dict_ema", "model_ema",        "ema",
                                       "state_dict",     "model_state_dict", "model"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        lt_pickle_value *v = find_key(dict, keys[i]);
        if (v && v->kind == LT_PICKLE_DICT && v->count) {
            *key = keys[i];
            return v;
        }
    }
    return NULL;
}

static lt_status add_tensors(reader *r)
{
    lt_pickle_value *dict = r->root;
    for (int i = 0; i < MAX_PARTS; i++) {
        lt_pickle_value *part = choose_part(dict, &r->file->part);
        dict = part ? part : dict;
    }
    if (dict->kind != LT_PICKLE_DICT)
        return lt_fail(LT_E_FORMAT, "%s: holds a single value, not a state_dict; " SAVE_STATE_DICT,
                       r->path);
    for (size_t i = 0; i + 1 < dict->count; i += 2) {
        const lt_pickle_value *key = dict->item[i], *value = dict->item[i + 1];
        if (value->kind != LT_PICKLE_TENSOR || is_text(key, "n_averaged")) /* AveragedModel's */
            continue;
        if (key->kind != LT_PICKLE_TEXT || memchr(key->text, 0, key->bytes))
            return lt_fail(LT_E_FORMAT, "%s: the name of a tensor is not a text", r->path);
        LT_TRY(add_tensor(r, key, value));
    }
    return r->file->count
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: holds no tensors by name; " SAVE_STATE_DICT, r->path);
}

/* Reads the number of heads that nanoGPT saves with its weights. */
static lt_status read_heads(reader *r)
{
    enum { DIGITS = 24 };
    const lt_pickle_value *args = find_key(r->root, "model_args");
    const lt_pickle_value *heads = args ? find_key(args, "n_head") : NULL;
    if (!heads || heads->kind != LT_PICKLE_INT)
        return LT_OK;
    char *text = lt_arena_alloc(&r->file->arena, DIGITS);
    if (!text)
        return LT_E_NOMEM;
    snprintf(text, DIGITS, "%lld", (long long)heads->integer);
    r->file->heads = text;
    return LT_OK;
}

lt_status lt_torch_read(lt_torch_file *file, const char *path, const char *map, size_t size)
{
    reader r = {.file = file, .path = path, .map = map, .size = size};
    lt_status st;
    if (map[0] == 'P')
        st = read_zip(&r);
    else if ((unsigned char)map[0] == 0x80)
        st = read_legacy(&r);
    else
        st = lt_fail(
            LT_E_UNSUPPORTED,
            "%s: a tar archive of PyTorch before 0.1.10; save it with a newer torch.save()", path);
    if (!st)
        st = add_tensors(&r);
    if (!st)
        st = read_heads(&r);
    lt_free(r.zip.member);
    lt_free(r.storages.item);
    return st;
}

void lt_torch_clear(lt_torch_file *file)
{
    lt_arena_free(&file->arena);
    lt_free(file->entry);
    *file = (lt_torch_file){0};
}
