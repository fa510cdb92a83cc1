/* The images of a tar file in WebDataset's layout: members that share a name up to its first dot
 * are one sample, NAME.jpg the image, NAME.cls its label, wherever it is; without a .cls the folder
 * is the class. The index is cached beside the tar file, so that later runs need not scan it. */

#include "base/alloc.h"
#include "base/commit.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "data/cache/disk_copy.h"
#include "data/datasets/datasets.h"
#include "data/datasets/tar.h"
#include "data/files/files.h"

#include "lather/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LABEL_TEXT = 16 };

/* A label that is not adjacent to its image. */
typedef struct apart {
    char *key; /* owned */
    int64_t label;
} apart;

typedef struct builder {
    lt_tar_index *index;
    size_t capacity, text_capacity;
    apart *apart;
    size_t aparts, apart_capacity;
    const char *path;
    int fd;
    /* The sample at hand. */
    char *key;
    bool has_image;
    lt_tar_sample sample;
} builder;

/* Bytes of a name before the first dot of its last part: what members of a sample share. */
static size_t key_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    return (size_t)(last - name) + strcspn(last, ".");
}

static lt_status keep_name(builder *b, const char *name)
{
    lt_tar_index *x = b->index;
    size_t bytes = strlen(name) + 1;
    if (x->text_size + bytes > UINT32_MAX)
        return lt_fail(LT_E_FORMAT, "%s: more than 4 GiB of names", b->path);
    char *text = lt_grow(x->text, &b->text_capacity, x->text_size + bytes, 1);
    if (!text)
        return LT_E_NOMEM;
    x->text = text;
    memcpy(x->text + x->text_size, name, bytes);
    b->sample.name = (uint32_t)x->text_size;
    x->text_size += bytes;
    const char *slash = strrchr(name, '/');
    b->sample.folder = slash ? (uint32_t)(slash - name) : 0;
    return LT_OK;
}

static lt_status read_label(builder *b, const lt_tar_member *m)
{
    char text[MAX_LABEL_TEXT + 1] = {0}, *end;
    if (m->size > MAX_LABEL_TEXT
        || pread(b->fd, text, (size_t)m->size, (off_t)m->offset) != (ssize_t)m->size)
        return lt_fail(LT_E_FORMAT, "%s: %s is no label", b->path, m->name);
    long long value = strtoll(text, &end, 10);
    end += strspn(end, " \t\r\n");
    if (end == text || *end || value < 0 || value > INT32_MAX)
        return lt_fail(LT_E_FORMAT, "%s: %s holds '%s', not a class number", b->path, m->name,
                       text);
    b->sample.label = value;
    return LT_OK;
}

/* Keeps the key too. */
static lt_status set_apart(builder *b)
{
    apart *list = lt_grow(b->apart, &b->apart_capacity, b->aparts + 1, sizeof *list);
    if (!list)
        return LT_E_NOMEM;
    b->apart = list;
    b->apart[b->aparts++] = (apart){b->key, b->sample.label};
    b->key = NULL;
    return LT_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const apart *)a)->key, ((const apart *)b)->key);
}

static lt_status find_label(const builder *b, const char *name, int64_t *label)
{
    const apart key = {.key = lt_format("%.*s", (int)key_length(name), name)};
    if (!key.key)
        return LT_E_NOMEM;
    const apart *found = bsearch(&key, b->apart, b->aparts, sizeof key, compare_keys);
    lt_free(key.key);
    if (found)
        *label = found->label;
    return LT_OK;
}

/* Joins images and labels that are not adjacent, as in tar files written in readdir order. */
static lt_status join_aparts(builder *b)
{
    lt_tar_index *x = b->index;
    if (b->aparts)
        qsort(b->apart, b->aparts, sizeof *b->apart, compare_keys);
    for (size_t i = 0; i < x->count; i++) {
        lt_tar_sample *s = &x->sample[i];
        const char *name = x->text + s->name;
        if (s->label < 0 && b->aparts)
            LT_TRY(find_label(b, name, &s->label));
        if (s->label < 0 && !s->folder)
            return lt_fail(LT_E_FORMAT, "%s: %s has no .cls, and is in no folder", b->path, name);
    }
    return LT_OK;
}

/* Ends the sample at hand; one without an image is left out. */
static lt_status finish_sample(builder *b)
{
    lt_tar_index *x = b->index;
    if (b->key && !b->has_image && b->sample.label >= 0)
        LT_TRY(set_apart(b));
    if (b->has_image) {
        lt_tar_sample *list = lt_grow(x->sample, &b->capacity, x->count + 1, sizeof *list);
        if (!list)
            return LT_E_NOMEM;
        x->sample = list;
        x->sample[x->count++] = b->sample;
    }
    lt_free(b->key);
    b->key = NULL;
    b->has_image = false;
    return LT_OK;
}

