/* Images of a folder with labels from a table. A table names images by their path below the folder, with or without
 * extension, or by the file's name alone, with or without extension, as Kaggle's tables do. Samples are ordered by
 * class, then by path, as in class folders. */

#include "base/alloc.h"
#include "data/datasets/datasets.h"
#include "data/datasets/file_list.h"
#include "data/datasets/label_table.h"
#include "data/files/files.h"

#include "lather/detail/text.h"
#include "lather/log.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Forms of an image's name. */
typedef enum form { PATH, PATH_STEM, NAME, NAME_STEM, FORMS } form;

enum { LISTED = 3, SHOWN = 256, LIST_BYTES = LISTED * SHOWN, DIGITS = 9 };

typedef struct key {
    const char *text;
    size_t bytes, image;
} key;

typedef struct images {
    const char *folder, *table_path;
    size_t folder_bytes; /* length of the folder in the paths, including the slash */
    lt_paths files;
    lt_label_table table;
    size_t *image_of_row; /* [table.count]; files.count: not found */
    size_t *row_of_image; /* [files.count]; table.count: no label */
    key *keys;            /* [files.count] one form of all names, sorted */
} images;

/* --- Names --- */

static size_t stem_length(const char *text)
{
    const char *slash = strrchr(text, '/'), *dot = strrchr(slash ? slash : text, '.');
    return dot ? (size_t)(dot - text) : strlen(text);
}

/* Returns the image's path below the folder. */
static const char *path_below(const images *m, size_t image)
{
    return m->files.path[image] + m->folder_bytes;
}

static key make_key(const images *m, size_t image, form f)
{
    const char *path = path_below(m, image), *slash = strrchr(path, '/');
    const char *text = f < NAME || !slash ? path : slash + 1;
    const size_t bytes = f == PATH_STEM || f == NAME_STEM ? stem_length(text) : strlen(text);
    return (key){text, bytes, image};
}

