/* Data of a run: the sources of its images, their classes, and whether the weights have the same. */

#include "base/alloc.h"
#include "train/classify/classifier.h"

#include "lather/ext/dataset.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 1024 };

/* Writes DATA/part into path; false if there is no such folder. */
static bool find_data_folder(const classifier *s, const char *part, char path[PATH_BYTES])
{
    struct stat info;
    int bytes = snprintf(path, PATH_BYTES, "%s/%s", s->t->line.args.data, part);
    return bytes < PATH_BYTES && !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Opens the --val-labels data with these class names; NULL: numbers only. The images are in a flat DATA/val or DATA
 * itself; with --labels anywhere below DATA. */
static lt_status open_labelled(classifier *s, const char *const *name, int classes)
{
    const image_options *o = &s->args.images;
    char path[PATH_BYTES];
    if (o->labels)
        return lt_dataset_table(&s->t->input.val, s->t->line.args.data, o->val_labels,
                                o->labels_columns, name, classes);
    const char *folder = find_data_folder(s, "val", path) ? path : s->t->line.args.data;
    return lt_dataset_labelled(&s->t->input.val, folder, s->args.images.val_labels, name, classes);
}

static lt_status open_with_classes_of(classifier *s, const lt_dataset *like)
{
    int classes = lt_dataset_classes(like);
    const char **name;
    LT_TRY(LT_ALLOC(&name, classes));
    for (int i = 0; i < classes; i++)
        name[i] = lt_dataset_class_name(like, i);
    lt_status st = open_labelled(s, name, classes);
    lt_free(name);
    return st;
}

/* Opens the --val-labels data with the weights' class names. */
static lt_status open_with_weights_classes(classifier *s)
{
    const int classes = lt_metadata_class_count(&s->known);
    char *text = NULL;
    const char **name = NULL;
    lt_status st = lt_metadata_split_class_names(&s->known, &text, &name);
    if (!st)
        st = open_labelled(s, classes ? name : NULL, classes);
    lt_free(name);
    lt_free(text);
    return st;
}

/* Opens the images to train on, all of them also with --val-split. */
static lt_status open_train(const classifier *s, lt_dataset **out)
{
    const image_options *o = &s->args.images;
    const char *data = s->t->line.args.data;
    if (!o->labels)
        return lt_dataset_open(out, data, true);
    LT_TRY(lt_dataset_table(out, data, o->labels, o->labels_columns, NULL, 0));
    (*out)->unsplit = !o->val_labels;
    return LT_OK;
}

/* Opens the data to evaluate where no flag names it; without any, the training data. */
static lt_status open_own_val(classifier *s)
{
    lt_train_input *in = &s->t->input;
    const char *data = s->t->line.args.data;
    LT_TRY(s->args.images.labels ? open_train(s, &in->val)
                                 : lt_dataset_open(&in->val, data, false));
    return in->train ? LT_OK : lt_classifier_split_as_weights(s);
}

static lt_status open_val(classifier *s)
{
    char path[PATH_BYTES];
    lt_dataset *like = NULL;
    if (s->split.fraction > 0) {
        LT_TRY(open_train(s, &s->t->input.val));
        return lt_classifier_split(s);
    }
    if (!s->args.images.val_labels)
        return open_own_val(s);
    if (s->t->input.train)
        return open_with_classes_of(s, s->t->input.train);
    if (!s->args.images.labels && !find_data_folder(s, "train", path))
        return open_with_weights_classes(s);
    LT_TRY(open_train(s, &like));
    lt_status st = open_with_classes_of(s, like);
    lt_dataset_free(&like);
    return st;
}

/* Parses "500M": a number and K, M, G, T, or nothing; 0 if invalid. */
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

static lt_status check_cache_size(classifier *s)
{
    const image_options *o = &s->args.images;
    if (o->cache_ram && !parse_bytes(o->cache_ram))
        return lt_fail(LT_E_ARG, "--cache-ram: '%s' is not a size such as 500M or 16G",
                       o->cache_ram);
    return LT_OK;
}

/* Checks that training and validation data have the same classes. Validation data may lack some of them: a warning
 * names these, and the others are matched by name. */
static lt_status match_classes(classifier *s)
{
    const lt_train_input *in = &s->t->input;
    const char *data = s->t->line.args.data;
    char difference[NAME_TEXT];
    const lt_status different = lt_dataset_same_classes(in->train, in->val);
    if (!different)
        return LT_OK;
    snprintf(difference, sizeof difference, "%s", lt_error_message());
    const int classes = lt_dataset_classes(in->train);
    const bool named = lt_dataset_class_name(in->train, 0) && lt_dataset_class_name(in->val, 0);
    const char **name = NULL;
    if (named)
        LT_TRY(LT_ALLOC(&name, classes));
    for (int i = 0; i < classes && name; i++)
        name[i] = lt_dataset_class_name(in->train, i);
    const lt_status st = name ? lt_dataset_map_classes(in->val, name, classes) : different;
    lt_free(name);
    if (st)
        return lt_fail(different, "%s: %s; --val-split 0.1 would evaluate training images instead",
                       data, difference);
    lt_log(LT_LOG_WARN, "data", "%s: %s; the others are matched by name", data, difference);
    return LT_OK;
}

lt_status lt_classifier_open_sources(classifier *s)
{
    LT_TRY(lt_val_split_parse(&s->args.images, &s->split));
    if (*lt_trainer_weights(s->t))
        LT_TRY(lt_metadata_read(&s->known, lt_trainer_weights(s->t)));
    if (!lt_trainer_evaluates(s->t))
        LT_TRY(open_train(s, &s->t->input.train));
    LT_TRY(open_val(s));
    if (s->t->input.train)
        LT_TRY(match_classes(s));
    return check_cache_size(s);
}

/* --- Classes --- */

/* Fails because the weights lack classes of the data. --save-logits works without them; a checkpoint's are
 * compared later. */
static lt_status reject_unknown_classes(classifier *s)
{
    const lt_trainer *t = s->t;
    const bool eval = lt_trainer_evaluates(t);
    char missing[NAME_TEXT];
    snprintf(missing, sizeof missing, "%s", lt_error_message());
    s->other_classes = s->args.save_logits;
    if (s->other_classes || t->state.folder[0])
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: classes that %s does not have: %s; %s--reset-head%s",
                   t->line.args.data, lt_trainer_weights(t), missing,
                   eval ? "evaluate images of its classes, or train on these with " : "",
                   eval ? "" : " makes a new last layer for them");
}

