/* Where the pictures come from. */

#include "session.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1024 };

/* DATA/part into path, if there is such a folder. */
static bool find_part(const session *s, const char *part, char path[PATH_BYTES])
{
    struct stat info;
    int bytes = snprintf(path, PATH_BYTES, "%s/%s", s->args.data, part);
    return bytes < PATH_BYTES && !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* --val-labels: a flat DATA/val, or DATA itself, with the class names of like. */
static lt_status open_labelled(session *s, const lt_dataset *like)
{
    char path[PATH_BYTES];
    const char *folder = find_part(s, "val", path) ? path : s->args.data;
    int classes = like ? lt_dataset_classes(like) : 0;
    const char **name = calloc((size_t)classes + 1, sizeof *name);
    if (!name)
        return lt_fail(LT_E_NOMEM, "data: no memory for %d class names", classes);
    for (int i = 0; i < classes; i++)
        name[i] = lt_dataset_class_name(like, i);
    lt_status st = lt_dataset_labelled(&s->val_data, folder, s->args.val_labels,
                                       classes ? name : NULL, classes);
    free(name);
    return st;
}

static lt_status open_val(session *s)
{
    char path[PATH_BYTES];
    lt_dataset *like = NULL;
    if (!s->args.val_labels)
        return lt_dataset_open(&s->val_data, s->args.data, false);
    if (s->train_data || !find_part(s, "train", path))
        return open_labelled(s, s->train_data);
    LT_TRY(lt_dataset_open(&like, s->args.data, true));
    lt_status st = open_labelled(s, like);
    lt_dataset_free(&like);
    return st;
}

lt_status session_open_sources(session *s)
{
    if (!s->args.eval)
        LT_TRY(lt_dataset_open(&s->train_data, s->args.data, true));
    LT_TRY(open_val(s));
    lt_status st = s->train_data ? lt_dataset_same_classes(s->train_data, s->val_data) : LT_OK;
    return st ? lt_fail(st, "%s: %s", s->args.data, lt_error_message()) : LT_OK;
}
