/* Where the images come from. */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1024 };

/* DATA/part into path, if there is such a folder. */
static bool find_part(const classifier *s, const char *part, char path[PATH_BYTES])
{
    struct stat info;
    int bytes = snprintf(path, PATH_BYTES, "%s/%s", s->t->args.data, part);
    return bytes < PATH_BYTES && !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* --val-labels: a flat DATA/val, or DATA itself, with these class names; NULL: numbers only. */
static lt_status open_labelled(classifier *s, const char *const *name, int classes)
{
    char path[PATH_BYTES];
    const char *folder = find_part(s, "val", path) ? path : s->t->args.data;
    return lt_dataset_labelled(&s->t->input.val, folder, s->args.images.val_labels, name, classes);
}

static lt_status open_like(classifier *s, const lt_dataset *like)
{
    int classes = lt_dataset_classes(like);
    const char **name = calloc((size_t)classes + 1, sizeof *name);
    if (!name)
        return lt_fail(LT_E_NOMEM, "data: no memory for %d class names", classes);
    for (int i = 0; i < classes; i++)
        name[i] = lt_dataset_class_name(like, i);
    lt_status st = open_labelled(s, name, classes);
    free(name);
    return st;
}

/* With the class names that the weights know. */
static lt_status open_known(classifier *s)
{
    const int classes = lt_metadata_class_count(&s->known);
    char *text = NULL;
    const char **name = NULL;
    lt_status st = lt_metadata_split(&s->known, &text, &name);
    if (!st)
        st = open_labelled(s, classes ? name : NULL, classes);
    free(name);
    free(text);
    return st;
}

static lt_status open_val(classifier *s)
{
    char path[PATH_BYTES];
    lt_dataset *like = NULL;
    if (!s->args.images.val_labels)
        return lt_dataset_open(&s->t->input.val, s->t->args.data, false);
    if (s->t->input.train)
        return open_like(s, s->t->input.train);
    if (!find_part(s, "train", path))
        return open_known(s);
    LT_TRY(lt_dataset_open(&like, s->t->args.data, true));
    lt_status st = open_like(s, like);
    lt_dataset_free(&like);
    return st;
}

/* "500M": a number and K, M, G, T, or nothing; 0: it is something else. */
static int64_t parse_bytes(const char *text)
{
    static const char units[] = "KMGT";
    const int64_t kilo = 1024;
    char *end;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        value *= (double)kilo;
    if (end == text || (*end && (!unit || end[1]))
        || !(value >= 1 && value < (double)(INT64_MAX / 2)))
        return 0;
    return (int64_t)value;
}

int64_t lt_classifier_cache_bytes(const classifier *s)
{
    return s->args.images.cache_ram ? parse_bytes(s->args.images.cache_ram) : 0;
}

static lt_status open_caches(classifier *s)
{
    const image_options *o = &s->args.images;
    if (o->cache_ram && !parse_bytes(o->cache_ram))
        return lt_fail(LT_E_ARG, "--cache-ram: '%s' is no size such as 500M or 16G", o->cache_ram);
    return LT_OK;
}

lt_status lt_classifier_open_sources(classifier *s)
{
    if (s->t->weights[0])
        LT_TRY(lt_metadata_read(&s->known, s->t->weights));
    if (!s->t->args.evaluation.eval)
        LT_TRY(lt_dataset_open(&s->t->input.train, s->t->args.data, true));
    LT_TRY(open_val(s));
    lt_status st =
        s->t->input.train ? lt_dataset_same_classes(s->t->input.train, s->t->input.val) : LT_OK;
    return st ? lt_fail(st, "%s: %s", s->t->args.data, lt_error_message()) : open_caches(s);
}
