/* Comparison of two data sets' classes. */

#include "base/alloc.h"

#include "lather/ext/dataset.h"
#include "lather/text.h"

#include <string.h>

static bool has_names(const lt_dataset *d)
{
    return d->classes > 0 && lt_dataset_class_name(d, 0);
}

/* Names are NULL for classes without one. */
static bool same_name(const char *a, const char *b)
{
    return a == b || (a && b && !strcmp(a, b));
}

static bool has_class(const lt_dataset *d, const char *name)
{
    for (int32_t i = 0; i < d->classes; i++)
        if (same_name(lt_dataset_class_name(d, i), name))
            return true;
    return false;
}

/* "cat, dog and 3 more": the classes of d that other does not have; "": none; NULL: no memory. */
static char *list_missing(const lt_dataset *d, const lt_dataset *other)
{
    enum { LISTED = 5, SHOWN = 1024 };
    int count = 0;
    char *text = lt_strdup("");
    for (int32_t i = 0; i < d->classes && text; i++) {
        const char *name = lt_dataset_class_name(d, i);
        if (has_class(other, name) || count++ >= LISTED)
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

static lt_status name_differences(const lt_dataset *train, const lt_dataset *val)
{
    lt_status st;
    char *a = list_missing(train, val), *b = list_missing(val, train);
    if (!a || !b)
        st = LT_E_NOMEM;
    else if (*a && *b)
        st = lt_fail(LT_E_FORMAT, "classes only to train on: %s; only to evaluate: %s", a, b);
    else if (*a || *b)
        st = lt_fail(LT_E_FORMAT, "classes only to %s: %s", *a ? "train on" : "evaluate",
                     *a ? a : b);
    else
        st = lt_fail(LT_E_FORMAT, "the classes to train on and to evaluate are in another order");
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
        return same ? LT_OK : name_differences(train, val);
    }
    bool fits = has_names(train) || has_names(val) ? train->classes == val->classes
                                                   : train->classes >= val->classes;
    return fits ? LT_OK
                : lt_fail(LT_E_FORMAT, "%d classes to train on, %d to evaluate",
                          (int)train->classes, (int)val->classes);
}
