/** Data sets: where samples come from. lather/loader.h makes batches of them. */
#ifndef LATHER_DATA_H
#define LATHER_DATA_H

#include "lather/tensor.h"

typedef struct lt_dataset lt_dataset;

/** Opens a data set by name:
 *
 *  - "fashion-mnist": see lt_dataset_fashion_mnist();
 *  - "synthetic" or "synthetic:COUNT:SIZE:CLASSES": noise (1024 images of 224 x 224, 1000 classes);
 *  - a name that lt_dataset_register() got;
 *  - a folder with MNIST's four idx files;
 *  - a pack (lather/pack.h), or a folder with the packs train and val;
 *  - a tar file, or a folder with tar files: to train, those in FOLDER/train or with "train" in
 *    their names; to evaluate, likewise with "val"; see lt_dataset_tar();
 *  - another folder: FOLDER/train to train, FOLDER/val (or valid, validation) to evaluate, FOLDER
 *    itself if it has neither; see lt_dataset_folder().
 *
 *  Errors: LT_E_ARG, LT_E_IO, LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_dataset_open(lt_dataset **out, const char *spec, bool train);
/** Images in one folder per class (.jpg, .jpeg, .png, .bmp, .gif, .webp, .avif, .tif, .tiff, .ppm,
 *  .pgm in any case; the first bytes of a file decide what it is), also in folders below it, behind
 *  at most four links; names that begin with a dot and macOS's __MACOSX are left out, other extensions
 *  and images outside class folders counted in a line of the log. The class is the first folder below
 *  path. Classes and files are ordered by name, bytewise.
 *  Errors: LT_E_IO (no such folder), LT_E_FORMAT (no class folder, or some without images). */
LT_API LT_MUST_CHECK lt_status lt_dataset_folder(lt_dataset **out, const char *path);
/** Images in tar files as WebDataset writes them: NAME.jpg (.jpeg, .png, ...) and NAME.cls, a class
 *  number from 0 on; tar files without .cls are read by the rule of lt_dataset_folder(), path being the
 *  folder that all images have in common. The first opening scans each
 *  FILE.tar and writes FILE.tar.index beside it, or into the user's cache if its folder is
 *  read-only; an index whose tar file has changed is rebuilt. Samples are in the order of path and
 *  of the tar files.
 *  Errors: LT_E_IO; LT_E_FORMAT (cut off, no tar file, no image, labels for some only). */
LT_API LT_MUST_CHECK lt_status lt_dataset_tar(lt_dataset **out, const char *const *path,
                                              size_t count);
/** Images of one folder without class folders, as ImageNet's validation images are distributed, and
 *  a file of labels in one of two forms:
 *
 *  - FILE LABEL in each line, FILE with or without folders before it; blanks or a comma between;
 *  - LABEL in each line, for the images in the order of their names.
 *
 *  LABEL is a class's name (imagenet_2012_validation_synset_labels.txt) or its number from 0 on.
 *  Numbers from 1 on in the second form are those of ILSVRC2012_validation_ground_truth.txt, in the
 *  devkit's order: map_clsloc.txt beside the file maps them to names. class_names: of the classes,
 *  in the order of their numbers; NULL: numbers only. classes 0: the largest label + 1. Samples are
 *  ordered by class, then by name, as they would be in class folders.
 *  Errors: LT_E_IO; LT_E_FORMAT (an image without a label or with two, no such image or class). */
LT_API LT_MUST_CHECK lt_status lt_dataset_labelled(lt_dataset **out, const char *folder,
                                                   const char *labels,
                                                   const char *const *class_names, int classes);
/** MNIST's format: a file of images and one of labels, plain or gzip. Labels must be below classes;
 *  classes 0: the largest label + 1.
 *  Errors: LT_E_IO, LT_E_FORMAT (also labels out of range, counts that differ). */
LT_API LT_MUST_CHECK lt_status lt_dataset_idx(lt_dataset **out, const char *images,
                                              const char *labels, int classes);
