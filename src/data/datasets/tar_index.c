/* Indexes the images of a tar file in one of two layouts. WebDataset: NAME.cls, anywhere in the file, has the label of
 * NAME.jpg. Without any .cls: class folders, as in an image folder. The index is cached next to the tar file, so that
 * later runs need not scan it. */

#include "data/datasets/tar_index.h"

#include "base/alloc.h"
#include "base/atomic_dir.h"
#include "base/encoding/crc32c.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/shared_file.h"
#include "data/datasets/datasets.h"
#include "data/datasets/tar_scan.h"
#include "data/files/files.h"

#include "lather/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_LABEL_TEXT = 16 };

typedef struct label {
    char *stem; /* owned; name of the .cls file without extension */
    int64_t value;
} label;

typedef struct builder {
    lt_tar_index *index;
    size_t capacity, text_capacity;
    label *label;
    size_t labels, label_capacity;
    lt_paths folders; /* "FOLDER/" of folders and of files that are not images */
    const char *path;
    int fd;
} builder;

/* Returns the length of a name without its extension. */
static size_t stem_length(const char *name)
{
    const char *slash = strrchr(name, '/'), *dot = strrchr(slash ? slash : name, '.');
    return dot ? (size_t)(dot - name) : strlen(name);
}

static size_t folder_path_length(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash ? (size_t)(slash - name) : 0;
}

/* Appends a name to the text of the index. */
static lt_status append_name(builder *b, const char *name)
{
    lt_tar_index *x = b->index;
    size_t bytes = strlen(name) + 1;
    if (x->text_size + bytes > UINT32_MAX)
        return lt_fail(LT_E_FORMAT, "%s: more than 4 GiB of names", b->path);
    LT_TRY(LT_GROW(&x->text, &b->text_capacity, x->text_size + bytes));
    memcpy(x->text + x->text_size, name, bytes);
    x->text_size += bytes;
    return LT_OK;
}

static lt_status add_image(builder *b, const lt_tar_member *m, const char *name)
{
    lt_tar_index *x = b->index;
    LT_TRY(LT_GROW(&x->sample, &b->capacity, x->count + 1));
    x->sample[x->count] = (lt_tar_sample){.offset = m->offset,
                                          .size = m->size,
                                          .label = -1,
                                          .name = (uint32_t)x->text_size,
                                          .folder = (uint32_t)folder_path_length(name)};
    LT_TRY(append_name(b, name));
    x->count++;
    return LT_OK;
}

static lt_status add_cls_label(builder *b, const lt_tar_member *m, const char *name)
{
    char text[MAX_LABEL_TEXT + 1] = {0}, *end;
    if (m->size > MAX_LABEL_TEXT
        || pread(b->fd, text, (size_t)m->size, (off_t)m->offset) != (ssize_t)m->size)
        return lt_fail(LT_E_FORMAT, "%s: %s has %" PRIu64 " bytes, more than a class number",
                       b->path, m->name, m->size);
    long long value = strtoll(text, &end, 10);
    end += strspn(end, " \t\r\n");
    if (end == text || *end || value < 0 || value > INT32_MAX)
        return lt_fail(LT_E_FORMAT, "%s: %s contains '%s', not a class number", b->path, m->name,
                       text);
    LT_TRY(LT_GROW(&b->label, &b->label_capacity, b->labels + 1));
    b->label[b->labels] = (label){lt_format("%.*s", (int)stem_length(name), name), value};
    return b->label[b->labels++].stem ? LT_OK : LT_E_NOMEM;
}

/* Adds "FOLDER/" unless it was the last one added: files of a folder are usually adjacent. */
static lt_status add_folder(builder *b, const char *name, size_t bytes)
{
    const char *last = b->folders.count ? b->folders.path[b->folders.count - 1] : "";
    if (!bytes || (!strncmp(last, name, bytes) && !strcmp(last + bytes, "/")))
        return LT_OK;
    return lt_paths_add(&b->folders, lt_format("%.*s/", (int)bytes, name));
}

