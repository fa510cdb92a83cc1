/* Files of labels, a line per image: "FILE LABEL", or "LABEL" for the images in the order of their
 * names. LABEL is a class's name or its number, from 0 on. ILSVRC2012_validation_ground_truth.txt
 * has numbers of the devkit's own; map_clsloc.txt of the devkits since 2014 says which class each
 * of them is. */

#include "data/datasets/labels.h"

#include "base/alloc.h"
#include "base/encoding/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    const char *path;
    const char *const *name; /* of classes; NULL: numbers only */
    int32_t classes;         /* 0: any number */
    int32_t *by_name;        /* classes in the order of their names */
    int32_t *map; /* class of each of the devkit's numbers; -1: none; NULL: no such numbers */
    const char *map_path;
    size_t map_count, capacity;
    lt_labels labels;
} job;

/* --- Classes --- */

static int compare_classes(const void *a, const void *b, void *context)
{
    const char *const *name = context;
    return strcmp(name[*(const int32_t *)a], name[*(const int32_t *)b]);
}

static lt_status sort_classes(job *j)
{
    for (int32_t i = 0; j->name && i < j->classes; i++)
        if (!j->name[i])
            j->name = NULL;
    if (!j->name)
        return LT_OK;
    j->by_name = lt_alloc((size_t)j->classes, sizeof *j->by_name);
    if (!j->by_name)
        return LT_E_NOMEM;
    for (int32_t i = 0; i < j->classes; i++)
        j->by_name[i] = i;
    union {
        const char *const *names;
        void *context;
    } pass = {.names = j->name}; /* qsort_r() wants no const */
    qsort_r(j->by_name, (size_t)j->classes, sizeof *j->by_name, compare_classes, pass.context);
    return LT_OK;
}

/* -1: no class is called so. */
static int32_t find_class(const job *j, const char *name)
{
    int32_t low = 0, high = j->name ? j->classes : 0;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        int order = strcmp(j->name[j->by_name[middle]], name);
        if (!order)
            return j->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* A number >= 0 and nothing else, or -1. */
static int32_t parse_number(const char *text)
{
    enum { DIGITS = 9 };
    size_t digits = strspn(text, "0123456789");
    return digits && digits <= DIGITS && !text[digits] ? (int32_t)strtol(text, NULL, 10) : -1;
}

/* --- Lines --- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == ',';
}

/* Removes blanks at the end. */
static void trim(char *text)
{
    size_t length = strlen(text);
    while (length && is_blank(text[length - 1]))
        text[--length] = 0;
}

/* LABEL, or FILE LABEL: the last word is the label, so that a file's name may have blanks. */
static lt_status add_line(job *j, char *text, int number)
{
    text += strspn(text, " \t");
    trim(text);
    if (!*text)
        return LT_OK;
    char *label = text + strlen(text);
    while (label > text && !is_blank(label[-1]))
        label--;
    lt_label *grown = lt_grow(j->labels.line, &j->capacity, j->labels.count + 1, sizeof *grown);
    if (!grown)
        return LT_E_NOMEM;
    j->labels.line = grown;
    if (label > text)
        label[-1] = 0;
    grown[j->labels.count] =
        (lt_label){.file = label > text ? text : NULL, .text = label, .number = number};
    if (label > text)
        trim(text);
    if (!grown[j->labels.count].file != !grown[0].file)
        return lt_fail(LT_E_FORMAT, "%s:%d: a file and a label in some lines, one word in others",
                       j->path, number);
    j->labels.count++;
    return LT_OK;
}

/* Every line of a file, text owned by the caller. */
static lt_status split_lines(job *j, char *text, lt_status visit(job *, char *, int))
{
    int number = 1;
    for (char *next = text; next; number++) {
        char *end = strchr(next, '\n');
        if (end)
            *end++ = 0;
        LT_TRY(visit(j, next, number));
        next = end;
    }
    return LT_OK;
}

static lt_status read_labels(job *j)
{
    size_t bytes = 0;
    LT_TRY(lt_json_read_file(j->path, &j->labels.text, &bytes));
    if (strlen(j->labels.text) != bytes)
        return lt_fail(LT_E_FORMAT, "%s: no text: it has a zero byte", j->path);
    LT_TRY(split_lines(j, j->labels.text, add_line));
    if (!j->labels.count)
        return lt_fail(LT_E_FORMAT, "%s: no label in it", j->path);
    return LT_OK;
}

/* --- The devkit's numbers --- */

/* "n02119789 1 kit_fox" */
static lt_status add_mapping(job *j, char *text, int number)
{
    char *rest = NULL;
    const char *name = strtok_r(text, " \t\r", &rest), *id = strtok_r(NULL, " \t\r", &rest);
    int32_t value = id ? parse_number(id) : -1;
    if (!name)
        return LT_OK;
    if (value < 0 || value > 1 << 20)
        return lt_fail(LT_E_FORMAT, "%s:%d: not NAME NUMBER", j->map_path, number);
    if ((size_t)value >= j->map_count) {
        size_t count = 2 * (size_t)value + 1;
        int32_t *grown = lt_realloc(j->map, count, sizeof *grown);
        if (!grown)
            return LT_E_NOMEM;
        for (size_t i = j->map_count; i < count; i++)
            grown[i] = -1;
        j->map = grown;
        j->map_count = count;
    }
    j->map[value] = find_class(j, name);
    return LT_OK;
}

/* For labels without file names: numbers from 0 on are classes; numbers from 1 on are the devkit's,
 * in another order than the class names, and map_clsloc.txt maps them. */
static lt_status find_map(job *j)
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
                     "%s: numbers from 1 on, as in ImageNet's devkit, whose meaning map_clsloc.txt "
                     "beside it would tell; it is not there",
                     j->path);
    j->map_path = path;
    if (!st)
        st = split_lines(j, text, add_mapping);
    if (!st && !j->map)
        st = lt_fail(LT_E_FORMAT, "%s: no class in it", path);
    lt_free(text);
    lt_free(path);
    return st;
}

/* --- Labels --- */

static lt_status find_label(const job *j, lt_label *l)
{
    int32_t number = parse_number(l->text);
    l->label = j->map ? -1 : find_class(j, l->text);
    if (l->label < 0 && j->map)
        l->label = number >= 0 && (size_t)number < j->map_count ? j->map[number] : -1;
    else if (l->label < 0 && (!j->classes || number < j->classes))
        l->label = number;
    if (l->label >= 0)
        return LT_OK;
    if (!j->classes)
        return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is no number, and the classes have no names",
                       j->path, l->number, l->text);
    return lt_fail(LT_E_FORMAT, "%s:%d: '%s' is none of the %d classes", j->path, l->number,
                   l->text, (int)j->classes);
}

static lt_status run(job *j)
{
    LT_TRY(sort_classes(j));
    LT_TRY(read_labels(j));
    if (!j->labels.line[0].file)
        LT_TRY(find_map(j));
    for (size_t i = 0; i < j->labels.count; i++)
        LT_TRY(find_label(j, &j->labels.line[i]));
    return LT_OK;
}

lt_status lt_labels_read(lt_labels *out, const char *path, const char *const *name, int classes)
{
    job j = {.path = path, .name = name, .classes = classes};
    lt_status st = run(&j);
    lt_free(j.by_name);
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
