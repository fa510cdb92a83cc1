/* A data set of images in tar files (WebDataset's shards), read by offset. A sample's class is the number in NAME.cls.
 * Without any .cls it is the folder, as in image folders: the first component below the root of the split, which is the
 * longest common folder of all images. Class folders are sorted by name, bytewise. */

#include "base/alloc.h"
#include "base/hash.h"
#include "data/datasets/tar_index.h"
#include "data/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct shard {
    char *path;
    lt_tar_index index;
} shard;

typedef struct tar {
    lt_dataset base;
    shard *shard;
    int64_t *first; /* [shards] index of the first sample of each shard */
    size_t shards;
    lt_paths classes; /* names of class folders; empty with .cls files */
    size_t root;      /* bytes of the root of the split, including the slash */
} tar;

/* --- Classes --- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int find_class(const tar *t, const char *name)
{
    char *const *found =
        bsearch(&name, t->classes.path, t->classes.count, sizeof name, compare_names);
    return found ? (int)(found - t->classes.path) : -1;
}

/* Returns the first component of a path below the root, or NULL if out of memory; lt_free() it. */
static char *class_folder_name(const char *path, size_t root)
{
    return lt_format("%.*s", (int)strcspn(path + root, "/"), path + root);
}

/* Adds the class unless it was the last one added: images of a class are usually adjacent. */
static lt_status add_class(tar *t, const char *path)
{
    const lt_paths *c = &t->classes;
    char *name = class_folder_name(path, t->root);
    if (!name || !c->count || strcmp(c->path[c->count - 1], name) != 0)
        return lt_paths_add(&t->classes, name);
    lt_free(name);
    return LT_OK;
}

/* Sorts the class names and removes duplicates. */
static void sort_classes(lt_paths *c)
{
    size_t kept = 0;
    lt_paths_sort(c, 0);
    for (size_t i = 0; i < c->count; i++) {
        if (kept && !strcmp(c->path[kept - 1], c->path[i]))
            lt_free(c->path[i]);
        else
            c->path[kept++] = c->path[i];
    }
    c->count = kept;
}

/* Returns the bytes of the longest common folder of all images, including the slash; *nested: some image is in a folder
 * below it. */
static size_t common_folder_length(const tar *t, bool *nested)
{
    const char *first = t->shard[0].index.text + t->shard[0].index.sample[0].name;
    size_t common = t->shard[0].index.sample[0].folder, longest = 0;
    common += common > 0;
    for (size_t i = 0; i < t->shards; i++)
        for (size_t k = 0; k < t->shard[i].index.count; k++) {
            const lt_tar_sample *s = &t->shard[i].index.sample[k];
            const char *name = t->shard[i].index.text + s->name;
            size_t bytes = s->folder ? s->folder + 1U : 0, same = 0;
            longest = bytes > longest ? bytes : longest;
            while (same < common && same < bytes && name[same] == first[same])
                same++;
            while (same && first[same - 1] != '/')
                same--;
            common = same;
        }
    *nested = longest > common;
    return common;
}

/* The root of the split is the common folder. If all images are directly in it, it is the only class and its parent is
 * the root. */
static lt_status find_split_root(tar *t)
{
    const char *first = t->shard[0].index.text + t->shard[0].index.sample[0].name;
    bool nested;
    t->root = common_folder_length(t, &nested);
    if (!nested && !t->root)
        return lt_fail(LT_E_FORMAT,
                       "%s: no class for %s: it has no .cls file and is not in a folder",
                       t->shard[0].path, first);
    if (!nested)
        do
            t->root--;
        while (t->root && first[t->root - 1] != '/');
    return LT_OK;
}

/* Adds the classes of a shard; leaves out images directly in the root of the split, as image folders do. */
static lt_status add_classes(tar *t, shard *s)
{
    lt_tar_index *x = &s->index;
    size_t kept = 0;
    for (size_t k = 0; k < x->count; k++) {
        const char *name = x->text + x->sample[k].name;
        if (!strchr(name + t->root, '/'))
            continue;
        LT_TRY(add_class(t, name));
        x->sample[kept++] = x->sample[k];
    }
    lt_left_out_add_count(&x->left_out, lt_outside_class_folders, (int64_t)(x->count - kept));
    x->count = kept;
    return LT_OK;
}

static lt_status find_empty_classes(const tar *t, const char *root, const shard *s,
                                    lt_empty_classes *e)
{
    const lt_tar_index *x = &s->index;
    for (const char *p = x->text + x->folders; p < x->text + x->text_size; p += strlen(p) + 1) {
        if (strlen(p) <= t->root || strncmp(p, root, t->root) != 0)
            continue;
        char *name = class_folder_name(p, t->root);
        if (!name)
            return LT_E_NOMEM;
        if (find_class(t, name) < 0)
            lt_empty_classes_add(e, name);
        lt_free(name);
    }
    return LT_OK;
}

static lt_status assign_folder_classes(tar *t)
{
    lt_empty_classes empty = {0};
    LT_TRY(find_split_root(t));
    char *root =
        lt_format("%.*s", (int)t->root, t->shard[0].index.text + t->shard[0].index.sample[0].name);
    lt_status st = root ? LT_OK : LT_E_NOMEM;
    for (size_t i = 0; i < t->shards && !st; i++)
        st = add_classes(t, &t->shard[i]);
    sort_classes(&t->classes);
    t->base.classes = (int32_t)t->classes.count;
    for (size_t i = 0; i < t->shards && !st; i++)
        st = find_empty_classes(t, root, &t->shard[i], &empty);
    lt_free(root);
    LT_TRY(st);
    LT_TRY(lt_empty_classes_log(&empty, t->shard[0].path, t->base.classes));
    if (find_class(t, "train") >= 0 && find_class(t, "val") >= 0)
        return lt_fail(LT_E_FORMAT,
                       "%s: has folders train and val; write them as two tar files, train.tar and "
                       "val.tar, in one folder",
                       t->shard[0].path);
    for (size_t i = 0; i < t->shards; i++)
        for (size_t k = 0; k < t->shard[i].index.count; k++) {
            lt_tar_sample *s = &t->shard[i].index.sample[k];
            char *name = class_folder_name(t->shard[i].index.text + s->name, t->root);
            if (!name)
                return LT_E_NOMEM;
            s->label = find_class(t, name);
            lt_free(name);
        }
    return LT_OK;
}