static lt_status add_member(void *context, const lt_tar_member *m)
{
    builder *b = context;
    const char *name = m->name + (strncmp(m->name, "./", 2) ? 0 : 2);
    if (lt_is_hidden(name) || m->kind == LT_TAR_OTHER)
        return LT_OK;
    if (m->kind == LT_TAR_FOLDER)
        return add_folder(b, name, strlen(name) - (*name && name[strlen(name) - 1] == '/'));
    if (m->kind == LT_TAR_FILE && lt_is_image(name))
        return add_image(b, m, name);
    if (m->kind == LT_TAR_FILE && !strcmp(name + stem_length(name), ".cls"))
        return add_cls_label(b, m, name);
    if (m->kind == LT_TAR_LINK)
        lt_left_out_add_count(&b->index->left_out, "links", 1);
    else
        lt_left_out_add_file(&b->index->left_out, name);
    return add_folder(b, name, folder_path_length(name));
}

/* --- Labels --- */

static int compare_stems(const void *a, const void *b)
{
    return strcmp(((const label *)a)->stem, ((const label *)b)->stem);
}

static lt_status find_cls_label(const builder *b, const char *name, int64_t *value)
{
    const label key = {.stem = lt_format("%.*s", (int)stem_length(name), name)};
    if (!key.stem)
        return LT_E_NOMEM;
    const label *found = bsearch(&key, b->label, b->labels, sizeof key, compare_stems);
    lt_free(key.stem);
    *value = found ? found->value : -1;
    return LT_OK;
}

/* Returns true for a further image of a sample, such as NAME.left.jpg next to NAME.jpg and NAME.cls. */
static bool has_inner_dot(const char *name)
{
    const char *slash = strrchr(name, '/'), *last = slash ? slash + 1 : name;
    return strcspn(last, ".") < stem_length(name) - (size_t)(last - name);
}

static lt_status assign_cls_labels(builder *b)
{
    lt_tar_index *x = b->index;
    size_t kept = 0;
    if (!b->labels)
        return LT_OK;
    x->left_out = (lt_left_out){0}; /* the other files are fields of samples */
    qsort(b->label, b->labels, sizeof *b->label, compare_stems);
    for (size_t i = 0; i < x->count; i++) {
        lt_tar_sample s = x->sample[i];
        const char *name = x->text + s.name;
        LT_TRY(find_cls_label(b, name, &s.label));
        if (s.label < 0 && !has_inner_dot(name))
            return lt_fail(LT_E_FORMAT, "%s: %s has no .cls file, other images have one", b->path,
                           name);
        if (s.label >= 0)
            x->sample[kept++] = s;
    }
    lt_left_out_add_count(&x->left_out, "images without a .cls", (int64_t)(x->count - kept));
    if (x->count && !kept)
        return lt_fail(LT_E_FORMAT, "%s: none of %zu images has a .cls file: %s needs %.*s.cls",
                       b->path, x->count, x->text, (int)stem_length(x->text), x->text);
    x->count = kept;
    return LT_OK;
}

static int by_stem_then_name(const void *a, const void *b, void *text)
{
    const char *p = (const char *)text + *(const uint32_t *)a,
               *q = (const char *)text + *(const uint32_t *)b;
    size_t m = stem_length(p), n = stem_length(q);
    int order = memcmp(p, q, m < n ? m : n);
    order = order ? order : (m > n) - (m < n);
    return order ? order : strcmp(p, q);
}

/* Rejects two images with the same name (tar -r appends such; tar extracts the last) or with the same .cls file. */
static lt_status check_duplicates(const builder *b)
{
    const lt_tar_index *x = b->index;
    uint32_t *name = NULL;
    LT_TRY(LT_ALLOC(&name, x->count));
    for (size_t i = 0; i < x->count; i++)
        name[i] = x->sample[i].name;
    lt_os_sort(name, x->count, sizeof *name, by_stem_then_name, x->text);
    lt_status st = LT_OK;
    for (size_t i = 1; i < x->count && !st; i++) {
        const char *one = x->text + name[i - 1], *two = x->text + name[i];
        size_t stem = stem_length(one);
        if (!strcmp(one, two))
            st = lt_fail(LT_E_FORMAT, "%s: two images are named %s", b->path, two);
        else if (b->labels && stem == stem_length(two) && !memcmp(one, two, stem))
            st = lt_fail(LT_E_FORMAT, "%s: two images share a .cls file: %s and %s", b->path, one,
                         two);
    }
    lt_free(name);
    return st;
}

