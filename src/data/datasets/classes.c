/* Compares the classes of two data sets, and maps a data set's classes to a model's by name. */

#include "base/alloc.h"

#include "lather/detail/text.h"
#include "lather/ext/dataset.h"

#include <string.h>

static bool has_names(const lt_dataset *d)
{
    return d->classes > 0 && lt_dataset_class_name(d, 0);
}

/* Compares class names; NULL: the class has no name. */
static bool same_name(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

/* Returns the index of the class with this name, trying i first, or -1 if absent. If one side has no name, returns
 * i. */
static int32_t find_class(const lt_dataset *d, const char *name, int32_t i)
{
    const char *here = lt_dataset_class_name(d, i);
    const int32_t classes = lt_dataset_classes(d);
    for (int32_t k = 0; k < classes && name && !same_name(here, name); k++)
        if (same_name(lt_dataset_class_name(d, k), name))
            return k;
    return i < classes && (!name || !here || !*here || same_name(here, name)) ? i : -1;
}

/* Returns the classes of d that other lacks, as "cat, dog and 3 more", or NULL if out of memory. by_number: a class
 * without a name matches the other data set's class with the same index. */
static char *list_missing(const lt_dataset *d, const lt_dataset *other, bool by_number)
{
    enum { LISTED = 5, SHOWN = 1024 };
    int count = 0;
    char *text = lt_strdup("");
    for (int32_t i = 0; i < lt_dataset_classes(d) && text; i++) {
        const char *name = lt_dataset_class_name(d, i);
        const int32_t k = find_class(other, name, i);
        if ((k >= 0 && (by_number || same_name(lt_dataset_class_name(other, k), name)))
            || count++ >= LISTED)
            continue;
        char shown[SHOWN];
        char *more = lt_format("%s%s%s", text, count > 1 ? ", " : "",
                               name ? lt_text_escape(shown, sizeof shown, name) : "(no name)");
        lt_free(text);
        text = more;
    }
    if (text && count > LISTED) {
        char *more = lt_format("%s and %d more", text, count - LISTED);
        lt_free(text);
        text = more;
    }
    return text;
}

static lt_status class_difference_error(const lt_dataset *train, const lt_dataset *val)
{
    lt_status st;
    char *a = list_missing(train, val, false), *b = list_missing(val, train, false);
    if (!a || !b)
        st = LT_E_NOMEM;
    else if (*a && *b)
        st =
            lt_fail(LT_E_FORMAT,
                    "classes only in the training data: %s; only in the validation data: %s", a, b);
    else if (*a || *b)
        st = lt_fail(LT_E_FORMAT, "classes only in the %s data: %s", *a ? "training" : "validation",
                     *a ? a : b);
    else
        st = lt_fail(LT_E_FORMAT, "training and validation data order their classes differently");
    lt_free(a);
    lt_free(b);
    return st;
}

lt_status lt_dataset_same_classes(const lt_dataset *train, const lt_dataset *val)
{
    if (has_names(train) && has_names(val)) {
        bool same = train->classes == val->classes;
        for (int32_t i = 0; i < train->classes && same; i++)
            same = same_name(lt_dataset_class_name(train, i), lt_dataset_class_name(val, i));
        return same ? LT_OK : class_difference_error(train, val);
    }
    bool fits = has_names(train) || has_names(val) ? train->classes == val->classes
                                                   : train->classes >= val->classes;
    return fits ? LT_OK
                : lt_fail(LT_E_FORMAT, "training data has %d classes, validation data has %d",
                          (int)train->classes, (int)val->classes);
}

static lt_status check_classes_known(const lt_dataset *d, const lt_dataset *model)
{
    char *missing = list_missing(d, model, true);
    lt_status st = missing ? LT_OK : LT_E_NOMEM;
    if (missing && *missing)
        st = lt_fail(LT_E_FORMAT, "%s", missing);
    lt_free(missing);
    return st;
}

lt_status lt_dataset_map_classes(lt_dataset *dataset, const char *const *names, int classes)
{
    int32_t *label = lt_alloc((size_t)dataset->classes, sizeof *label);
    char **name = lt_alloc((size_t)classes, sizeof *name);
    const lt_dataset model = {.label_map = label, .map_name = name, .map_classes = classes};
    lt_status st = label && name ? LT_OK : LT_E_NOMEM;
    for (int32_t i = 0; i < classes && !st; i++)
        if (names[i] && !(name[i] = lt_strdup(names[i])))
            st = LT_E_NOMEM;
    if (!st)
        st = check_classes_known(dataset, &model);
    for (int32_t i = 0; i < dataset->classes && !st; i++) {
        const int32_t now = dataset->label_map ? dataset->label_map[i] : i;
        label[i] = find_class(&model, lt_dataset_class_name(dataset, now), now);
    }
    if (!st) { /* replaces an earlier map */
        lt_free_texts(dataset->map_name, (size_t)dataset->map_classes);
        lt_free(dataset->label_map);
        dataset->map_name = name;
        dataset->map_classes = classes;
        dataset->label_map = label;
    } else {
        lt_free_texts(name, name ? (size_t)classes : 0);
        lt_free(label);
    }
    return st;
}