static lt_status start_sample(builder *b, const char *name, size_t key)
{
    LT_TRY(finish_sample(b));
    b->sample = (lt_tar_sample){.label = -1};
    b->key = lt_alloc(key + 1, 1);
    if (!b->key)
        return LT_E_NOMEM;
    memcpy(b->key, name, key);
    return LT_OK;
}

static lt_status add_member(void *context, const lt_tar_member *m)
{
    builder *b = context;
    const char *name = m->name + (strncmp(m->name, "./", 2) ? 0 : 2);
    size_t key = key_length(name);
    const char *extension = name + key;
    if (!b->key || strlen(b->key) != key || memcmp(b->key, name, key) != 0)
        LT_TRY(start_sample(b, name, key));
    if (!strcmp(extension, ".cls"))
        return read_label(b, m);
    if (!lt_is_image(extension))
        return LT_OK;
    if (b->has_image)
        return lt_fail(LT_E_FORMAT, "%s: two images are named %s", b->path, b->key);
    b->has_image = true;
    b->sample.offset = m->offset;
    b->sample.size = m->size;
    return keep_name(b, name);
}

static int compare_names(const void *a, const void *b, void *text)
{
    const char *names = text;
    return strcmp(names + *(const uint32_t *)a, names + *(const uint32_t *)b);
}

/* Rejects duplicate names, as of an appended tar file, where tar would extract the last. */
static lt_status check_twice(const lt_tar_index *x, const char *path)
{
    uint32_t *name = lt_alloc(x->count, sizeof *name);
    if (!name)
        return LT_E_NOMEM;
    for (size_t i = 0; i < x->count; i++)
        name[i] = x->sample[i].name;
    qsort_r(name, x->count, sizeof *name, compare_names, x->text);
    lt_status st = LT_OK;
    for (size_t i = 1; i < x->count && !st; i++)
        if (!strcmp(x->text + name[i - 1], x->text + name[i]))
            st = lt_fail(LT_E_FORMAT, "%s: two images are named %s", path, x->text + name[i]);
    lt_free(name);
    return st;
}

lt_status lt_tar_index_build(lt_tar_index *out, int fd, const char *path)
{
    builder b = {.index = out, .path = path, .fd = fd};
    lt_status st = lt_tar_scan(fd, path, add_member, &b);
    if (!st)
        st = finish_sample(&b);
    if (!st)
        st = join_aparts(&b);
    for (size_t i = 0; i < b.aparts; i++)
        lt_free(b.apart[i].key);
    lt_free(b.apart);
    lt_free(b.key);
    if (!st && !out->count)
        st = lt_fail(LT_E_FORMAT, "%s: no " LT_IMAGE_NAMES " file in this tar file", path);
    return st ? st : check_twice(out, path);
}

/* --- The index file: this header, the samples, the text; in this machine's byte order --- */

typedef struct kept {
    char magic[8];
    uint64_t order;               /* rejects files of another byte order */
    uint64_t tar_size;            /* bytes of the tar file */
    int64_t tar_second, tar_nano; /* when it was changed last */
    uint64_t samples, text_size;
    uint32_t crc; /* of samples and text */
    uint32_t unused;
} kept;

static const char magic[8] = "LTTARIX2";
static const uint64_t byte_order = 0x0102030405060708;

static kept describe(const lt_tar_index *x, const struct stat *tar)
{
    kept k = {.order = byte_order,
              .tar_size = (uint64_t)tar->st_size,
              .tar_second = tar->st_mtim.tv_sec,
              .tar_nano = tar->st_mtim.tv_nsec,
              .samples = x->count,
              .text_size = x->text_size};
    memcpy(k.magic, magic, sizeof magic);
    k.crc = lt_crc32c(lt_crc32c(0, x->sample, x->count * sizeof *x->sample), x->text, x->text_size);
    return k;
}

/* Every sample lies in the tar file, every name in the text. */
static bool is_sound(const lt_tar_index *x, uint64_t tar_size)
{
    if (!x->count || !x->text_size || x->text[x->text_size - 1])
        return false;
    for (size_t i = 0; i < x->count; i++) {
        const lt_tar_sample *s = &x->sample[i];
        if (s->offset > tar_size || s->size > tar_size - s->offset || s->name >= x->text_size
            || s->folder > strlen(x->text + s->name))
            return false;
    }
    return true;
}

