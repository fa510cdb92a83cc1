/* Reads MNIST's idx files: magic 00 00 08 (unsigned bytes) and the number of dimensions, the dimensions as big-endian
 * 32-bit numbers, then the data. Source: LeCun, Cortes & Burges, "The MNIST database", the section on file formats. The
 * whole data set is kept in memory: 47 MB for Fashion-MNIST. */

#include "base/alloc.h"
#include "base/big_endian.h"
#include "base/hash.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

typedef struct idx {
    lt_dataset base;
    uint8_t *pixels, *labels;
    int32_t width, height;
    const char *const *class_names; /* NULL without names */
} idx;

enum { IMAGES = 3, LABELS = 1, MAX_SIDE = 1 << 14 };

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const idx *s = (const idx *)self;
    size_t bytes = (size_t)s->width * (size_t)s->height;
    LT_TRY(lt_record_reserve(record, bytes));
    memcpy(record->bytes, s->pixels + (size_t)index * bytes, bytes);
    record->size = bytes;
    record->encoding = LT_ENCODING_PIXELS;
    record->width = s->width;
    record->height = s->height;
    record->channels = 1;
    record->label = s->labels[index];
    return LT_OK;
}

static const char *class_name(const lt_dataset *self, int label)
{
    const idx *s = (const idx *)self;
    return s->class_names ? s->class_names[label] : NULL;
}

static void destroy(lt_dataset *self)
{
    idx *s = (idx *)self;
    lt_free(s->pixels);
    lt_free(s->labels);
}

static uint64_t fingerprint(const lt_dataset *self, uint64_t hash)
{
    return lt_fnv1a(hash, ((const idx *)self)->labels, (size_t)self->count);
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    *label = ((const idx *)self)->labels[index];
    return LT_OK;
}

static const lt_dataset_ops ops = {
    .name = "idx",
    .bytes = sizeof(idx),
    .read = read_sample,
    .class_name = class_name,
    .fingerprint = fingerprint,
    .label = read_label,
    .destroy = destroy,
};

/* Reads the magic number and the dimensions. */
static lt_status read_header(lt_stream_in *in, const char *path, int dims, uint32_t *dim)
{
    uint8_t head[4 + 4 * IMAGES];
    LT_TRY(lt_file_stream_read(in, head, 4 + 4 * (size_t)dims));
    if (head[0] || head[1] || head[2] != 8 || head[3] != dims)
        return lt_fail(
            LT_E_FORMAT,
            "%s: begins with %02x %02x %02x %02x; an idx file of %s begins with 00 00 08 %02x",
            path, head[0], head[1], head[2], head[3], dims == IMAGES ? "images" : "labels",
            (unsigned)dims);
    for (int i = 0; i < dims; i++) {
        dim[i] = (uint32_t)lt_read_big_endian(head + 4 + (size_t)4 * (size_t)i, 4);
        if (!dim[i])
            return lt_fail(LT_E_FORMAT, "%s: dimension %d is zero", path, i);
    }
    if (dims == IMAGES && (dim[1] > MAX_SIDE || dim[2] > MAX_SIDE))
        return lt_fail(LT_E_FORMAT, "%s: images of %u x %u pixels; sides may have at most %d", path,
                       dim[2], dim[1], MAX_SIDE);
    return LT_OK;
}

/* Reads size bytes; allocates as data arrives, because a header may claim any size. */
static lt_status read_bytes(lt_stream_in *in, uint64_t size, uint8_t **out)
{
    const uint64_t least = 16 << 20;
    uint8_t *bytes = NULL;
    for (uint64_t at = 0, end; at < size; at = end) {
        end = at ? 2 * at : least;
        end = end < size ? end : size;
        uint8_t *grown = lt_realloc(bytes, (size_t)end, 1);
        lt_status st = grown ? lt_file_stream_read(in, grown + at, (size_t)(end - at)) : LT_E_NOMEM;
        bytes = grown ? grown : bytes;
        if (st) {
            lt_free(bytes);
            return st;
        }
    }
    *out = bytes;
    return LT_OK;
}

/* Reads an idx file: the header and the data, whose size must be the product of the dimensions. */
static lt_status read_file(const char *path, int dims, uint32_t *dim, uint8_t **out)
{
    lt_stream_in *in = NULL;
    uint8_t *bytes = NULL;
    LT_TRY(lt_file_stream_open(&in, path));
    lt_status st = read_header(in, path, dims, dim);
    uint64_t size = dim[0];
    for (int i = 1; i < dims; i++)
        size *= dim[i]; /* at most 2^32 * 2^14 * 2^14 */
    if (!st && size > lt_file_stream_size_bound(in))
        st = lt_fail(LT_E_FORMAT,
                     "%s: the file ends too early: its %u samples need %" PRIu64
                     " bytes, and at most %" PRIu64
                     " can follow (gzip: up to 100 times the file; unpack it if it holds more)",
                     path, dim[0], size, lt_file_stream_size_bound(in));
    if (!st)
        st = read_bytes(in, size, &bytes);
    if (!st && !lt_file_stream_at_end(in))
        st = lt_fail(LT_E_FORMAT, "%s: more data follows its %u samples", path, dim[0]);
    lt_file_stream_close(&in);
    if (st)
        lt_free(bytes);
    else
        *out = bytes;
    return st;
}

