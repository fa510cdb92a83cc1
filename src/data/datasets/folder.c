/* Images in one folder per class, in the order of torchvision's ImageFolder: by class name, then by folder path, then
 * by file name, all bytewise. Symbolic links are followed. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/datasets/file_list.h"
#include "data/files/files.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_DEPTH = 16,      /* folders between the class folder and a file */
    MAX_LINKS = 4,       /* links among these folders */
    MAX_LINKED = 1 << 16 /* folders of the data set that are reached through links */
};

typedef struct scan {
    lt_file_list *list;
    lt_paths class_folders;
    size_t label_capacity;
    int64_t linked;     /* folders reached through links */
    bool has_no_folder; /* an image is directly in the root, outside the class folders */
    lt_left_out left_out;
    lt_empty_classes empty;
} scan;

/* Returns the length of the path before its last slash. */
static size_t folder_path_length(const char *path)
{
    return (size_t)(strrchr(path, '/') - path);
}

static int by_folder_then_name(const void *a, const void *b)
{
    const char *p = *(char *const *)a, *q = *(char *const *)b;
    const size_t m = folder_path_length(p), n = folder_path_length(q);
    int order = memcmp(p, q, m < n ? m : n);
    order = order ? order : (m > n) - (m < n);
    return order ? order : strcmp(p + m, q + n);
}

/* Number of folders between the class folder and an entry, and how many of them are links. */
typedef struct depth {
    int folders, links;
} depth;

/* Called for each entry of a folder. */
typedef lt_status visit_fn(scan *s, const char *path, bool is_folder, depth at);

static bool is_link(const struct dirent *d, const char *path)
{
    struct stat info;
    return d->d_type == DT_LNK
           || (d->d_type == DT_UNKNOWN && !lstat(path, &info) && S_ISLNK(info.st_mode));
}

static lt_status visit_entries(scan *s, const char *path, depth at, visit_fn *visit)
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
        st = visit(s, full, known ? d->d_type == DT_DIR : lt_is_folder(full),
                   (depth){at.folders + 1, at.links + is_link(d, full)});
        lt_free(full);
    }
    if (!st && errno)
        st = lt_fail(LT_E_IO, "%s: %s", path, strerror(errno));
    closedir(dir);
    return st;
}

static lt_status visit_root_entry(scan *s, const char *path, bool is_folder, depth at)
{
    (void)at;
    if (is_folder)
        return lt_paths_add(&s->class_folders, lt_strdup(path));
    if (!lt_is_image(path)) {
        lt_left_out_add_file(&s->left_out, path);
        return LT_OK;
    }
    lt_left_out_add_count(&s->left_out, lt_outside_class_folders, 1);
    s->has_no_folder = true;
    return LT_OK;
}

static lt_status visit_class_entry(scan *s, const char *path, bool is_folder, depth at)
{
    if (is_folder && at.folders > MAX_DEPTH)
        return lt_fail(LT_E_FORMAT,
                       "%s: nested more than %d folders deep; is it a link to a parent folder?",
                       path, MAX_DEPTH);
    if (is_folder && at.links > MAX_LINKS) /* n links in each of k levels make n^k paths */
        return lt_fail(LT_E_FORMAT, "%s: reached through more than %d links to folders", path,
                       MAX_LINKS);
    if (is_folder && at.links > 0 && ++s->linked > MAX_LINKED)
        return lt_fail(LT_E_FORMAT, "%s: more than %d folders are reached through links", path,
                       MAX_LINKED);
    if (is_folder)
        return visit_entries(s, path, at, visit_class_entry);
    if (lt_is_image(path))
        return lt_paths_add(&s->list->files, lt_strdup(path));
    lt_left_out_add_file(&s->left_out, path);
    return LT_OK;
}

/* Adds a class folder and its files; one without images is left out. */
static lt_status add_class(scan *s, const char *path)
{
    lt_paths *files = &s->list->files;
    const char *name = strrchr(path, '/') + 1;
    const size_t begin = files->count;
    const int32_t label = s->list->base.classes;
    LT_TRY(visit_entries(s, path, (depth){0}, visit_class_entry));
    if (files->count == begin) {
        lt_empty_classes_add(&s->empty, name);
        return LT_OK;
    }
    if (!(s->list->class_names[label] = lt_strdup(name)))
        return LT_E_NOMEM;
    s->list->base.classes++;
    LT_TRY(LT_GROW(&s->list->label, &s->label_capacity, files->count + 1));
    for (size_t i = begin; i < files->count; i++)
        s->list->label[i] = label;
    qsort(files->path + begin, files->count - begin, sizeof *files->path, by_folder_then_name);
    return LT_OK;
}

static lt_status scan_folder(scan *s, const char *path)
{
    lt_file_list *list = s->list;
    lt_paths *classes = &s->class_folders;
    LT_TRY(visit_entries(s, path, (depth){0}, visit_root_entry));
    if (!classes->count)
        return lt_fail(LT_E_FORMAT, "%s: no class folder in it%s", path,
                       s->has_no_folder ? "; its images need a label file (--val-labels)" : "");
    qsort(classes->path, classes->count, sizeof *classes->path, by_folder_then_name);
    LT_TRY(LT_ALLOC(&list->class_names, classes->count));
    for (size_t i = 0; i < classes->count; i++)
        LT_TRY(add_class(s, classes->path[i]));
    LT_TRY(lt_empty_classes_log(&s->empty, path, list->base.classes));
    lt_left_out_log(&s->left_out, path);
    list->base.count = (int64_t)list->files.count;
    return LT_OK;
}

lt_status lt_dataset_folder(lt_dataset **out, const char *path)
{
    if (!*path || !lt_is_folder(path))
        return lt_fail(LT_E_IO, "%s: no such folder", path);
    lt_dataset *d = NULL;
    LT_TRY(lt_file_list_new(&d, 0, 3));
    scan s = {.list = (lt_file_list *)d};
    lt_status st = scan_folder(&s, path);
    if (st == LT_E_FORMAT)
        st = lt_left_out_check_parquet(&s.left_out, path, st);
    lt_free_texts(s.class_folders.path, s.class_folders.count);
    return lt_dataset_set_or_free(out, d, st);
}
