/* What a file of weights says besides numbers: the names of its classes, how its pixels were normalised,
 * and what else turns an image into its input. It stands in the metadata of model.safetensors, in checkpoints too. */

#include "train/classify/classifier.h"

#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/safetensors.h"
#include "lather/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3 };
static const double white = 255;

const char *const lt_metadata_name[META_KEYS] = {
    [META_MEAN] = "mean",
    [META_STD] = "std",
    [META_IMAGE_SIZE] = "image_size",
    [META_CROP_PCT] = "crop_pct",
    [META_INTERPOLATION] = "interpolation",
    [META_AUGMENT] = "augment",
    [META_CHANNELS] = "channels",
    [META_CLASSES] = "classes",
};

/* --- Texts --- */

/* The shortest "0.485,0.456,0.406" that reads back as the same floats. */
static void print_pixels(char text[META_BYTES], const float *value, int channels)
{
    enum { MOST_DIGITS = 9 }; /* enough for any float */
    size_t at = 0;
    for (int c = 0; c < channels; c++) {
        char number[32] = "";
        for (int digits = 3; digits <= MOST_DIGITS; digits++) {
            snprintf(number, sizeof number, "%.*g", digits, (double)value[c] / white);
            float again = (float)(white * strtod(number, NULL));
            if (again <= value[c] && again >= value[c])
                break;
        }
        at += (size_t)snprintf(text + at, META_BYTES - at, "%s%s", c ? "," : "", number);
    }
}

/* what: whose text it is, for the message. */
static lt_status parse_pixels(const char *what, const char *text, int channels, double least,
                              float *value)
{
    double number[CHANNELS];
    int count = lt_text_numbers(text, number, CHANNELS);
    bool fits = count == channels;
    for (int c = 0; c < count; c++)
        fits = fits && number[c] >= least && number[c] <= 1;
    if (!fits)
        return lt_fail(LT_E_ARG, "%s: '%s' is not %s in %g..1, of %d channels", what, text,
                       channels == 1 ? "a number" : "R,G,B", least, channels);
    for (int c = 0; c < channels; c++)
        value[c] = (float)(white * number[c]);
    return LT_OK;
}

/* A line per class, its name escaped; NULL: they have no names, or there is no memory. */
static char *join_names(const lt_dataset *data)
{
    int classes = lt_dataset_classes(data);
    size_t bytes = 1;
    bool named = false;
    for (int i = 0; i < classes; i++) {
        const char *name = lt_dataset_class_name(data, i);
        bytes += 1 + (name ? lt_text_escape_bytes(name) : 0);
        named = named || name;
    }
    char *text = named ? malloc(bytes) : NULL, *at = text;
    for (int i = 0; text && i < classes; i++) {
        const char *name = lt_dataset_class_name(data, i);
        if (i)
            *at++ = '\n';
        lt_text_escape(at, bytes - (size_t)(at - text), name ? name : "");
        at += strlen(at);
    }
    return text;
}

/* Lines of names as join_names() makes them, so that equal names are equal text. stored: they may be
 * escaped already; one that is no escaped text is as earlier versions stored it. NULL: no memory. */
static char *escape_lines(const char *names, bool stored)
{
    enum { MOST_BYTES = 4 }; /* that a byte becomes */
    size_t capacity = strlen(names) + 1;
    char *all = malloc(MOST_BYTES * capacity), *line = malloc(2 * capacity);
    for (char *at = all; all && line; names++) {
        size_t length = strcspn(names, "\n");
        char *name = line + capacity;
        snprintf(line, capacity, "%.*s", (int)length, names);
        bool is_escaped = stored && !lt_text_unescape(name, line);
        lt_text_escape(at, MOST_BYTES * capacity - (size_t)(at - all), is_escaped ? name : line);
        at += strlen(at);
        names += length;
        if (!*names)
            break;
        *at++ = '\n';
    }
    if (!line) {
        free(all);
        all = NULL;
    }
    free(line);
    return all;
}

