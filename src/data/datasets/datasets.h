/* The rules that folders, tar files, packs and services share: which files are images, which are hidden, which class
 * folders are empty; and a log line on the other files. */
#ifndef LT_DATA_DATASETS_H
#define LT_DATA_DATASETS_H

#include "data/files/paths.h"

#include "lather/ext/dataset.h"

/* The extensions, for messages. */
#define LT_IMAGE_NAMES ".jpg, .jpeg, .png, .bmp, .gif, .webp, .avif, .tif, .tiff, .ppm or .pgm"
/* True for the path of an image file: by the text after the last dot of its last component, in any case. */
bool lt_is_image(const char *path);
/* True if a component of the path begins with a dot (other than "." and "..") or is macOS's "__MACOSX". */
bool lt_is_hidden(const char *path);

enum { LT_LEFT_OUT_KINDS = 32, LT_LEFT_OUT_BYTES = 40 };

typedef struct lt_left_out_kind {
    char extension[LT_LEFT_OUT_BYTES]; /* with its dot, truncated; or another reason */
    int64_t count;
} lt_left_out_kind;

/* Files that no data set reads, counted by their extensions, and images by the reason. Starts as {0}. */
typedef struct lt_left_out {
    int64_t files;
    int kinds;
    lt_left_out_kind kind[LT_LEFT_OUT_KINDS];
} lt_left_out;

/* Counts a file by its extension, or count files by the given reason. */
void lt_left_out_add(lt_left_out *l, const char *name);
void lt_left_out_count(lt_left_out *l, const char *reason, int64_t count);
/* Logs one line, if there are any: their number and the most frequent extensions; a line equal to the one before is
 * not repeated, as a folder may be opened to train and to evaluate. */
void lt_left_out_tell(lt_left_out *l, const char *folder);
extern const char lt_outside_class_folders[]; /* reason of an image directly in the split's root */

/* Class folders without an image, the first few by name. Starts as {0}. */
typedef struct lt_empty_classes {
    int count;
    char names[256];
} lt_empty_classes;
void lt_empty_classes_add(lt_empty_classes *e, const char *name);
/* Errors: LT_E_FORMAT if there are any, naming them. */
lt_status lt_empty_classes_check(const lt_empty_classes *e, const char *path);

/* Whether the folder holds MNIST's files of the train or test part, plain or .gz. */
lt_status lt_has_mnist(bool *out, const char *folder, bool train);
lt_status lt_dataset_mnist(lt_dataset **out, const char *folder, bool train);

/* True if path is FOLDER/NAME.tar and not hidden. */
bool lt_is_tar(const char *path);
/* Adds every tar file of a folder whose name has part in it, by name. */
lt_status lt_tar_list(lt_paths *list, const char *folder, const char *part);

#endif
