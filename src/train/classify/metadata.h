/* Metadata of a weight file. */
#ifndef LT_CLASSIFY_METADATA_H
#define LT_CLASSIFY_METADATA_H

#include "lather/data.h"
#include "lather/trainer.h"

#include <stdbool.h>
#include <stddef.h>

/* Keys of the metadata, named by lt_metadata_name[]. */
typedef enum metadata_key {
    META_MEAN,
    META_STD, /* deviation of pixels in [0,1]: "0.485,0.456,0.406" */
    META_IMAGE_SIZE,
    META_CROP_PCT,
    META_INTERPOLATION,
    META_AUGMENT,
    META_CHANNELS,
    META_CLASSES,
    META_VAL_SPLIT, /* "FRACTION seed SEED of DATA"; not written if "" */
    META_KEYS,
    META_ENTRIES = META_KEYS + LT_MODEL_FACTS + 1 /* plus the names of classes */
} metadata_key;
extern const char *const lt_metadata_name[META_KEYS];
enum { META_BYTES = 64, NAME_TEXT = 256 };
typedef struct metadata {
    char *names;                      /* class names, escaped, one per line; NULL if unknown */
    char text[META_KEYS][META_BYTES]; /* text of each key; "" if unknown */
} metadata;

/* Reads the metadata of a file. Errors: as lt_safetensors_open(). */
lt_status lt_metadata_read(metadata *out, const char *path);
/* Copies the unescaped name of a class to text; returns false, without changing text, if it has none. */
bool lt_metadata_class_name(const metadata *n, int label, char *text, size_t size);
int lt_metadata_class_count(const metadata *n);
/* Splits the class names into unescaped strings; lt_free() *name and *text, which it points into, even after a failure. */
lt_status lt_metadata_split_class_names(const metadata *n, char **text, const char ***name);
/* Replaces the class names by those in `lines`: unescaped, one per line. */
lt_status lt_metadata_set_class_names(metadata *n, const char *lines);
void lt_metadata_clear(metadata *n);
/* Replaces the class names by those of the data. */
lt_status lt_metadata_copy_class_names(metadata *n, const lt_dataset *data);
/* Returns the first class with different names in a and b, or -1. shown[]: both names, escaped. */
int lt_metadata_differing_class(const metadata *a, const metadata *b, int classes,
                                char shown[2][NAME_TEXT]);

#endif
