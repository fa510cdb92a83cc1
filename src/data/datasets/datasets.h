/* Shared by data sets of folders: which files are images by their extension, and a log line on the
 * others. */
#ifndef LT_DATA_DATASETS_H
#define LT_DATA_DATASETS_H

#include "lather/ext/dataset.h"

/* The extensions, for messages. */
#define LT_IMAGE_NAMES ".jpg, .jpeg, .png, .bmp, .gif, .webp, .avif, .tif, .tiff, .ppm or .pgm"
/* Whether it is the extension of an image file, in any case, with its dot; NULL: no extension. */
bool lt_is_image(const char *extension);

enum { LT_LEFT_OUT_KINDS = 32, LT_LEFT_OUT_BYTES = 16 };

typedef struct lt_left_out_kind {
    char extension[LT_LEFT_OUT_BYTES]; /* with its dot, cut off */
    int64_t count;
} lt_left_out_kind;

/* Files that no data set reads, counted by their extensions. Starts as {0}. */
typedef struct lt_left_out {
    int64_t files;
    int kinds;
    lt_left_out_kind kind[LT_LEFT_OUT_KINDS];
} lt_left_out;

/* A file by its name. */
void lt_left_out_add(lt_left_out *l, const char *name);
/* Logs one line, if there are any: their number and the most frequent extensions. */
void lt_left_out_tell(lt_left_out *l, const char *folder);

/* Whether the folder holds MNIST's files of the train or test part, plain or .gz. */
lt_status lt_has_mnist(bool *out, const char *folder, bool train);
lt_status lt_dataset_mnist(lt_dataset **out, const char *folder, bool train);

#endif