static int compare_keys(const void *a, const void *b)
{
    const key *x = a, *y = b;
    const int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order ? order : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Returns the image's name without "./", and without the folder's path or its last component. */
static const char *name_in_folder(const images *m, const char *name)
{
    const size_t whole = strlen(m->folder);
    const char *slash = strrchr(m->folder, '/'), *last = slash ? slash + 1 : m->folder;
    const size_t bytes = strlen(last);
    while (!strncmp(name, "./", 2))
        name += 2;
    if (!strncmp(name, m->folder, whole) && name[whole] == '/')
        return name + whole + 1;
    if (!bytes || strncmp(name, last, bytes) != 0 || name[bytes] != '/')
        return name;
    char inner[PATH_MAX];
    const bool fits = snprintf(inner, sizeof inner, "%s/%s", m->folder, last) < (int)sizeof inner;
    return fits && lt_is_folder(inner) ? name : name + bytes + 1;
}

/* --- Rows and images --- */

static lt_status fail_ambiguous(const images *m, const lt_table_row *row, const key *a)
{
    char shown[SHOWN];
    return lt_fail(LT_E_FORMAT, "%s:%d: '%s' may be %s or %s; write the path below %s",
                   m->table_path, row->line, lt_text_escape(shown, sizeof shown, row->image),
                   path_below(m, a[0].image), path_below(m, a[1].image), m->folder);
}

/* Finds a row's image among the keys. */
static lt_status find_image(images *m, size_t row, form f)
{
    const char *name = name_in_folder(m, m->table.row[row].image);
    const key want = {.text = name, .bytes = strlen(name)}, *end = m->keys + m->files.count;
    if (f >= NAME && strchr(name, '/'))
        return LT_OK;
    const key *found = bsearch(&want, m->keys, m->files.count, sizeof want, compare_keys);
    while (found && found > m->keys && !compare_keys(found - 1, &want))
        found--;
    if (!found)
        return LT_OK;
    if (found + 1 < end && !compare_keys(found, found + 1))
        return fail_ambiguous(m, &m->table.row[row], found);
    m->image_of_row[row] = found->image;
    return LT_OK;
}

/* Finds the images of all rows, by one form of name after the other. Returns the number of rows without an image. */
static lt_status find_images(images *m, size_t *missing)
{
    const size_t none = m->files.count;
    *missing = m->table.count;
    for (size_t i = 0; i < m->table.count; i++)
        m->image_of_row[i] = none;
    for (form f = PATH; f < FORMS && *missing; f++) {
        for (size_t i = 0; i < none; i++)
            m->keys[i] = make_key(m, i, f);
        qsort(m->keys, none, sizeof *m->keys, compare_keys);
        for (size_t i = 0; i < m->table.count; i++) {
            if (m->image_of_row[i] != none)
                continue;
            LT_TRY(find_image(m, i, f));
            *missing -= m->image_of_row[i] != none;
        }
    }
    return LT_OK;
}

/* Appends a name to a list that shows the first ones. */
static void add_to_list(char list[LIST_BYTES], size_t *count, const char *name)
{
    char shown[SHOWN / 2];
    const size_t used = strlen(list);
    if ((*count)++ < LISTED)
        snprintf(list + used, LIST_BYTES - used, "%s%s", used ? ", " : "",
                 lt_text_escape(shown, sizeof shown, name));
    else if (*count == LISTED + 1)
        snprintf(list + used, LIST_BYTES - used, ", ...");
}

static lt_status fail_missing_images(const images *m)
{
    char list[LIST_BYTES] = "";
    size_t count = 0;
    for (size_t i = 0; i < m->table.count; i++)
        if (m->image_of_row[i] == m->files.count)
            add_to_list(list, &count, m->table.row[i].image);
    return lt_fail(LT_E_FORMAT, "%s: %zu of %zu labels are for images that %s does not have: %s",
                   m->table_path, count, m->table.count, m->folder, list);
}

/* Sets row_of_image. Errors: LT_E_FORMAT (an image with two labels). */
static lt_status assign_rows(images *m)
{
    const size_t none = m->table.count;
    for (size_t i = 0; i < m->files.count; i++)
        m->row_of_image[i] = none;
    for (size_t i = 0; i < none; i++) {
        size_t *row = &m->row_of_image[m->image_of_row[i]];
        if (*row != none)
            return lt_fail(LT_E_FORMAT, "%s:%d: second label for %s, whose first is in line %d",
                           m->table_path, m->table.row[i].line, path_below(m, m->image_of_row[i]),
                           m->table.row[*row].line);
        *row = i;
    }
    return LT_OK;
}

static void log_images_without_labels(const images *m)
{
    static uint64_t last;
    char list[LIST_BYTES] = "", shown[SHOWN];
    size_t count = 0;
    for (size_t i = 0; i < m->files.count; i++)
        if (m->row_of_image[i] == m->table.count)
            add_to_list(list, &count, path_below(m, i));
    if (count && !lt_is_repeated(&last, m->table_path, list))
        lt_log(LT_LOG_WARN, "data", "%s: no label for %zu of the %zu images of %s, left out: %s",
               lt_text_escape(shown, sizeof shown, m->table_path), count, m->files.count, m->folder,
               list);
}

/* --- Classes and samples --- */

static bool is_number(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits && digits <= DIGITS && !text[digits];
}

/* A labelled image. */
typedef struct sample {
    char *path; /* owned */
    const lt_table_row *row;
    int32_t class;
} sample;

static int by_label(const void *a, const void *b)
{
    return strcmp(((const sample *)a)->row->label, ((const sample *)b)->row->label);
}

static int by_number(const void *a, const void *b)
{
    const long x = strtol(((const sample *)a)->row->label, NULL, 10),
               y = strtol(((const sample *)b)->row->label, NULL, 10);
    return x != y ? (x > y) - (x < y) : by_label(a, b);
}

static int by_class_then_path(const void *a, const void *b)
{
    const sample *x = a, *y = b;
    const int order = (x->class > y->class) - (x->class < y->class);
    return order ? order : strcmp(x->path, y->path);
}

/* Moves the paths of labelled images to `out`, ordered by label: as numbers if all are. Returns their number. */
static size_t take_samples(images *m, sample *out)
{
    size_t count = 0;
    bool numbers = true;
    for (size_t i = 0; i < m->files.count; i++)
        if (m->row_of_image[i] != m->table.count) {
            out[count] = (sample){m->files.path[i], &m->table.row[m->row_of_image[i]], 0};
            m->files.path[i] = NULL;
            numbers = numbers && is_number(out[count].row->label);
            count++;
        }
    qsort(out, count, sizeof *out, numbers ? by_number : by_label);
    return count;
}

/* Sets *class to the class of a row's label; new: it is the next class of f. */
static lt_status find_class(const images *m, lt_file_list *f, const lt_table_row *row, bool new,
                            int32_t *class)
{
    const int32_t classes = f->base.classes;
    for (*class = new ? classes : 0; *class < classes; ++*class)
        if (!strcmp(f->class_names[*class], row->label))
            return LT_OK;
    if (!new)
        return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is not one of the %d classes", m->table_path,
                       row->line, row->label, classes);
    f->class_names[f->base.classes++] = lt_strdup(row->label);
    return f->class_names[classes] ? LT_OK : LT_E_NOMEM;
}

