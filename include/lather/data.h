/** Data sets: the source of samples; lather/loader.h turns them into batches. */
#ifndef LATHER_DATA_H
#define LATHER_DATA_H

#include "lather/tensor.h"

typedef struct lt_dataset lt_dataset;

/** Opens a data set by name:
 *
 *  - "fashion-mnist": see lt_dataset_fashion_mnist();
 *  - "synthetic" or "synthetic:COUNT:SIZE:CLASSES": noise (1024 images of 224 x 224, 1000 classes);
 *  - "service:ADDRESS[,ADDRESS]": see lt_dataset_service();
 *  - a name registered with lt_dataset_register();
 *  - a folder with MNIST's four idx files, or the binary files of CIFAR-10 or CIFAR-100;
 *  - a pack (lather/pack.h), or a folder with the packs train and val;
 *  - a tar file, or a folder with tar files: those in FOLDER/train or with "train" in their names
 *    for training, likewise "val" for evaluation; see lt_dataset_tar();
 *  - any other folder: FOLDER/train for training, FOLDER/val (or valid, validation, test) for
 *    evaluation, FOLDER itself if it has neither; see lt_dataset_folder().
 *
 *  Without samples to evaluate, these are the training samples (lt_dataset.unsplit).
 *
 *  Errors: LT_E_ARG, LT_E_IO, LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_dataset_open(lt_dataset **out, const char *spec, bool train);
/** Opens a folder with one subfolder per class; the subfolder's name is the class. Images are files
 *  named .jpg, .jpeg, .png, .bmp, .gif, .webp, .avif, .tif, .tiff, .ppm or .pgm in any case, at any
 *  depth, reached through at most four symbolic links; the format is detected from the content.
 *  Hidden files and macOS's __MACOSX are skipped; a log line counts files with other extensions and
 *  images outside class folders. Classes and files are in bytewise order of their names.
 *  Class folders without images are left out with a warning that names them.
 *  Errors: LT_E_IO (no such folder), LT_E_FORMAT (no class folder, or none with images). */
LT_API LT_MUST_CHECK lt_status lt_dataset_folder(lt_dataset **out, const char *path);
/** Opens tar files in WebDataset's format: NAME.jpg (.jpeg, .png, ...) and NAME.cls with a class
 *  number from 0. Tar files without .cls are read as lt_dataset_folder() reads the folder that all
 *  images have in common. The first call scans each FILE.tar and writes FILE.tar.index next to it,
 *  or into the user's cache if the folder is read-only; an outdated index is rebuilt. Samples are in
 *  the order of path and of the tar files.
 *  Errors: LT_E_IO; LT_E_FORMAT (truncated, not a tar file, no image, only some have labels). */
LT_API LT_MUST_CHECK lt_status lt_dataset_tar(lt_dataset **out, const char *const *path,
                                              size_t count);
/** Opens a folder without class folders, as ImageNet's validation images are distributed, and a
 *  file of labels in one of two forms:
 *
 *  - FILE LABEL per line, separated by blanks or a comma; FILE may begin with folders;
 *  - LABEL per line, for the images in the order of their names.
 *
 *  LABEL is a class name (imagenet_2012_validation_synset_labels.txt) or number, counted from 0.
 *  Numbers that count from 1 in the second form are those of ILSVRC2012_validation_ground_truth.txt,
 *  in the devkit's order, which map_clsloc.txt in the same folder maps to names. class_names: names
 *  of the classes in order, or NULL to accept numbers only. classes 0: the largest label + 1.
 *  Samples are ordered by class, then by name, as in class folders.
 *  Errors: LT_E_IO; LT_E_FORMAT (an image without a label or with two, an unknown image or class). */
LT_API LT_MUST_CHECK lt_status lt_dataset_labelled(lt_dataset **out, const char *folder,
                                                   const char *labels,
                                                   const char *const *class_names, int classes);
/** Opens the images below a folder that a table labels: CSV with a header, or JSON lines. columns:
 *  "IMAGE,LABEL", the names of two columns; NULL: usual names (image, filename, id, ...; label, class,
 *  ...), or the only two. Images are named by path below the folder or by file name, with or without
 *  extension. class_names: names of the classes in order; NULL: those in the table, sorted, as numbers
 *  if all are. A warning names images without a label. Samples are ordered by class, then by path.
 *  Errors: LT_E_IO; LT_E_ARG (columns); LT_E_FORMAT (a label for no image, a second one, a class that
 *  class_names lacks, a damaged table). */
LT_API LT_MUST_CHECK lt_status lt_dataset_table(lt_dataset **out, const char *folder,
                                                const char *labels, const char *columns,
                                                const char *const *class_names, int classes);
/** Opens a pair of MNIST's idx files, plain or gzip. Labels must be below classes; classes 0: the
 *  largest label + 1.
 *  Errors: LT_E_IO, LT_E_FORMAT (also labels out of range and counts that differ). */
LT_API LT_MUST_CHECK lt_status lt_dataset_idx(lt_dataset **out, const char *images,
                                              const char *labels, int classes);