/* Reads samples and text, whose sizes must add up to the file's. */
static bool read_parts(FILE *file, const kept *k, lt_tar_index *x)
{
    struct stat info;
    const uint64_t one = sizeof *x->sample;
    if (fstat(fileno(file), &info) || k->samples > (uint64_t)info.st_size / one
        || k->text_size > (uint64_t)info.st_size
        || sizeof *k + k->samples * one + k->text_size != (uint64_t)info.st_size)
        return false;
    x->count = (size_t)k->samples;
    x->text_size = (size_t)k->text_size;
    x->sample = lt_alloc(x->count + 1, sizeof *x->sample);
    x->text = lt_alloc(x->text_size + 1, 1);
    return x->sample && x->text && fread(x->sample, one, x->count, file) == x->count
           && fread(x->text, 1, x->text_size, file) == x->text_size;
}

/* False, and *out unchanged: no index, or not of the file's present size and time. */
static bool load(lt_tar_index *out, const char *path, const struct stat *tar)
{
    kept found;
    lt_tar_index x = {0};
    FILE *file = NULL;
    bool ok = !lt_file_open(&file, path) && fread(&found, sizeof found, 1, file) == 1
              && !memcmp(found.magic, magic, sizeof magic) && found.order == byte_order
              && read_parts(file, &found, &x);
    if (file)
        fclose(file);
    if (ok) {
        const kept want = describe(&x, tar);
        ok = !memcmp(&found, &want, sizeof want) && is_sound(&x, want.tar_size);
    }
    if (ok)
        *out = x;
    else
        lt_tar_index_clear(&x);
    return ok;
}

static bool write_parts(FILE *file, const lt_tar_index *x, const struct stat *tar)
{
    const kept k = describe(x, tar);
    return fwrite(&k, sizeof k, 1, file) == 1
           && fwrite(x->sample, sizeof *x->sample, x->count, file) == x->count
           && fwrite(x->text, 1, x->text_size, file) == x->text_size;
}

/* Writes a temporary file and renames it. */
static bool save(const lt_tar_index *x, const char *path, const struct stat *tar)
{
    char *temp = lt_format("%s.%ld", path, (long)getpid());
    FILE *file = temp ? fopen(temp, "wbe") : NULL;
    bool ok = file && write_parts(file, x, tar);
    if (file)
        ok = !fclose(file) && ok;
    ok = ok && !rename(temp, path);
    if (!ok && temp)
        unlink(temp);
    lt_free(temp);
    return ok;
}

/* Index path in the user's cache (XDG base directory specification 0.8), for tar files in folders
 * that cannot be written to. NULL: no such folder is set. */
static char *path_in_cache(const char *tar)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && *cache == '/';
    char *real = realpath(tar, NULL), *path = NULL;
    char *folder = given                  ? lt_format("%s/lather", cache)
                   : home && *home == '/' ? lt_format("%s/.cache/lather", home)
                                          : NULL;
    if (real && folder)
        path = lt_disk_copy_path(folder, &(lt_disk_object){.path = real});
    free(real);
    lt_free(folder);
    return path;
}

static bool save_in_cache(const lt_tar_index *x, const char *path, const struct stat *tar)
{
    char *folder = path ? lt_format("%.*s", (int)(strrchr(path, '/') - path), path) : NULL;
    bool ok = folder && !lt_commit_make_folders(folder) && save(x, path, tar);
    lt_free(folder);
    return ok;
}

static lt_status find_or_build(lt_tar_index *x, int fd, const char *path, const struct stat *tar)
{
    char *beside = lt_format("%s.index", path), *cached = path_in_cache(path);
    lt_status st = beside ? LT_OK : LT_E_NOMEM;
    if (!st && !load(x, beside, tar) && !(cached && load(x, cached, tar))) {
        st = lt_tar_index_build(x, fd, path);
        if (!st && !save(x, beside, tar) && !save_in_cache(x, cached, tar))
            lt_log(LT_LOG_INFO, "data", "%s: not written (%s): the tar file is read through again",
                   beside, strerror(errno));
    }
    lt_free(beside);
    lt_free(cached);
    return st;
}

lt_status lt_tar_index_open(lt_tar_index *out, const char *path)
{
    struct stat info;
    lt_tar_index x = {0};
    int fd;
    LT_TRY(lt_file_descriptor(&fd, &info, path));
    lt_status st = find_or_build(&x, fd, path, &info);
    close(fd);
    if (st)
        lt_tar_index_clear(&x);
    else
        *out = x;
    return st;
}

void lt_tar_index_clear(lt_tar_index *index)
{
    lt_free(index->sample);
    lt_free(index->text);
    *index = (lt_tar_index){0};
}