/* Sets the classes of samples ordered by label: their places among `names`; NULL: the labels are the classes. */
static lt_status assign_classes(const images *m, lt_file_list *f, sample *s, size_t count,
                                const char *const *names, int classes)
{
    lt_status st = LT_ALLOC(&f->class_names, names ? (size_t)classes : count);
    for (int i = 0; names && i < classes && !st; i++)
        if (!(f->class_names[f->base.classes++] = lt_strdup(names[i] ? names[i] : "")))
            st = LT_E_NOMEM;
    for (size_t i = 0; i < count && !st; i++) {
        if (i && !strcmp(s[i].row->label, s[i - 1].row->label))
            s[i].class = s[i - 1].class;
        else
            st = find_class(m, f, s[i].row, !names, &s[i].class);
    }
    return st;
}

static lt_status fill(lt_file_list *f, images *m, const char *const *names, int classes)
{
    sample *s = lt_alloc(m->table.count, sizeof *s);
    f->label = lt_alloc(m->table.count, sizeof *f->label);
    if (!s || !f->label) {
        lt_free(s);
        return LT_E_NOMEM;
    }
    const size_t count = take_samples(m, s);
    lt_status st = assign_classes(m, f, s, count, names, classes);
    if (!st)
        qsort(s, count, sizeof *s, by_class_then_path);
    for (size_t i = 0; i < count; i++) {
        f->label[i] = s[i].class;
        if (st)
            lt_free(s[i].path);
        else
            st = lt_paths_add(&f->files, s[i].path);
    }
    f->base.count = (int64_t)f->files.count;
    lt_free(s);
    return st;
}

static lt_status list_files(images *m)
{
    static const lt_paths_rule rule = {.is_wanted = lt_is_image, .is_hidden = lt_is_hidden};
    if (!lt_is_folder(m->folder))
        return lt_fail(LT_E_IO, "%s: no such folder, which has the images of %s", m->folder,
                       m->table_path);
    LT_TRY(lt_paths_add_below(&m->files, m->folder, &rule));
    m->folder_bytes = strlen(m->folder) + 1;
    return m->files.count
               ? LT_OK
               : lt_fail(LT_E_FORMAT, "%s: no " LT_IMAGE_NAMES " file in this folder", m->folder);
}

static lt_status match(images *m, const char *columns)
{
    size_t missing;
    LT_TRY(lt_label_table_read(&m->table, m->table_path, columns));
    LT_TRY(list_files(m));
    LT_TRY(LT_ALLOC(&m->image_of_row, m->table.count));
    LT_TRY(LT_ALLOC(&m->row_of_image, m->files.count));
    LT_TRY(LT_ALLOC(&m->keys, m->files.count));
    LT_TRY(find_images(m, &missing));
    if (missing)
        return fail_missing_images(m);
    return assign_rows(m);
}

lt_status lt_dataset_table(lt_dataset **out, const char *path, const char *labels,
                           const char *columns, const char *const *class_names, int classes)
{
    lt_dataset *d = NULL;
    LT_TRY(lt_file_list_new(&d, 0, 3));
    char *folder = lt_strdup(path);
    for (size_t n = folder ? strlen(folder) : 0; n > 1 && folder[n - 1] == '/';)
        folder[--n] = 0;
    images m = {.folder = folder, .table_path = labels};
    lt_status st = folder ? match(&m, columns) : LT_E_NOMEM;
    if (!st) {
        log_images_without_labels(&m);
        st = fill((lt_file_list *)d, &m, class_names, classes);
    }
    lt_free_texts(m.files.path, m.files.count);
    lt_label_table_clear(&m.table);
    lt_free(m.image_of_row);
    lt_free(m.row_of_image);
    lt_free(m.keys);
    lt_free(folder);
    return lt_dataset_set_or_free(out, d, st);
}
