/* Reads label files: lines of "FILE LABEL", or of "LABEL" for the images in the order of their names. LABEL is a class
 * name or a class index from 0. ILSVRC2012_validation_ground_truth.txt has the devkit's class numbers instead;
 * map_clsloc.txt, in devkits since 2014, maps them to class names. */

#include "data/datasets/labels.h"

#include "base/alloc.h"
#include "base/encoding/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct named_class {
    const char *name;
    int32_t index;
} named_class;

typedef struct job {
    const char *path;
    int32_t classes;    /* number of classes; 0: any */
    named_class *named; /* [classes] sorted by name; NULL without names */
    int32_t *map;       /* class of each devkit number, -1 if unused; NULL without such numbers */
    const char *map_path;
    size_t map_count, capacity;
    lt_labels labels;
} job;

/* --- Classes --- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const named_class *)a)->name, ((const named_class *)b)->name);
}

/* Names may repeat: ImageNet has two classes "crane". */
static int by_name_then_index(const void *a, const void *b)
{
    const named_class *x = a, *y = b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static lt_status sort_classes(job *j, const char *const *name)
{
    for (int32_t i = 0; name && i < j->classes; i++)
        if (!name[i])
            name = NULL;
    if (!name || !j->classes)
        return LT_OK;
    LT_TRY(LT_ALLOC(&j->named, j->classes));
    for (int32_t i = 0; i < j->classes; i++)
        j->named[i] = (named_class){name[i], i};
    qsort(j->named, (size_t)j->classes, sizeof *j->named, by_name_then_index);
    return LT_OK;
}

/* Returns the first class of this name, or NULL if absent. */
static const named_class *find_name(const job *j, const char *name)
{
    const named_class key = {.name = name}, *found = NULL;
    if (j->named)
        found = bsearch(&key, j->named, (size_t)j->classes, sizeof key, compare_names);
    while (found && found > j->named && !compare_names(found - 1, found))
        found--;
    return found;
}

/* Returns the index of the first class of this name, or -1 if absent. */
static int32_t find_class(const job *j, const char *name)
{
    const named_class *found = find_name(j, name);
    return found ? found->index : -1;
}

/* Parses a number >= 0 of at most 9 digits; -1 if the text is anything else. */
static int32_t parse_number(const char *text)
{
    enum { DIGITS = 9 };
    size_t digits = strspn(text, "0123456789");
    return digits && digits <= DIGITS && !text[digits] ? (int32_t)strtol(text, NULL, 10) : -1;
}

/* --- Lines --- */

static bool is_separator(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == ',';
}

/* Removes trailing blanks and commas. */
static void trim_end(char *text)
{
    size_t length = strlen(text);
    while (length && is_separator(text[length - 1]))
        text[--length] = 0;
}

/* Adds "LABEL" or "FILE LABEL". The label is the last word, so that file names may contain blanks. */
static lt_status add_line(job *j, char *text, int line)
{
    text += strspn(text, " \t");
    trim_end(text);
    if (!*text)
        return LT_OK;
    char *label = text + strlen(text);
    while (label > text && !is_separator(label[-1]))
        label--;
    LT_TRY(LT_GROW(&j->labels.line, &j->capacity, j->labels.count + 1));
    if (label > text)
        label[-1] = 0;
    j->labels.line[j->labels.count] =
        (lt_label){.file = label > text ? text : NULL, .text = label, .line = line};
    if (label > text)
        trim_end(text);
    if (!j->labels.line[j->labels.count].file != !j->labels.line[0].file)
        return lt_fail(LT_E_FORMAT, "%s:%d: some lines have FILE LABEL, others one word", j->path,
                       line);
    j->labels.count++;
    return LT_OK;
}

/* Calls visit for every line of text, which it cuts into lines in place. */
static lt_status visit_lines(job *j, char *text, lt_status visit(job *, char *, int))
{
    int line = 1;
    for (char *next = text; next; line++) {
        char *end = strchr(next, '\n');
        if (end)
            *end++ = 0;
        LT_TRY(visit(j, next, line));
        next = end;
    }
    return LT_OK;
}

static lt_status read_labels(job *j)
{
    size_t bytes = 0;
    LT_TRY(lt_json_read_file(j->path, &j->labels.text, &bytes));
    if (strlen(j->labels.text) != bytes)
        return lt_fail(LT_E_FORMAT, "%s: not a text file: it has a zero byte", j->path);
    LT_TRY(visit_lines(j, j->labels.text, add_line));
    if (!j->labels.count)
        return lt_fail(LT_E_FORMAT, "%s: no label in this file", j->path);
    return LT_OK;
}

/* --- Class numbers of ImageNet's devkit --- */

/* Adds the class of a line of map_clsloc.txt such as "n02119789 1 kit_fox". */
static lt_status add_mapping(job *j, char *text, int line)
{
    char *rest = NULL;
    const char *name = strtok_r(text, " \t\r", &rest), *id = strtok_r(NULL, " \t\r", &rest);
    int32_t value = id ? parse_number(id) : -1;
    if (!name)
        return LT_OK;
    if (value < 0 || value > 1 << 20)
        return lt_fail(LT_E_FORMAT, "%s:%d: want NAME NUMBER", j->map_path, line);
    if ((size_t)value >= j->map_count) {
        size_t count = 2 * (size_t)value + 1;
        LT_TRY(LT_RESIZE(&j->map, count));
        while (j->map_count < count)
            j->map[j->map_count++] = -1;
    }
    j->map[value] = find_class(j, name);
    return LT_OK;
}

/* Reads map_clsloc.txt if the labels are devkit numbers: numbers only, and none is 0. */
static lt_status read_devkit_map(job *j)
{
    for (size_t i = 0; i < j->labels.count; i++)
        if (parse_number(j->labels.line[i].text) <= 0 || find_class(j, j->labels.line[i].text) >= 0)
            return LT_OK;
    const char *slash = strrchr(j->path, '/');
    char *path = lt_format("%.*smap_clsloc.txt", slash ? (int)(slash + 1 - j->path) : 0, j->path),
         *text = NULL;
    size_t bytes = 0;
    lt_status st = path ? lt_json_read_file(path, &text, &bytes) : LT_E_NOMEM;
    if (st == LT_E_IO)
        st = lt_fail(LT_E_FORMAT,
                     "%s: the labels start at 1, as in ImageNet's devkit; copy the devkit's "
                     "map_clsloc.txt, which maps them to classes, into the same folder",
                     j->path);
    j->map_path = path;
    if (!st)
        st = visit_lines(j, text, add_mapping);
    if (!st && !j->map)
        st = lt_fail(LT_E_FORMAT, "%s: no class in this file", path);
    lt_free(text);
    lt_free(path);
    return st;
}

/* --- Labels --- */

static lt_status check_unique(const job *j, const lt_label *l)
{
    const named_class *first = find_name(j, l->text);
    if (!first || first + 1 == j->named + j->classes || compare_names(first, first + 1) != 0)
        return LT_OK;
    return lt_fail(LT_E_FORMAT,
                   "%s:%d: '%s' is the name of classes %d and %d: replace it by the class's index",
                   j->path, l->line, l->text, (int)first[0].index, (int)first[1].index);
}

static lt_status resolve_label(const job *j, lt_label *l)
{
    int32_t number = parse_number(l->text);
    LT_TRY(check_unique(j, l));
    l->label = j->map ? -1 : find_class(j, l->text);
    if (l->label < 0 && j->map)
        l->label = number >= 0 && (size_t)number < j->map_count ? j->map[number] : -1;
    else if (l->label < 0 && (!j->classes || number < j->classes))
        l->label = number;
    if (l->label >= 0)
        return LT_OK;
    if (!j->classes)
        return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is not a number, and the classes have no names",
                       j->path, l->line, l->text);
    return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is not one of the %d classes", j->path, l->line,
                   l->text, (int)j->classes);
}

static lt_status read_and_resolve_labels(job *j, const char *const *name)
{
    LT_TRY(sort_classes(j, name));
    LT_TRY(read_labels(j));
    if (!j->labels.line[0].file)
        LT_TRY(read_devkit_map(j));
    for (size_t i = 0; i < j->labels.count; i++)
        LT_TRY(resolve_label(j, &j->labels.line[i]));
    return LT_OK;
}

lt_status lt_labels_read(lt_labels *out, const char *path, const char *const *name, int classes)
{
    job j = {.path = path, .classes = classes};
    lt_status st = read_and_resolve_labels(&j, name);
    lt_free(j.named);
    lt_free(j.map);
    if (st)
        lt_labels_clear(&j.labels);
    else
        *out = j.labels;
    return st;
}

void lt_labels_clear(lt_labels *labels)
{
    lt_free(labels->line);
    lt_free(labels->text);
    *labels = (lt_labels){0};
}
