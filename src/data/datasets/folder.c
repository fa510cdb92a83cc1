/* Images in one folder per class, in the order of torchvision's ImageFolder: classes by name,
 * then the folders below them by path, then files by name, all bytewise. Links are followed. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_DEPTH = 16,      /* folders on the way to a file */
    MAX_LINKS = 4,       /* links to folders on it */
    MAX_LINKED = 1 << 16 /* folders of a data set that are reached by such links */
};

/* Strings one after the other; referred to by offset, as the memory is reallocated. */
typedef struct text {
    char *bytes;
    size_t size, capacity;
} text;

typedef struct entry {
    size_t path;   /* offset of the path */
    size_t folder; /* length of the part before the last slash */
} entry;

typedef struct entries {
    entry *item;
    size_t count, capacity;
} entries;

typedef struct folder {
    lt_dataset base;
    text text;
    entries sample, kind; /* paths; a class is a folder */
    int64_t *first;       /* [classes] sample a class begins with */
    int64_t linked;       /* folders reached by links */
    bool loose;           /* there are images outside of class folders */
    lt_left_out left_out;
    lt_empty_classes empty;
} folder;

static lt_status text_add(text *t, const char *string, size_t *offset)
{
    size_t bytes = strlen(string) + 1;
    char *grown = lt_grow(t->bytes, &t->capacity, t->size + bytes, 1);
    if (!grown)
        return LT_E_NOMEM;
    t->bytes = grown;
    memcpy(t->bytes + t->size, string, bytes);
    *offset = t->size;
    t->size += bytes;
    return LT_OK;
}