/* Appends the folder names to the sample names. */
static lt_status append_folders(builder *b)
{
    b->index->folders = b->index->text_size;
    for (size_t i = 0; i < b->folders.count && !b->labels; i++)
        LT_TRY(append_name(b, b->folders.path[i]));
    return LT_OK;
}

lt_status lt_tar_index_build(lt_tar_index *out, int fd, const char *path)
{
    builder b = {.index = out, .path = path, .fd = fd};
    lt_status st = lt_tar_scan(fd, path, add_member, &b);
    if (!st)
        st = assign_cls_labels(&b);
    if (!st && !out->count)
        st = lt_fail(LT_E_FORMAT, "%s: no " LT_IMAGE_NAMES " file in this tar file", path);
    if (!st)
        st = check_duplicates(&b);
    if (!st)
        st = append_folders(&b);
    for (size_t i = 0; i < b.labels; i++)
        lt_free(b.label[i].stem);
    lt_free(b.label);
    lt_free_texts(b.folders.path, b.folders.count);
    return st;
}

/* --- The index file: this header, the samples, the text; in this machine's byte order --- */

typedef struct index_header {
    char magic[8];
    uint64_t order;               /* byte order mark */
    uint64_t tar_size;            /* size of the tar file in bytes */
    int64_t tar_second, tar_nano; /* modification time of the tar file */
    uint64_t samples, text_size, folders;
    uint32_t crc; /* CRC-32C of left_out, the samples and the text */
    uint32_t unused;
    lt_left_out left_out;
} index_header;

static const char magic[8] = "LTTARIX3";
static const uint64_t byte_order = 0x0102030405060708;

static index_header make_header(const lt_tar_index *x, const struct stat *tar)
{
    index_header h = {.order = byte_order,
                      .tar_size = (uint64_t)tar->st_size,
                      .tar_second = tar->st_mtim.tv_sec,
                      .tar_nano = tar->st_mtim.tv_nsec,
                      .samples = x->count,
                      .text_size = x->text_size,
                      .folders = x->folders};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(&h.left_out, &x->left_out, sizeof h.left_out); /* with its padding */
    h.crc = lt_crc32c(0, &h.left_out, sizeof h.left_out);
    h.crc = lt_crc32c(h.crc, x->sample, x->count * sizeof *x->sample);
    h.crc = lt_crc32c(h.crc, x->text, x->text_size);
    return h;
}

static bool is_left_out_valid(const lt_left_out *l)
{
    bool valid = l->kinds >= 0 && l->kinds <= LT_LEFT_OUT_KINDS;
    for (int i = 0; valid && i < l->kinds; i++)
        valid = !l->kind[i].extension[LT_LEFT_OUT_BYTES - 1];
    return valid;
}

/* Returns true if every sample is inside the tar file and every name inside the text. */
static bool is_valid(const lt_tar_index *x, uint64_t tar_size)
{
    if (!x->count || !x->text_size || x->text[x->text_size - 1] || !x->folders
        || x->folders > x->text_size || x->text[x->folders - 1] || !is_left_out_valid(&x->left_out))
        return false;
    for (size_t i = 0; i < x->count; i++) {
        const lt_tar_sample *s = &x->sample[i];
        if (s->offset > tar_size || s->size > tar_size - s->offset || s->name >= x->text_size
            || s->folder > strlen(x->text + s->name))
            return false;
    }
    return true;
}

/* Reads samples and text; header, samples and text must fill the file. */
static bool read_body(FILE *file, const index_header *h, lt_tar_index *x)
{
    struct stat info;
    const uint64_t one = sizeof *x->sample;
    if (fstat(fileno(file), &info) || h->samples > (uint64_t)info.st_size / one
        || h->text_size > (uint64_t)info.st_size
        || sizeof *h + h->samples * one + h->text_size != (uint64_t)info.st_size)
        return false;
    x->count = (size_t)h->samples;
    x->text_size = (size_t)h->text_size;
    x->folders = (size_t)h->folders;
    memcpy(&x->left_out, &h->left_out, sizeof h->left_out);
    x->sample = lt_alloc(x->count + 1, sizeof *x->sample);
    x->text = lt_alloc(x->text_size + 1, 1);
    return x->sample && x->text && fread(x->sample, one, x->count, file) == x->count
           && fread(x->text, 1, x->text_size, file) == x->text_size;
}

