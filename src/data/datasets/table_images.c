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

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Forms of an image's name. */
typedef enum form { PATH, PATH_STEM, NAME, NAME_STEM, FORMS } form;

enum { LISTED = 3, SHOWN = 256, DIGITS = 9 };

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
    char **class_names;   /* [classes] owned */
    int classes;
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
    char *inner = lt_format("%s/%s", m->folder, last);
    const bool is_folder = inner && lt_is_folder(inner);
    lt_free(inner);
    return is_folder ? name : name + bytes + 1;
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
static void add_to_list(char list[LISTED * SHOWN], size_t *count, const char *name)
{
    char shown[SHOWN / 2];
    const size_t used = strlen(list);
    if ((*count)++ < LISTED)
        snprintf(list + used, LISTED * SHOWN - used, "%s%s", used ? ", " : "",
                 lt_text_escape(shown, sizeof shown, name));
    else if (*count == LISTED + 1)
        snprintf(list + used, LISTED * SHOWN - used, ", ...");
}

static lt_status fail_missing_images(const images *m)
{
    char list[LISTED * SHOWN] = "";
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
    char list[LISTED * SHOWN] = "", shown[SHOWN];
    size_t count = 0;
    for (size_t i = 0; i < m->files.count; i++)
        if (m->row_of_image[i] == m->table.count)
            add_to_list(list, &count, path_below(m, i));
    if (count && !lt_is_repeated(&last, m->table_path, list))
        lt_log(LT_LOG_WARN, "data", "%s: no label for %zu of the %zu images of %s, left out: %s",
               lt_text_escape(shown, sizeof shown, m->table_path), count, m->files.count, m->folder,
               list);
}

/* --- Classes --- */

static bool is_number(const char *text)
{
    const size_t digits = strspn(text, "0123456789");
    return digits && digits <= DIGITS && !text[digits];
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_number(const void *a, const void *b)
{
    const long x = strtol(*(const char *const *)a, NULL, 10),
               y = strtol(*(const char *const *)b, NULL, 10);
    return x != y ? (x > y) - (x < y) : by_text(a, b);
}

/* Lists the labels as classes, ordered as numbers if all are, otherwise by name. */
static lt_status list_classes(images *m)
{
    int (*order)(const void *, const void *) = by_number;
    const char **label = lt_alloc(m->table.count, sizeof *label);
    if (!label)
        return LT_E_NOMEM;
    for (size_t i = 0; i < m->table.count; i++) {
        label[i] = m->table.row[i].label;
        order = is_number(label[i]) ? order : by_text;
    }
    qsort(label, m->table.count, sizeof *label, order);
    m->class_names = lt_alloc(m->table.count, sizeof *m->class_names);
    lt_status st = m->class_names ? LT_OK : LT_E_NOMEM;
    for (size_t i = 0; i < m->table.count && !st; i++)
        if ((!i || strcmp(label[i], label[i - 1]) != 0)
            && !(m->class_names[m->classes++] = lt_strdup(label[i])))
            st = LT_E_NOMEM;
    lt_free(label);
    return st;
}

static lt_status copy_classes(images *m, const char *const *names, int classes)
{
    m->class_names = lt_alloc((size_t)classes, sizeof *m->class_names);
    if (!m->class_names)
        return LT_E_NOMEM;
    for (m->classes = 0; m->classes < classes; m->classes++)
        if (!(m->class_names[m->classes] = lt_strdup(names[m->classes] ? names[m->classes] : "")))
            return LT_E_NOMEM;
    return LT_OK;
}

/* --- The data set --- */

typedef struct labelled {
    char *path; /* owned */
    int32_t label;
} labelled;

static int by_class_then_path(const void *a, const void *b)
{
    const labelled *x = a, *y = b;
    const int order = (x->label > y->label) - (x->label < y->label);
    return order ? order : strcmp(x->path, y->path);
}

/* Moves the labelled images' paths to `out`. */
static lt_status take_labelled(images *m, labelled *out, size_t *count)
{
    const char **sorted = lt_alloc((size_t)m->classes, sizeof *sorted);
    int32_t *class_of = lt_alloc((size_t)m->classes, sizeof *class_of);
    lt_status st = sorted && class_of ? LT_OK : LT_E_NOMEM;
    for (int i = 0; i < m->classes && !st; i++)
        sorted[i] = m->class_names[i];
    if (!st)
        qsort(sorted, (size_t)m->classes, sizeof *sorted, by_text);
    for (int i = 0; i < m->classes && !st; i++) {
        const char **at =
            bsearch(&m->class_names[i], sorted, (size_t)m->classes, sizeof *sorted, by_text);
        class_of[at - sorted] = i;
    }
    for (size_t i = 0; i < m->files.count && !st; i++) {
        if (m->row_of_image[i] == m->table.count)
            continue;
        const lt_table_row *row = &m->table.row[m->row_of_image[i]];
        const char **at = bsearch(&row->label, sorted, (size_t)m->classes, sizeof *sorted, by_text);
        if (!at) {
            st = lt_fail(LT_E_FORMAT, "%s:%d: '%s' is not one of the %d classes", m->table_path,
                         row->line, row->label, m->classes);
            break;
        }
        out[(*count)++] = (labelled){m->files.path[i], class_of[at - sorted]};
        m->files.path[i] = NULL;
    }
    lt_free(class_of);
    lt_free(sorted);
    return st;
}

static lt_status fill(lt_file_list *f, images *m)
{
    size_t count = 0;
    labelled *image = lt_alloc(m->table.count, sizeof *image);
    f->label = lt_alloc(m->table.count, sizeof *f->label);
    lt_status st = image && f->label ? take_labelled(m, image, &count) : LT_E_NOMEM;
    if (!st)
        qsort(image, count, sizeof *image, by_class_then_path);
    for (size_t i = 0; i < count; i++) {
        if (st)
            lt_free(image[i].path);
        else if (!(st = lt_paths_add(&f->files, image[i].path)))
            f->label[i] = image[i].label;
    }
    f->base.count = (int64_t)f->files.count;
    f->base.classes = m->classes;
    f->class_names = m->class_names;
    m->class_names = NULL;
    m->classes = 0;
    lt_free(image);
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
    m->image_of_row = lt_alloc(m->table.count, sizeof *m->image_of_row);
    m->row_of_image = lt_alloc(m->files.count, sizeof *m->row_of_image);
    m->keys = lt_alloc(m->files.count, sizeof *m->keys);
    if (!m->image_of_row || !m->row_of_image || !m->keys)
        return LT_E_NOMEM;
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
    if (!st)
        st = class_names ? copy_classes(&m, class_names, classes) : list_classes(&m);
    if (!st) {
        log_images_without_labels(&m);
        st = fill((lt_file_list *)d, &m);
    }
    lt_free_texts(m.class_names, (size_t)m.classes);
    lt_free_texts(m.files.path, m.files.count);
    lt_label_table_clear(&m.table);
    lt_free(m.image_of_row);
    lt_free(m.row_of_image);
    lt_free(m.keys);
    lt_free(folder);
    return lt_dataset_set_or_free(out, d, st);
}