/* The line of a class, without its end; its length is 0 if there is none. */
static const char *line_of(const metadata *n, int label, int *length)
{
    const char *at = n->names;
    for (int i = 0; at && i < label; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    *length = at ? (int)strcspn(at, "\n") : 0;
    return at;
}

bool lt_metadata_class_name(const metadata *n, int label, char *text, size_t size)
{
    int length;
    const char *at = line_of(n, label, &length);
    char *name = length ? strndup(at, (size_t)length) : NULL;
    bool known = name && !lt_text_unescape(name, name);
    if (known)
        snprintf(text, size, "%s", name);
    free(name);
    return known;
}

lt_status lt_metadata_set_names(metadata *n, const char *lines)
{
    char *names = escape_lines(lines, false);
    if (!names)
        return lt_fail(LT_E_NOMEM, "no memory for the names of classes");
    free(n->names);
    n->names = names;
    return LT_OK;
}

int lt_metadata_class_count(const metadata *n)
{
    int count = n->names ? 1 : 0;
    for (const char *at = n->names; at && (at = strchr(at, '\n')); at++)
        count++;
    return count;
}

lt_status lt_metadata_split(const metadata *n, char **text, const char ***name)
{
    const int classes = lt_metadata_class_count(n);
    char *rest = *text = classes ? strdup(n->names) : NULL;
    *name = calloc((size_t)classes + 1, sizeof **name);
    lt_status st = *name && (*text || !classes)
                       ? LT_OK
                       : lt_fail(LT_E_NOMEM, "no memory for the names of %d classes", classes);
    for (int i = 0; i < classes && !st; i++) {
        char *line = strsep(&rest, "\n");
        (*name)[i] = line;
        st = lt_text_unescape(line, line);
    }
    return st;
}

void lt_metadata_clear(metadata *n)
{
    free(n->names);
    *n = (metadata){0};
}

/* --- Files --- */

static void copy_text(const lt_safetensors *file, const char *key, char text[META_BYTES])
{
    const char *value = lt_safetensors_metadata(file, key);
    if (value && strlen(value) < META_BYTES)
        memcpy(text, value, strlen(value) + 1);
}

lt_status lt_metadata_read(metadata *out, const char *path)
{
    lt_safetensors *file = NULL;
    metadata n = {0};
    LT_TRY(lt_safetensors_open(&file, path));
    const char *names = lt_safetensors_metadata(file, "class_names");
    n.names = names ? escape_lines(names, true) : NULL;
    for (int i = 0; i < META_KEYS; i++)
        copy_text(file, lt_metadata_name[i], n.text[i]);
    lt_safetensors_close(&file);
    if (names && !n.names)
        return lt_fail(LT_E_NOMEM, "%s: no memory for the names of classes", path);
    lt_metadata_clear(out);
    *out = n;
    return LT_OK;
}

/* Of the model: those of its input, or the others. */
static size_t add_facts(const classifier *s, bool input, lt_metadata *out, size_t count)
{
    const lt_model_facts *f = &s->t->choice.facts;
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
        out[count++] = (lt_metadata){lt_metadata_name[i], n->text[i]};
    }
    if (n->names)
        out[count++] = (lt_metadata){"class_names", n->names};
    return count;
}

/* --- A run --- */

/* One channel: Fashion-MNIST's, of its training part. */
static lt_normalize_config usual_pixels(int channels)
{
    return channels == 1 ? (lt_normalize_config){.mean = {72.94F}, .deviation = {90.02F}}
                         : LT_NORMALIZE_IMAGENET;
}

/* The flag; else what the weights say; else *value stays. */
static lt_status choose(const char *flag, const char *given, const char *known, int channels,
                        double least, float *value)
{
    if (given)
        return parse_pixels(flag, given, channels, least, value);
    if (!*known || !parse_pixels(flag + strlen("--"), known, channels, least, value))
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "the weights' metadata: %s; %s overrides it", lt_error_message(),
                   flag);
}

lt_status lt_classifier_choose_pixels(classifier *s, int channels)
{
    const double least_deviation = 1e-4;
    s->pixels = usual_pixels(channels);
    LT_TRY(choose("--mean", s->args.images.mean, s->known.text[META_MEAN], channels, 0,
                  s->pixels.mean));
    LT_TRY(choose("--std", s->args.images.std, s->known.text[META_STD], channels, least_deviation,
                  s->pixels.deviation));
    print_pixels(s->own.text[META_MEAN], s->pixels.mean, channels);
    print_pixels(s->own.text[META_STD], s->pixels.deviation, channels);
    return LT_OK;
}