/* Loads an index file. Returns false and leaves *out unchanged if it is absent, invalid or does not match the tar
 * file. */
static bool load_index_file(lt_tar_index *out, const char *path, const struct stat *tar)
{
    index_header found;
    lt_tar_index x = {0};
    FILE *file = NULL;
    bool ok = !lt_file_open(&file, path) && fread(&found, sizeof found, 1, file) == 1
              && !memcmp(found.magic, magic, sizeof magic) && found.order == byte_order
              && read_body(file, &found, &x);
    if (file)
        fclose(file);
    if (ok) {
        const index_header want = make_header(&x, tar);
        /* NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-exp42-c,cert-flp37-c): the file has the padding */
        ok = !memcmp(&found, &want, sizeof want) && is_valid(&x, want.tar_size);
    }
    if (ok)
        *out = x;
    else
        lt_tar_index_clear(&x);
    return ok;
}

/* Writes the index to a temporary file and renames it. Returns false on failure. */
static bool save_index_file(const lt_tar_index *x, const char *path, const struct stat *tar)
{
    const index_header h = make_header(x, tar);
    lt_replacement r;
    if (lt_replacement_open(&r, path))
        return false;
    const bool ok = fwrite(&h, sizeof h, 1, r.file) == 1
                    && fwrite(x->sample, sizeof *x->sample, x->count, r.file) == x->count
                    && fwrite(x->text, 1, x->text_size, r.file) == x->text_size;
    return !lt_replacement_close(&r, ok ? LT_OK : LT_E_IO, false);
}

/* Returns the index path in the user's cache folder (XDG base directory specification 0.8), for tar files in read-only
 * folders, or NULL if no cache folder is set; lt_free() it. */
static char *path_in_cache(const char *tar)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    bool given = cache && *cache == '/';
    char *real = realpath(tar, NULL), *path = NULL;
    char *folder = given                  ? lt_format("%s/lather", cache)
                   : user && *user == '/' ? lt_format("%s/.cache/lather", user)
                                          : NULL;
    const uint64_t hash = lt_fnv1a_text(LT_FNV1A_BEGIN, real ? real : ""),
                   low = (UINT64_C(1) << 56) - 1;
    if (real && folder)
        path = lt_format("%s/%02x/%014" PRIx64, folder, (unsigned)(hash >> 56), hash & low);
    free(real);
    lt_free(folder);
    return path;
}

static bool save_in_cache(const lt_tar_index *x, const char *path, const struct stat *tar)
{
    char *folder = path ? lt_format("%.*s", (int)(strrchr(path, '/') - path), path) : NULL;
    bool ok = folder && !lt_make_folders(folder) && save_index_file(x, path, tar);
    lt_free(folder);
    return ok;
}

static lt_status find_or_build(lt_tar_index *x, int fd, const char *path, const struct stat *tar)
{
    char *adjacent = lt_format("%s.index", path), *cached = path_in_cache(path);
    lt_status st = adjacent ? LT_OK : LT_E_NOMEM;
    if (!st && !load_index_file(x, adjacent, tar) && !(cached && load_index_file(x, cached, tar))) {
        st = lt_tar_index_build(x, fd, path);
        if (!st && !save_index_file(x, adjacent, tar) && !save_in_cache(x, cached, tar))
            lt_log(LT_LOG_INFO, "data",
                   "%s: cannot write the index (%s); each run will scan the tar file", adjacent,
                   strerror(errno));
    }
    lt_free(adjacent);
    lt_free(cached);
    return st;
}

lt_status lt_tar_index_open(lt_tar_index *out, const char *path)
{
    struct stat info;
    lt_tar_index x = {0};
    int fd;
    LT_TRY(lt_file_open_descriptor(&fd, &info, path));
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
