/* Metadata of a weights file. */
#ifndef LT_CLASSIFY_METADATA_H
#define LT_CLASSIFY_METADATA_H

#include "lather/data.h"
#include "lather/trainer.h"

#include <stdbool.h>
#include <stddef.h>

/* Texts in the metadata, under the names lt_metadata_name[]. */
typedef enum metadata_key {
    META_MEAN,
    META_STD, /* "0.485,0.456,0.406", of white 1 */
    META_IMAGE_SIZE,
    META_CROP_PCT,
    META_INTERPOLATION,
    META_AUGMENT,
    META_CHANNELS,
    META_CLASSES,
    META_KEYS,
    META_ENTRIES = META_KEYS + LT_MODEL_FACTS + 1 /* and the names of classes */
} metadata_key;
extern const char *const lt_metadata_name[META_KEYS];
enum { META_BYTES = 64, NAME_TEXT = 256 };
typedef struct metadata {
    char *names;                      /* of classes, escaped, a line each; NULL: unknown */
    char text[META_KEYS][META_BYTES]; /* "": unknown */
} metadata;

/* Errors: as lt_safetensors_open(). */
lt_status lt_metadata_read(metadata *out, const char *path);
/* False, and text as it was, if the class has no name. */
bool lt_metadata_class_name(const metadata *n, int label, char *text, size_t size);
int lt_metadata_class_count(const metadata *n);
/* Those names; *name and *text, which it points into, are for free(), after a failure too. */
lt_status lt_metadata_split(const metadata *n, char **text, const char ***name);
/* Names as they are, a line each, in place of those that n has. */
lt_status lt_metadata_set_names(metadata *n, const char *lines);
void lt_metadata_clear(metadata *n);
/* Names of the data's classes, as metadata has them; yours. NULL: they have no names, or there is no memory. */
char *lt_metadata_join(const lt_dataset *data);
/* The first class that has another name in b than in a; -1: none. shown[]: both names, escaped. */
int lt_metadata_find_difference(const metadata *a, const metadata *b, int classes,
                                char shown[2][NAME_TEXT]);

#endif
