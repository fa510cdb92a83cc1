/* What a file of weights says besides numbers: the names of its classes, how its pixels were normalised,
 * and what else turns a picture into its input. It stands in the metadata of model.safetensors, in checkpoints too. */

#include "session.h"

#include "lather/ext/fail.h"
#include "lather/log.h"
#include "lather/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3 };
static const double white = 255;

const char *const notes_key[NOTE_KEYS] = {
    [NOTE_MEAN] = "mean",
    [NOTE_STD] = "std",
    [NOTE_IMAGE_SIZE] = "image_size",
    [NOTE_CROP_PCT] = "crop_pct",
    [NOTE_INTERPOLATION] = "interpolation",
    [NOTE_STEM] = "stem",
    [NOTE_AUGMENT] = "augment",
};
const char *const notes_flag[NOTE_KEYS] = {
    [NOTE_MEAN] = "mean",
    [NOTE_STD] = "std",
    [NOTE_IMAGE_SIZE] = "image-size",
    [NOTE_CROP_PCT] = "crop-pct",
    [NOTE_INTERPOLATION] = "interpolation",
    [NOTE_STEM] = "stem",
    [NOTE_AUGMENT] = "augment",
};

/* --- Texts --- */

/* The shortest "0.485,0.456,0.406" that reads back as the same floats. */
static void print_pixels(char text[NOTE_BYTES], const float *value, int channels)
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
        at += (size_t)snprintf(text + at, NOTE_BYTES - at, "%s%s", c ? "," : "", number);
    }
}

/* what: whose text it is, for the message. */
static lt_status parse_pixels(const char *what, const char *text, int channels, double least,
                              float *value)
{
    double number[CHANNELS];
    int count = arguments_numbers(text, number, CHANNELS);
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

/* A line per class; NULL: they have no names, or there is no memory. */
static char *join_names(const lt_dataset *data)
{
    int classes = lt_dataset_classes(data);
    size_t bytes = 1;
    bool named = false;
    for (int i = 0; i < classes; i++) {
        const char *name = lt_dataset_class_name(data, i);
        bytes += 1 + (name ? strlen(name) : 0);
        named = named || name;
    }
    char *text = named ? malloc(bytes) : NULL, *at = text;
    for (int i = 0; text && i < classes; i++) {
        const char *name = lt_dataset_class_name(data, i);
        if (i)
            *at++ = '\n';
        char *end = stpcpy(at, name ? name : "");
        for (; at < end; at++)
            if (*at == '\n')
                *at = ' ';
    }
    return text;
}

bool notes_class_name(const notes *n, int label, char *text, size_t size)
{
    const char *at = n->names;
    for (int i = 0; at && i < label; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    int length = at ? (int)strcspn(at, "\n") : 0;
    if (length)
        snprintf(text, size, "%.*s", length, at);
    return length > 0;
}

int notes_class_count(const notes *n)
{
    int count = n->names ? 1 : 0;
    for (const char *at = n->names; at && (at = strchr(at, '\n')); at++)
        count++;
    return count;
}

void notes_clear(notes *n)
{
    free(n->names);
    *n = (notes){0};
}

/* --- Files --- */

static void copy_note(const lt_safetensors *file, const char *key, char text[NOTE_BYTES])
{
    const char *value = lt_safetensors_metadata(file, key);
    if (value && strlen(value) < NOTE_BYTES)
        memcpy(text, value, strlen(value) + 1);
}

lt_status notes_read(notes *out, const char *path)
{
    lt_safetensors *file = NULL;
    notes n = {0};
    LT_TRY(lt_safetensors_open(&file, path));
    const char *names = lt_safetensors_metadata(file, "class_names");
    n.names = names ? strdup(names) : NULL;
    for (int i = 0; i < NOTE_KEYS; i++)
        copy_note(file, notes_key[i], n.text[i]);
    lt_safetensors_close(&file);
    notes_clear(out);
    *out = n;
    return LT_OK;
}

size_t session_notes(const session *s, lt_weights_note out[NOTES])
{
    const notes *n = &s->own;
    size_t count = 0;
    for (int i = 0; i < NOTE_KEYS; i++)
        out[count++] = (lt_weights_note){notes_key[i], n->text[i]};
    if (n->names)
        out[count++] = (lt_weights_note){"class_names", n->names};
    return count;
}

/* --- A run --- */

/* One channel: Fashion-MNIST's, of its training part. */
static lt_normalize_config usual_pixels(int channels)
{
    return channels == 1 ? (lt_normalize_config){.mean = {72.94F}, .deviation = {90.02F}}
                         : LT_NORMALIZE_IMAGENET;
}

/* The flag; else the weights' word; else *value stays. */
static lt_status choose(const char *flag, const char *given, const char *known, int channels,
                        double least, float *value)
{
    if (given)
        return parse_pixels(flag, given, channels, least, value);
    return *known ? parse_pixels("the weights' metadata", known, channels, least, value) : LT_OK;
}

lt_status session_choose_pixels(session *s, int channels)
{
    const double least_deviation = 1e-4;
    s->pixels = usual_pixels(channels);
    LT_TRY(choose("--mean", s->args.mean, s->known.text[NOTE_MEAN], channels, 0, s->pixels.mean));
    LT_TRY(choose("--std", s->args.std, s->known.text[NOTE_STD], channels, least_deviation,
                  s->pixels.deviation));
    print_pixels(s->own.text[NOTE_MEAN], s->pixels.mean, channels);
    print_pixels(s->own.text[NOTE_STD], s->pixels.deviation, channels);
    return LT_OK;
}

/* Weights of other classes tell nothing about these: a word of warning. */
static void compare_names(const session *s)
{
    char known[NAME_TEXT], own[NAME_TEXT];
    int classes = lt_dataset_classes(s->val_data);
    for (int i = 0; s->args.eval && i < classes; i++)
        if (notes_class_name(&s->known, i, known, sizeof known)
            && notes_class_name(&s->own, i, own, sizeof own) && strcmp(known, own) != 0) {
            lt_log(LT_LOG_WARN, "data", "class %d is '%s' in %s, '%s' in %s", i, known,
                   s->args.weights, own, s->args.data);
            return;
        }
}

lt_status session_open_notes(session *s)
{
    LT_TRY(session_choose_pixels(s, lt_dataset_channels(s->val_data)));
    s->own.names = join_names(s->train_data ? s->train_data : s->val_data);
    compare_names(s);
    return LT_OK;
}

static lt_status same(const session *s, const char *what, const char *found, const char *now)
{
    if (!*found || !strcmp(found, now))
        return LT_OK;
    return lt_fail(LT_E_ARG, "%s: was trained with --%s %s, this run has %s", s->folder, what,
                   found, now);
}

lt_status session_check_notes(const session *s)
{
    char path[sizeof s->folder + 2 * (size_t)NAME_TEXT];
    char before[NAME_TEXT] = "", now[NAME_TEXT] = "";
    notes found = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", s->folder);
    LT_TRY(notes_read(&found, path));
    lt_status st = same(s, "mean", found.text[NOTE_MEAN], s->own.text[NOTE_MEAN]);
    if (!st)
        st = same(s, "std", found.text[NOTE_STD], s->own.text[NOTE_STD]);
    int classes = notes_class_count(&found);
    for (int i = 0; i < classes && !st; i++)
        if (notes_class_name(&found, i, before, sizeof before)
            && notes_class_name(&s->own, i, now, sizeof now) && strcmp(before, now) != 0)
            st = lt_fail(LT_E_ARG, "%s: class %d was '%s', and is '%s' now", s->folder, i, before,
                         now);
    notes_clear(&found);
    return st;
}