/* The first class that has another name in b than in a; -1: none. shown[]: both names, escaped. */
static int find_difference(const metadata *a, const metadata *b, int classes,
                           char shown[2][NAME_TEXT])
{
    for (int i = 0; i < classes; i++) {
        int lengths[2];
        const char *in_a = line_of(a, i, &lengths[0]), *in_b = line_of(b, i, &lengths[1]);
        if (!lengths[0] || !lengths[1]
            || (lengths[0] == lengths[1] && !memcmp(in_a, in_b, (size_t)lengths[0])))
            continue;
        snprintf(shown[0], NAME_TEXT, "%.*s", lengths[0], in_a);
        snprintf(shown[1], NAME_TEXT, "%.*s", lengths[1], in_b);
        return i;
    }
    return -1;
}

/* Other classes than the weights': --save-logits alone can do without them; a checkpoint's are compared later. */
static lt_status fail_classes(classifier *s)
{
    const lt_trainer *t = s->t;
    const bool eval = t->args.evaluation.eval;
    char missing[NAME_TEXT];
    snprintf(missing, sizeof missing, "%s", lt_error_message());
    s->other_classes = s->args.save_logits;
    if (s->other_classes || t->state.folder[0])
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: classes that %s does not have: %s; %s--reset-head%s",
                   t->args.data, t->weights, missing,
                   eval ? "evaluate images of its classes, or train on these with " : "",
                   eval ? "" : " makes a new last layer for them");
}

/* The data takes the weights' numbers of classes, by name, where both have names. */
static lt_status map_classes(classifier *s)
{
    const lt_trainer *t = s->t;
    const int known = lt_metadata_class_count(&s->known), own = lt_metadata_class_count(&s->own);
    const bool is_new = t->args.reset_head && !t->state.folder[0];
    lt_dataset *part[] = {t->input.train, t->input.val};
    char *text = NULL;
    const char **name = NULL;
    if (!known || !own || !strcmp(s->known.names, s->own.names)
        || (!t->args.evaluation.eval && (is_new || known != own)))
        return LT_OK;
    lt_status st = lt_metadata_split(&s->known, &text, &name);
    for (int i = 0; i < 2 && !st; i++)
        st = part[i] ? lt_dataset_map_classes(part[i], name, known) : LT_OK;
    free(name);
    free(text);
    if (st)
        return st == LT_E_FORMAT ? fail_classes(s) : st;
    free(s->own.names);
    s->own.names = join_names(t->input.val);
    lt_log(LT_LOG_INFO, "data",
           "%s: %d of the %d classes of %s, matched by name; all %d outputs are compared",
           t->args.data, own, known, t->weights, known);
    return LT_OK;
}

lt_status lt_classifier_open_metadata(classifier *s)
{
    LT_TRY(lt_classifier_choose_pixels(s, lt_dataset_channels(s->t->input.val)));
    s->own.names = join_names(s->t->input.train ? s->t->input.train : s->t->input.val);
    return map_classes(s);
}

static lt_status same(const classifier *s, const char *what, const char *found, const char *now)
{
    if (!*found || !strcmp(found, now))
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: was trained with --%s %s, this run has %s", s->t->state.folder,
                   what, found, now);
}

lt_status lt_classifier_check_metadata(const classifier *s, const char *path)
{
    char shown[2][NAME_TEXT];
    metadata found = {0};
    LT_TRY(lt_metadata_read(&found, path));
    lt_status st = same(s, "mean", found.text[META_MEAN], s->own.text[META_MEAN]);
    if (!st)
        st = same(s, "std", found.text[META_STD], s->own.text[META_STD]);
    int i = find_difference(&found, &s->own, lt_metadata_class_count(&s->own), shown);
    if (!st && i >= 0)
        st = lt_fail(LT_E_ARG, "%s: class %d was '%s', and is '%s' now", s->t->state.folder, i,
                     shown[0], shown[1]);
    lt_metadata_clear(&found);
    return st;
}
