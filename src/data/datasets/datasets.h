/* Rules that all image data sets share: which files are images, which are hidden, and which class folders are empty.
 * Counts and logs the files that are left out. */
#ifndef LT_DATA_DATASETS_H
#define LT_DATA_DATASETS_H

#include "data/files/paths.h"

#include "lather/ext/dataset.h"

/* Extensions of image files, for messages. */
#define LT_IMAGE_NAMES ".jpg, .jpeg, .png, .bmp, .gif, .webp, .avif, .tif, .tiff, .ppm or .pgm"
/* Returns true if the extension is that of an image file, in upper or lower case. */
bool lt_is_image(const char *path);
/* Returns true if a component of the path begins with a dot (except "." and "..") or is macOS's "__MACOSX". */
bool lt_is_hidden(const char *path);

enum { LT_LEFT_OUT_KINDS = 32, LT_LEFT_OUT_BYTES = 40 };

typedef struct lt_left_out_kind {
    char extension
        [LT_LEFT_OUT_BYTES]; /* with its dot, truncated; or another reason to leave the file out */
    int64_t count;
} lt_left_out_kind;

/* Number of files left out: by extension, images by reason. Starts as {0}. */
typedef struct lt_left_out {
    int64_t files;
    int kinds;
    lt_left_out_kind kind[LT_LEFT_OUT_KINDS];
} lt_left_out;

/* Add to the count of left-out files: one file under its extension, or count files under a reason. */
void lt_left_out_add_file(lt_left_out *l, const char *name);
void lt_left_out_add_count(lt_left_out *l, const char *reason, int64_t count);
/* Logs the number of files and the most frequent extensions in one line. Does nothing if no file was left out, or if
 * the previous line was equal (a folder may be opened for training and for validation). */
void lt_left_out_log(lt_left_out *l, const char *folder);
/* Returns LT_E_UNSUPPORTED, naming the converter, if one of them is a parquet file, otherwise st. */
lt_status lt_left_out_check_parquet(const lt_left_out *l, const char *path, lt_status st);
extern const char
    lt_outside_class_folders[]; /* reason to leave out images directly in the root of the split */

/* Returns true if the folder's text is that of *last, a hash, which it replaces: a folder may be opened for training
 * and for validation. */
bool lt_is_repeated(uint64_t *last, const char *folder, const char *text);

/* Number of class folders without an image, and the names of the first few. Starts as {0}. */
typedef struct lt_empty_classes {
    int count;
    char names[256];
} lt_empty_classes;
void lt_empty_classes_add(lt_empty_classes *e, const char *name);
/* Warns that these class folders are left out, naming up to five. Does nothing without any, or if the previous line was
 * equal. Errors: LT_E_FORMAT if no class is left. */
lt_status lt_empty_classes_log(const lt_empty_classes *e, const char *path, int classes_left);

/* Sets *out to true if the folder has MNIST's image file of the train or test part, plain or .gz. Errors:
 * LT_E_NOMEM. */
lt_status lt_has_mnist(bool *out, const char *folder, bool train);
lt_status lt_dataset_mnist(lt_dataset **out, const char *folder, bool train);

/* Returns true if the folder, or one with the archive's name in it, has CIFAR-10's or CIFAR-100's binary files. */
bool lt_has_cifar(const char *folder);
/* Opens them. Errors: LT_E_IO; LT_E_FORMAT (truncated, labels out of range). */
lt_status lt_dataset_cifar(lt_dataset **out, const char *folder, bool train);

/* Returns true if the path ends in NAME.tar and NAME is not hidden. */
bool lt_is_tar(const char *path);
/* Adds the tar files of a folder whose names contain part, sorted by name. */
lt_status lt_list_tar_files(lt_paths *list, const char *folder, const char *part);

#endif
