/* Image classification as a kind of task: its options and the parts that they open. */
#ifndef LT_CLASSIFIER_H
#define LT_CLASSIFIER_H

#include "train/classify/arguments.h"
#include "train/classify/metadata.h"
#include "train/classify/task.h"
#include "train/program/trainer.h"

typedef enum origin { FROM_USUAL, FROM_FLAG, FROM_WEIGHTS } origin;
enum { SMALL_SIDE = 64, IMAGENET_SIDE = 224 }; /* sides of images in pixels */

/* The part of the training images to evaluate on. */
typedef struct val_split {
    double fraction;     /* part of each class to hold back; 0: no split */
    uint64_t seed, data; /* data: hash of the whole data set; 0: unknown */
    bool other_val;      /* the data also has a validation part */
} val_split;

/* Context of lt_classifier_program; parts are zeroed until they are opened. */
typedef struct classifier {
    lt_trainer *t; /* the start; borrowed */
    classifier_options args;

    val_split split;
    lt_transform transform; /* transform for training; evaluation: lt_classifier_eval_transform() */
    lt_size_schedule sizes; /* sides by epoch for training, if there is a schedule */
    double crop;            /* fraction of the short side in evaluation's center crop; 0: default */
    lt_normalize_config pixels;
    metadata known, own;      /* metadata of t->weights; metadata of this run */
    bool other_classes;       /* --save-logits of images whose classes the weights do not have */
    origin origin[META_KEYS]; /* source of size, crop and interpolation */
    classification classify;  /* context of the task */
    lt_tensor *class_weight;  /* [classes] factors of the training loss; NULL: all 1 */
    lt_tensor *mirror;        /* [size] columns of a mirror image, for --tta; or NULL */
    lt_tensor *shift[2];      /* [size] rows and columns of images shifted by a pixel; or NULL */
    struct details *details;  /* details of an evaluation; NULL if not requested */
} classifier;

/* --- classifier.c: the context and its network --- */
/* Returns the trainer's context, a classifier, with its field t set. */
classifier *lt_classifier_of(lt_trainer *t);
/* Computes logits from images on the tape. */
lt_tensor *lt_classifier_forward(classifier *s, lt_tensor *images);

/* --- program.c: the table of the program --- */
extern const lt_trainer_program lt_classifier_program;

/* sources.c: opens the training and evaluation parts of --data. */
lt_status lt_classifier_open_sources(classifier *s);
/* Sets pixel normalization and class names. Maps the data's labels to the weights' classes of the same names.
 * Errors: LT_E_FORMAT, naming classes that the weights do not have. */
lt_status lt_classifier_open_metadata(classifier *s);
/* Checks that the weights of the checkpoint to resume were trained with the same pixel normalization and classes. */
lt_status lt_classifier_check_metadata(const classifier *s, const char *path);
/* Returns the number of metadata entries to save, which are borrowed from s. */
size_t lt_classifier_metadata(const classifier *s, lt_metadata out[META_ENTRIES]);
/* Returns the bytes of --cache-ram; 0: no cache. */
int64_t lt_classifier_cache_bytes(const classifier *s);

/* --- val_split.c: --val-split --- */
/* Parses the options. Errors: LT_E_ARG. */
lt_status lt_val_split_parse(const image_options *o, val_split *out);
/* Splits the training images, which input.val has, too: reduces it to those that are held back, input.train, if open, to
 * the rest. */
lt_status lt_classifier_split(classifier *s);
/* Reduces validation data that are training images to those that the training of the weights held back, if it had the
 * same data; logs their number. */
lt_status lt_classifier_split_as_weights(classifier *s);
void lt_classifier_note_split(const classifier *s);
/* Checks that the run of the checkpoint to resume had the same split. Errors: LT_E_ARG, naming both. */
lt_status lt_classifier_check_split(const classifier *s, const metadata *found);

/* --- preprocess.c: size, crop and normalization of inputs --- */
/* Chooses the mean and deviation of pixels for this number of channels: the flags', the weights', or the defaults. */
lt_status lt_classifier_choose_mean_std(classifier *s, int channels);
/* Chooses size, crop, filter and augmentation; usual: the side if neither flags nor weights set one. Errors:
 * LT_E_FORMAT (the weights' metadata). */
lt_status lt_classifier_choose_input(classifier *s, int usual);
/* Parses --auto-augment. Errors: LT_E_ARG. */
lt_status lt_parse_auto_augment(const image_options *o, bool *trivial, lt_rand_augment *rand);
lt_transform lt_classifier_eval_transform(const classifier *s);
/* Returns the side of an epoch's training inputs; lt_classifier_largest_side(): the largest of all. */
int lt_classifier_train_side(const classifier *s, int64_t epoch);
int lt_classifier_largest_side(const classifier *s);
/* Logs one line: network, size, crop, interpolation, and their sources. */
void lt_classifier_log_input(const classifier *s);
/* Opens the network of a weight file without data; its input is determined by the file and the arguments. */
lt_status lt_classifier_open_weights(classifier *s, const char *path, const char *device,
                                     int threads);

/* --- class_weights.c: tensors that the task reads --- */
/* Makes the weights of --class-weights for the training data. Errors: LT_E_ARG, naming an unknown class. */
lt_status lt_classifier_open_class_weights(classifier *s, int classes);
/* Makes the columns of mirror and shifted images for --tta. */
lt_status lt_classifier_open_tta(classifier *s);
/* Makes a tensor of count values of 4 bytes, which are read from host and freed. The previous *out is freed. */
lt_status lt_classifier_make_tensor(lt_tensor **out, const classifier *s, lt_dtype dtype,
                                    void *host, int64_t count);

/* --- logits.c: --save-logits --- */
lt_status lt_classifier_save_logits(classifier *s, const char *path);
/* class_report.c: lt_classifier_open_details() starts collecting the data of --eval-json; lt_classifier_save_details()
 * writes it to one or two files; either path may be NULL. Collective. */
lt_status lt_classifier_open_details(classifier *s);
/* Adds a batch's predictions to the data of --eval-json; the task's `collect`, with details = s->details. */
lt_status lt_classifier_add_details(void *details, lt_tape *tape, const lt_batch *batch,
                                    lt_tensor *logits);
lt_status lt_classifier_save_details(classifier *s, const lt_evaluation *e, const char *path,
                                     const char *other);
void lt_classifier_close_details(classifier *s);

/* The commands predict, export and serve-data. */
extern const lt_trainer_command lt_predict_command, lt_export_command, lt_serve_data_command;

#endif