/** Fashion-MNIST as Debian's dataset-fashion-mnist ships it, or from $LATHER_FASHION_MNIST: train
 *  or test part. Errors: LT_E_IO, naming the package; LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_dataset_fashion_mnist(lt_dataset **out, bool train);
/** Images by their paths (copied), in this order, all of class 0: to predict. A folder stands for
 *  the images in it and below, by their extensions, ordered by path, bytewise; names that begin
 *  with a dot are left out, links to folders not followed. channels: 1 or 3.
 *  Errors: LT_E_ARG, LT_E_NOMEM; a missing file or a folder without images is a broken image to the
 *  loader. */
LT_API LT_MUST_CHECK lt_status lt_dataset_files(lt_dataset **out, const char *const *paths,
                                                int64_t count, int channels);
/** count noise images of size x size with channels 1 or 3, the same for the same index. */
LT_API LT_MUST_CHECK lt_status lt_dataset_synthetic(lt_dataset **out, int64_t count, int size,
                                                    int channels, int classes);
/** Records in memory, as a program has them: lt_dataset_arrays(). */
typedef struct lt_arrays {
    const float *values;   /**< [count][shape], row-major */
    const int64_t *labels; /**< [count], 0 .. classes-1 */
    int64_t count;
    lt_shape shape; /**< of a record: [F], [C,H,W], any of 1 to 4 dimensions */
    int classes;    /**< 0: the largest label + 1 */
    bool copy;      /**< else both are borrowed until the data set is freed */
} lt_arrays;
/** Batches are LT_F32 tensors [N,shape] of the unchanged values: a loader's transform applies to
 *  images only. Order, ranks and lt_loader_seek() are as with other data sets.
 *  Errors: LT_E_ARG (also a label out of range), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_arrays(lt_dataset **out, const lt_arrays *arrays);
LT_API void lt_dataset_free(lt_dataset **dataset);

LT_API int64_t lt_dataset_count(const lt_dataset *dataset);
LT_API int lt_dataset_classes(const lt_dataset *dataset);
LT_API int lt_dataset_channels(const lt_dataset *dataset); /**< of the images: 1 or 3 */
/** Of a record of numbers; ndim 0: the samples are images. */
LT_API lt_shape lt_dataset_shape(const lt_dataset *dataset);
/** Short side of the first image in pixels; 0: unknown. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_dataset_side(const lt_dataset *dataset, int *side);
/** Borrowed; NULL if the class has no name. */
LT_API const char *lt_dataset_class_name(const lt_dataset *dataset, int label);
/** Whether a network trained on train's classes can be evaluated on val's: the same names in the
 *  same order; the same number where only one of them has names; at most as many where neither has,
 *  as the last classes may be missing in val.
 *  Errors: LT_E_FORMAT, naming the classes that only one of them has. */
LT_API LT_MUST_CHECK lt_status lt_dataset_same_classes(const lt_dataset *train,
                                                       const lt_dataset *val);
/** Hash that tells versions of a data set apart: of count, classes, names of classes and of files in
 *  their order, without their folders; the same for a folder, its tar files, its pack and a service of
 *  it. Of data without such names: of labels, or of a text's tokens. Not of images. Never 0. */
LT_API uint64_t lt_dataset_fingerprint(const lt_dataset *dataset);
/** Bytes of all samples' files, where an index has them (tar files, packs of whole files); else 0. */
LT_API int64_t lt_dataset_bytes(const lt_dataset *dataset);
/** Maps the data set's classes to a model's by name: each class takes the index of the model's class
 *  with its name; every name must be among the model's. From then on labels, names and the number of classes are the model's.
 *  names: [classes], copied; NULL inside: no name, which matches the class of the same number. Once, before
 *  a loader is made. Errors: LT_E_FORMAT, listing the first classes of other names; LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_map_classes(lt_dataset *dataset, const char *const *names,
                                                      int classes);
/** Path of a sample, for messages. Borrowed; NULL if unknown. */
LT_API const char *lt_dataset_sample_name(const lt_dataset *dataset, int64_t index);

#include "lather/loader.h"

#endif