static lt_status entries_add(entries *e, text *t, const char *path)
{
    entry *grown = lt_grow(e->item, &e->capacity, e->count + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    e->item = grown;
    entry *new = &e->item[e->count];
    LT_TRY(text_add(t, path, &new->path));
    new->folder = (size_t)(strrchr(path, '/') - path);
    e->count++;
    return LT_OK;
}

static int by_folder_then_name(const void *a, const void *b, void *context)
{
    const entry *x = a, *y = b;
    const char *bytes = context, *p = bytes + x->path, *q = bytes + y->path;
    size_t both = x->folder < y->folder ? x->folder : y->folder;
    int order = memcmp(p, q, both);
    if (!order)
        order = (x->folder > y->folder) - (x->folder < y->folder);
    return order ? order : strcmp(p + x->folder, q + y->folder);
}

/* Folders on the path to an entry, and how many of them are links. */
typedef struct way {
    int folders, links;
} way;

/* Called for each entry of a folder, with its path and depth. */
typedef lt_status visit_fn(folder *f, const char *path, bool is_folder, way w);

static bool is_link(const struct dirent *d, const char *path)
{
    struct stat info;
    return d->d_type == DT_LNK
           || (d->d_type == DT_UNKNOWN && !lstat(path, &info) && S_ISLNK(info.st_mode));
}

static lt_status each_entry(folder *f, const char *path, way w, visit_fn *visit)
{
    DIR *dir = opendir(path);
    if (!dir)
        return lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    lt_status st = LT_OK;
    struct dirent *d;
    while (!st && (errno = 0, d = readdir(dir))) {
        if (d->d_name[0] == '.' || lt_is_hidden(d->d_name))
            continue;
        bool slash = path[strlen(path) - 1] == '/';
        char *full = lt_format("%s%s%s", path, slash ? "" : "/", d->d_name);
        if (!full) {
            st = LT_E_NOMEM;
            break;
        }
        bool known = d->d_type == DT_REG || d->d_type == DT_DIR;
        st = visit(f, full, known ? d->d_type == DT_DIR : lt_is_folder(full),
                   (way){w.folders + 1, w.links + is_link(d, full)});
        lt_free(full);
    }
    if (!st && errno)
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    closedir(dir);
    return st;
}

static lt_status visit_class(folder *f, const char *path, bool is_folder, way w)
{
    (void)w;
    if (is_folder)
        return entries_add(&f->kind, &f->text, path);
    f->loose = f->loose || lt_is_image(path);
    if (lt_is_image(path))
        lt_left_out_count(&f->left_out, lt_outside_class_folders, 1);
    else
        lt_left_out_add(&f->left_out, path);
    return LT_OK;
}

static lt_status visit_file(folder *f, const char *path, bool is_folder, way w)
{
    if (is_folder && w.folders > MAX_DEPTH)
        return lt_fail(LT_E_FORMAT, "%s: more than %d folders deep; is it a link to one above it?",
                       path, MAX_DEPTH);
    if (is_folder
        && w.links > MAX_LINKS) /* links of links multiply: n links in k levels are n^k paths */
        return lt_fail(LT_E_FORMAT, "%s: behind more than %d links to folders", path, MAX_LINKS);
    if (is_folder && w.links > 0 && ++f->linked > MAX_LINKED)
        return lt_fail(LT_E_FORMAT, "%s: more than %d folders behind links", path, MAX_LINKED);
    if (is_folder)
        return each_entry(f, path, w, visit_file);
    if (lt_is_image(path))
        return entries_add(&f->sample, &f->text, path);
    lt_left_out_add(&f->left_out, path);
    return LT_OK;
}

static lt_status add_class(folder *f, size_t label)
{
    char *path =
        lt_strdup(f->text.bytes + f->kind.item[label].path); /* the text is reallocated meanwhile */
    if (!path)
        return LT_E_NOMEM;
    size_t begin = f->sample.count;
    f->first[label] = (int64_t)begin;
    lt_status st = each_entry(f, path, (way){0}, visit_file);
    if (!st && f->sample.count == begin)
        lt_empty_classes_add(&f->empty, strrchr(path, '/') + 1);
    else if (!st)
        qsort_r(f->sample.item + begin, f->sample.count - begin, sizeof(entry), by_folder_then_name,
                f->text.bytes);
    lt_free(path);
    return st;
}

static lt_status scan(folder *f, const char *path)
{
    LT_TRY(each_entry(f, path, (way){0}, visit_class));
    if (!f->kind.count)
        return lt_fail(LT_E_FORMAT, "%s: no class folder in it%s", path,
                       f->loose ? ", but images: they need a file of labels (--val-labels)" : "");
    qsort_r(f->kind.item, f->kind.count, sizeof(entry), by_folder_then_name, f->text.bytes);
    f->first = lt_alloc(f->kind.count, sizeof *f->first);
    if (!f->first)
        return LT_E_NOMEM;
    for (size_t i = 0; i < f->kind.count; i++)
        LT_TRY(add_class(f, i));
    LT_TRY(lt_empty_classes_check(&f->empty, path));
    lt_left_out_tell(&f->left_out, path);
    f->base.count = (int64_t)f->sample.count;
    f->base.classes = (int32_t)f->kind.count;
    f->base.channels = 3;
    return LT_OK;
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    const folder *f = (const folder *)self;
    return f->text.bytes + f->sample.item[index].path;
}

static const char *class_name(const lt_dataset *self, int label)
{
    const folder *f = (const folder *)self;
    const entry *e = &f->kind.item[label];
    return f->text.bytes + e->path + e->folder + 1;
}

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const folder *f = (const folder *)self;
    LT_TRY(lt_file_read(sample_name(self, index), record));
    record->encoding = LT_ENCODING_FILE;
    record->label = (int32_t)lt_part_of(f->first, (size_t)self->classes, index);
    return LT_OK;
}

static void ahead(const lt_dataset *self, int64_t index)
{
    lt_file_ahead(sample_name(self, index), 0, 0);
}

static void destroy(lt_dataset *self)
{
    folder *f = (folder *)self;
    lt_free(f->text.bytes);
    lt_free(f->sample.item);
    lt_free(f->kind.item);
    lt_free(f->first);
}

static const lt_dataset_ops ops = {
    .name = "folder",
    .bytes = sizeof(folder),
    .read = read_sample,
    .ahead = ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .destroy = destroy,
};

lt_status lt_dataset_folder(lt_dataset **out, const char *path)
{
    if (!*path || !lt_is_folder(path))
        return lt_fail(LT_E_IO, "%s: no such folder", path);
    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    lt_status st = scan((folder *)d, path);
    if (st)
        lt_dataset_free(&d);
    else
        *out = d;
    return st;
}