/* Either all samples have a .cls label, or the classes of all are their folders. */
static lt_status assign_classes(tar *t)
{
    bool numbered = t->shard[0].index.sample[0].label >= 0;
    int64_t largest = 0;
    for (size_t i = 0; i < t->shards; i++)
        for (size_t k = 0; k < t->shard[i].index.count; k++) {
            const lt_tar_sample *s = &t->shard[i].index.sample[k];
            if ((s->label >= 0) != numbered)
                return lt_fail(LT_E_FORMAT, "%s: %s has %s .cls file, other images have %s",
                               t->shard[i].path, t->shard[i].index.text + s->name,
                               numbered ? "no" : "a", numbered ? "one" : "none");
            largest = s->label > largest ? s->label : largest;
        }
    t->base.classes = numbered ? (int32_t)largest + 1 : 0;
    return numbered ? LT_OK : assign_folder_classes(t);
}

/* --- Samples --- */

/* Returns the sample and sets *of to its shard. */
static const lt_tar_sample *find_sample(const lt_dataset *self, int64_t index, const shard **of)
{
    const tar *t = (const tar *)self;
    size_t i = lt_find_segment(t->first, t->shards, index);
    *of = &t->shard[i];
    return &t->shard[i].index.sample[index - t->first[i]];
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const shard *s;
    const lt_tar_sample *sample = find_sample(self, index, &s);
    LT_TRY(lt_file_read_range(s->path, sample->offset, sample->size, record));
    record->encoding = LT_ENCODING_FILE;
    record->label = (int32_t)sample->label;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    const shard *s;
    const lt_tar_sample *sample = find_sample(self, index, &s);
    return s->index.text + sample->name;
}

static const char *class_name(const lt_dataset *self, int label)
{
    const tar *t = (const tar *)self;
    return t->classes.count ? t->classes.path[label] : NULL;
}

static void read_ahead(const lt_dataset *self, int64_t index)
{
    const shard *s;
    const lt_tar_sample *sample = find_sample(self, index, &s);
    lt_file_read_ahead(s->path, sample->offset, sample->size);
}

static void destroy(lt_dataset *self)
{
    tar *t = (tar *)self;
    for (size_t i = 0; t->shard && i < t->shards; i++) {
        lt_free(t->shard[i].path);
        lt_tar_index_clear(&t->shard[i].index);
    }
    lt_free(t->shard);
    lt_free(t->first);
    lt_free_texts(t->classes.path, t->classes.count);
}

static int64_t bytes_of_files(const lt_dataset *self)
{
    const tar *t = (const tar *)self;
    int64_t bytes = 0;
    for (size_t i = 0; i < t->shards; i++)
        for (size_t k = 0; k < t->shard[i].index.count; k++)
            bytes += (int64_t)t->shard[i].index.sample[k].size;
    return bytes;
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    const shard *s;
    *label = (int)find_sample(self, index, &s)->label;
    return LT_OK;
}

static const lt_dataset_ops ops = {
    .name = "tar",
    .bytes = sizeof(tar),
    .read = read_sample,
    .ahead = read_ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .bytes_of_files = bytes_of_files,
    .label = read_label,
    .destroy = destroy,
};

static lt_status open_shards(tar *t, const char *const *path, size_t count)
{
    LT_TRY(LT_ALLOC(&t->shard, count));
    LT_TRY(LT_ALLOC(&t->first, count));
    t->shards = count;
    for (size_t i = 0; i < count; i++) {
        shard *s = &t->shard[i];
        s->path = lt_strdup(path[i]);
        if (!s->path)
            return LT_E_NOMEM;
        LT_TRY(lt_tar_index_open(&s->index, path[i]));
    }
    LT_TRY(assign_classes(t));
    for (size_t i = 0; i < count; i++) {
        t->first[i] = t->base.count;
        t->base.count += (int64_t)t->shard[i].index.count;
        lt_left_out_log(&t->shard[i].index.left_out, path[i]);
    }
    t->base.channels = 3;
    return LT_OK;
}

lt_status lt_dataset_tar(lt_dataset **out, const char *const *path, size_t count)
{
    if (!count)
        return lt_fail(LT_E_ARG, "data: got no tar file");
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    return lt_dataset_set_or_free(out, d, open_shards((tar *)d, path, count));
}

/* --- Finding shards --- */

bool lt_is_tar(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = strlen(name);
    return *name != '.' && length > 4 && !strcmp(name + length - 4, ".tar");
}

lt_status lt_list_tar_files(lt_paths *list, const char *folder, const char *part)
{
    lt_status st = LT_OK;
    DIR *dir = opendir(folder);
    if (!dir)
        return lt_fail(LT_E_IO, "%s: %s", folder, strerror(errno));
    for (struct dirent *d; !st && (d = readdir(dir));)
        if (lt_is_tar(d->d_name) && strstr(d->d_name, part))
            st = lt_paths_add(list, lt_format("%s/%s", folder, d->d_name));
    closedir(dir);
    lt_paths_sort(list, 0);
    return st;
}