/* Maps the data's labels to the weights' classes by name, if both have names. */
static lt_status map_classes(classifier *s)
{
    const lt_trainer *t = s->t;
    const int known = lt_metadata_class_count(&s->known), own = lt_metadata_class_count(&s->own);
    const bool is_new = t->line.args.reset_head && !t->state.folder[0];
    lt_dataset *part[] = {t->input.train, t->input.val};
    char *text = NULL;
    const char **name = NULL;
    if (!known || !own || !strcmp(s->known.names, s->own.names)
        || (!lt_trainer_evaluates(t) && (is_new || known != own)))
        return LT_OK;
    lt_status st = lt_metadata_split_class_names(&s->known, &text, &name);
    for (int i = 0; i < 2 && !st; i++)
        st = part[i] ? lt_dataset_map_classes(part[i], name, known) : LT_OK;
    lt_free(name);
    lt_free(text);
    if (st)
        return st == LT_E_FORMAT ? reject_unknown_classes(s) : st;
    LT_TRY(lt_metadata_copy_class_names(&s->own, t->input.val));
    lt_log(LT_LOG_INFO, "data",
           "%s: %d of the %d classes of %s, matched by name; all %d outputs are used",
           t->line.args.data, own, known, lt_trainer_weights(t), known);
    return LT_OK;
}

lt_status lt_classifier_open_metadata(classifier *s)
{
    LT_TRY(lt_classifier_choose_mean_std(s, lt_dataset_channels(s->t->input.val)));
    const lt_train_input *in = &s->t->input;
    LT_TRY(lt_metadata_copy_class_names(&s->own, in->train ? in->train : in->val));
    return map_classes(s);
}

static lt_status check_same_setting(const classifier *s, const char *what, const char *found,
                                    const char *now)
{
    if (!*found || !strcmp(found, now))
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: was trained with --%s %s, but this run has %s",
                   s->t->state.folder, what, found, now);
}

lt_status lt_classifier_check_metadata(const classifier *s, const char *path)
{
    char shown[2][NAME_TEXT];
    metadata found = {0};
    LT_TRY(lt_metadata_read(&found, path));
    lt_status st = check_same_setting(s, "mean", found.text[META_MEAN], s->own.text[META_MEAN]);
    if (!st)
        st = check_same_setting(s, "std", found.text[META_STD], s->own.text[META_STD]);
    if (!st)
        st = lt_classifier_check_split(s, &found);
    int i = lt_metadata_differing_class(&found, &s->own, lt_metadata_class_count(&s->own), shown);
    if (!st && i >= 0)
        st = lt_fail(LT_E_ARG, "%s: class %d was '%s', but is now '%s'", s->t->state.folder, i,
                     shown[0], shown[1]);
    lt_metadata_clear(&found);
    return st;
}

/* --- Saved metadata --- */

/* Adds facts of the model: those of its input, or the others. */
static size_t add_facts(const classifier *s, bool input, lt_metadata *out, size_t count)
{
    const lt_model_facts *f = lt_trainer_facts(s->t);
    for (size_t i = 0; i < f->count; i++)
        if (f->item[i].input == input)
            out[count++] = (lt_metadata){f->item[i].key, f->item[i].text};
    return count;
}

size_t lt_classifier_metadata(const classifier *s, lt_metadata out[META_ENTRIES])
{
    const metadata *n = &s->own;
    size_t count = 0;
    for (int i = 0; i < META_KEYS; i++) {
        if (i == META_AUGMENT)
            count = add_facts(s, true, out, count);
        if (i == META_CHANNELS)
            count = add_facts(s, false, out, count);
        if (i != META_VAL_SPLIT || n->text[i][0])
            out[count++] = (lt_metadata){lt_metadata_name[i], n->text[i]};
    }
    if (n->names)
        out[count++] = (lt_metadata){"class_names", n->names};
    return count;
}