/** Opens Fashion-MNIST's train or test part as Debian's dataset-fashion-mnist installs it, or from
 *  $LATHER_FASHION_MNIST. Errors: LT_E_IO, naming the package; LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_dataset_fashion_mnist(lt_dataset **out, bool train);
/** Opens a list of image files for prediction, in this order, all of class 0. A folder stands for
 *  the images in it at any depth, selected by extension and in bytewise order of their paths; hidden
 *  files are skipped and links to folders are not followed. paths: copied. channels: 1 or 3.
 *  Errors: LT_E_ARG, LT_E_NOMEM; the loader handles a missing file or a folder without images as a
 *  corrupt image. */
LT_API LT_MUST_CHECK lt_status lt_dataset_files(lt_dataset **out, const char *const *paths,
                                                int64_t count, int channels);
/** Makes count noise images of size x size with 1 or 3 channels; an index always gives the same. */
LT_API LT_MUST_CHECK lt_status lt_dataset_synthetic(lt_dataset **out, int64_t count, int size,
                                                    int channels, int classes);
/** Records in memory, for lt_dataset_arrays(). */
typedef struct lt_arrays {
    const float *values;   /**< [count][shape] values of the records, row-major */
    const int64_t *labels; /**< [count] classes of the records, 0 to classes-1 */
    int64_t count;
    lt_shape shape; /**< shape of one record, 1 to 4 dimensions: [F], [C,H,W], ... */
    int classes;    /**< number of classes; 0: the largest label + 1 */
    bool copy;      /**< true: copy both arrays; false: borrow them until the data set is freed */
} lt_arrays;
/** Makes a data set of arrays. Batches are LT_F32 tensors [N,shape] of the unchanged values, as
 *  transforms apply only to images. Order, ranks and lt_loader_seek() work as for other data sets.
 *  Errors: LT_E_ARG (also a label out of range), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_arrays(lt_dataset **out, const lt_arrays *arrays);
LT_API void lt_dataset_free(lt_dataset **dataset);

LT_API int64_t lt_dataset_count(const lt_dataset *dataset);
LT_API int lt_dataset_classes(const lt_dataset *dataset);
LT_API int lt_dataset_channels(const lt_dataset *dataset); /**< channels of the images: 1 or 3 */
/** Returns the shape of one record of an array; ndim is 0 for images. */
LT_API lt_shape lt_dataset_shape(const lt_dataset *dataset);
/** Reads the first image's short side in pixels, 0 if unknown. Errors: LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_dataset_short_side(const lt_dataset *dataset, int *side);
/** Returns the borrowed name of a class, NULL if it has none. */
LT_API const char *lt_dataset_class_name(const lt_dataset *dataset, int label);
/** Checks that a network trained on train's classes can be evaluated on val's: both must have the
 *  same names in the same order. If only one has names, the counts must be equal; if neither has,
 *  val may have fewer classes.
 *  Errors: LT_E_FORMAT, naming the classes that only one of them has. */
LT_API LT_MUST_CHECK lt_status lt_dataset_same_classes(const lt_dataset *train,
                                                       const lt_dataset *val);
/** Hashes count, classes, class names and file names in their order, without folders, so that
 *  versions of a data set can be told apart. A folder, its tar files, its pack and its service have
 *  the same hash. Data without names are hashed by their labels, text by its tokens, images never.
 *  Never 0. */
LT_API uint64_t lt_dataset_fingerprint(const lt_dataset *dataset);
/** Returns the library that decodes JPEG, "libjpeg-turbo 2.1.5", or "" in a build without one. */
LT_API const char *lt_jpeg_library(void);
/** Returns the total file size of all samples if an index has it (tar files, packs of whole files),
 *  else 0. */
LT_API int64_t lt_dataset_bytes(const lt_dataset *dataset);
/** Renumbers the data set's classes to a model's, matched by name; labels, names and the number of
 *  classes are the model's afterwards. names: [classes], copied; a NULL entry matches the class of
 *  the same number. Call before making a loader; a second call renumbers the first one's classes.
 *  Errors: LT_E_FORMAT, listing the first classes that the model lacks; LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_map_classes(lt_dataset *dataset, const char *const *names,
                                                      int classes);
/** Replaces the data set by one of two parts of it, which have no sample in common: `fraction` of each
 *  class, rounded to whole samples, to evaluate (train false), or the others to train on. The parts are
 *  a function of seed and of the samples' names below the folder that all have in common, or their
 *  indices if they have no names; neither order nor storage (folder, tar files, pack) changes them.
 *  Call before lt_dataset_map_classes().
 *  Errors: LT_E_ARG (a fraction that is not between 0 and 1, or leaves a class without a sample in one
 *  part, naming it); LT_E_UNSUPPORTED (a data service, tokens); LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_dataset_split(lt_dataset **dataset, double fraction,
                                                uint64_t seed, bool train);
/** Sets *label to the class of a sample; reads the sample if the data set has no list of labels.
 *  Errors: those of reading. */
LT_API LT_MUST_CHECK lt_status lt_dataset_label(const lt_dataset *dataset, int64_t index,
                                                int *label);
/** Returns the borrowed path of a sample, for messages; NULL if unknown. */
LT_API const char *lt_dataset_sample_name(const lt_dataset *dataset, int64_t index);

#include "lather/loader.h"

#endif