static lt_status check_labels(const idx *s, const char *path, int classes, int32_t *found)
{
    int32_t most = 0;
    LT_ASSERT(s->labels);
    for (int64_t i = 0; i < s->base.count; i++) {
        if (classes && s->labels[i] >= classes)
            return lt_fail(LT_E_FORMAT, "%s: sample %lld has label %d, want 0 .. %d", path,
                           (long long)i, s->labels[i], classes - 1);
        most = s->labels[i] > most ? s->labels[i] : most;
    }
    *found = classes ? classes : most + 1;
    return LT_OK;
}

static lt_status load_idx_files(idx *s, const char *images, const char *labels, int classes)
{
    uint32_t size[IMAGES] = {0}, count[LABELS] = {0};
    LT_TRY(read_file(images, IMAGES, size, &s->pixels));
    LT_TRY(read_file(labels, LABELS, count, &s->labels));
    if (size[0] != count[0])
        return lt_fail(LT_E_FORMAT, "%s has %u images, %s has %u labels", images, size[0], labels,
                       count[0]);
    s->base.count = size[0];
    s->base.channels = 1;
    s->height = (int32_t)size[1];
    s->width = (int32_t)size[2];
    return check_labels(s, labels, classes, &s->base.classes);
}

lt_status lt_dataset_idx(lt_dataset **out, const char *images, const char *labels, int classes)
{
    if (classes < 0)
        return lt_fail(LT_E_ARG, "idx: got %d classes, want 0 or more", classes);
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    return lt_dataset_set_or_free(out, d, load_idx_files((idx *)d, images, labels, classes));
}

/* Sets *out to FOLDER/PART-KIND-ubyte, or that with .gz, or NULL if neither exists; lt_free() it. */
static lt_status find_mnist_file(char **out, const char *folder, bool train, const char *kind)
{
    static const char *const ends[] = {"", ".gz"};
    *out = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *path = lt_format("%s/%s-%s-ubyte%s", folder, train ? "train" : "t10k", kind, ends[i]);
        if (!path)
            return LT_E_NOMEM;
        if (!access(path, F_OK)) {
            *out = path;
            return LT_OK;
        }
        lt_free(path);
    }
    return LT_OK;
}

lt_status lt_has_mnist(bool *out, const char *folder, bool train)
{
    char *images = NULL;
    LT_TRY(find_mnist_file(&images, folder, train, "images-idx3"));
    *out = images;
    lt_free(images);
    return LT_OK;
}

static lt_status open_mnist(lt_dataset **out, const char *folder, bool train, int classes)
{
    char *images = NULL, *labels = NULL;
    lt_status st = find_mnist_file(&images, folder, train, "images-idx3");
    if (!st)
        st = find_mnist_file(&labels, folder, train, "labels-idx1");
    if (!st && !(images && labels))
        st = lt_fail(LT_E_IO, "%s: no %s-%s-ubyte[.gz]", folder, train ? "train" : "t10k",
                     images ? "labels-idx1" : "images-idx3");
    if (!st)
        st = lt_dataset_idx(out, images, labels, classes);
    lt_free(images);
    lt_free(labels);
    return st;
}

lt_status lt_dataset_mnist(lt_dataset **out, const char *folder, bool train)
{
    return open_mnist(out, folder, train, 0);
}

lt_status lt_dataset_fashion_mnist(lt_dataset **out, bool train)
{
    static const char *const names[] = {"T-shirt/top", "Trouser",   "Pullover", "Dress",
                                        "Coat",        "Sandal",    "Shirt",    "Sneaker",
                                        "Bag",         "Ankle boot"};
    const char *folder = getenv("LATHER_FASHION_MNIST");
    if (!folder)
        folder = "/usr/share/datasets/fashion-mnist";
    if (!lt_is_folder(folder))
        return lt_fail(LT_E_IO,
                       "%s: no such folder; install Debian's package dataset-fashion-mnist or set "
                       "LATHER_FASHION_MNIST to a folder with its four files",
                       folder);
    LT_TRY(open_mnist(out, folder, train, sizeof names / sizeof *names));
    ((idx *)*out)->class_names = names;
    return LT_OK;
}
