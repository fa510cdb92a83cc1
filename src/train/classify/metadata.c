/* Metadata of a weight file: the names of its classes, the normalization of its pixels, and other preprocessing of
 * its images. Stored in model.safetensors, in checkpoints too. */

#include "train/classify/metadata.h"

#include "base/alloc.h"

#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/weights.h"

#include <stdio.h>
#include <string.h>

const char *const lt_metadata_name[META_KEYS] = {
    [META_MEAN] = "mean",
    [META_STD] = "std",
    [META_IMAGE_SIZE] = "image_size",
    [META_CROP_PCT] = "crop_pct",
    [META_INTERPOLATION] = "interpolation",
    [META_AUGMENT] = "augment",
    [META_CHANNELS] = "channels",
    [META_CLASSES] = "classes",
    [META_VAL_SPLIT] = "val_split",
};

/* --- Texts --- */

lt_status lt_metadata_copy_class_names(metadata *n, const lt_dataset *data)
{
    int classes = lt_dataset_classes(data);
    size_t bytes = 1;
    bool named = false;
    for (int i = 0; i < classes; i++) {
        const char *name = lt_dataset_class_name(data, i);
        bytes += 1 + (name ? lt_text_escape_bytes(name) : 0);
        named = named || name;
    }
    char *text = NULL;
    if (named)
        LT_TRY(LT_ALLOC(&text, bytes));
    char *at = text;
    for (int i = 0; text && i < classes; i++) {
        const char *name = lt_dataset_class_name(data, i);
        if (i)
            *at++ = '\n';
        lt_text_escape(at, bytes - (size_t)(at - text), name ? name : "");
        at += strlen(at);
    }
    lt_free(n->names);
    n->names = text;
    return LT_OK;
}

/* Escapes lines of names like lt_metadata_copy_class_names(), so that equal names are equal texts. stored: a line may already
 * be escaped; one that is not was written by an earlier version. Returns NULL without memory. */
static char *escape_lines(const char *names, bool stored)
{
    enum { MOST_BYTES = 4 }; /* bytes that one byte may become */
    size_t capacity = strlen(names) + 1;
    char *all = lt_alloc(MOST_BYTES, capacity), *line = lt_alloc(2, capacity);
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
        lt_free(all);
        all = NULL;
    }
    lt_free(line);
    return all;
}

/* Returns the line of a class and its length, 0 if absent. */
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
    char *name = length ? lt_format("%.*s", length, at) : NULL;
    bool known = name && !lt_text_unescape(name, name);
    if (known)
        snprintf(text, size, "%s", name);
    lt_free(name);
    return known;
}

lt_status lt_metadata_set_class_names(metadata *n, const char *lines)
{
    char *names = escape_lines(lines, false);
    if (!names)
        return LT_E_NOMEM;
    lt_free(n->names);
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

lt_status lt_metadata_split_class_names(const metadata *n, char **text, const char ***name)
{
    const int classes = lt_metadata_class_count(n);
    char *rest = *text = lt_strdup(n->names ? n->names : "");
    lt_status st = *text ? LT_ALLOC(name, classes) : LT_E_NOMEM;
    for (int i = 0; i < classes && !st; i++) {
        char *line = strsep(&rest, "\n");
        (*name)[i] = line;
        st = lt_text_unescape(line, line);
    }
    return st;
}

void lt_metadata_clear(metadata *n)
{
    lt_free(n->names);
    *n = (metadata){0};
}

int lt_metadata_differing_class(const metadata *a, const metadata *b, int classes,
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
    LT_TRY(lt_weights_open(&file, path));
    const char *names = lt_safetensors_metadata(file, "class_names");
    n.names = names ? escape_lines(names, true) : NULL;
    for (int i = 0; i < META_KEYS; i++)
        copy_text(file, lt_metadata_name[i], n.text[i]);
    lt_safetensors_close(&file);
    if (names && !n.names)
        return LT_E_NOMEM;
    lt_metadata_clear(out);
    *out = n;
    return LT_OK;
}
