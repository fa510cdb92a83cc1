/* Image classification as a kind of task: its options and what they open, besides lt_trainer's. */
#ifndef LT_CLASSIFIER_H
#define LT_CLASSIFIER_H

#include "train/classify/arguments.h"
#include "train/classify/metadata.h"
#include "train/classify/task.h"
#include "train/program/trainer.h"

typedef enum origin { FROM_USUAL, FROM_FLAG, FROM_WEIGHTS } origin;
enum { SMALL_SIDE = 64, IMAGENET_SIDE = 224 }; /* pixels */

/* The context of lt_classifier_program; zeroed parts are not there yet. */
typedef struct classifier {
    lt_trainer *t; /* borrowed */
    classifier_options args;

    lt_transform transform; /* of training; evaluation: lt_classifier_eval_transform() */
    lt_size_schedule sizes; /* of training, if there is one */
    double crop;            /* share that evaluation's centre crop keeps; 0: the usual one */
    lt_normalize_config pixels;
    metadata known, own;      /* of t->weights; of this run */
    bool other_classes;       /* --save-logits of images whose classes the weights do not have */
    origin origin[META_KEYS]; /* of size, crop and interpolation */
    classification classify;  /* context of the task */
    struct details *details;  /* of an evaluation; NULL: they are not wanted */
} classifier;

/* classifier.c */
/* The context of a start. */
classifier *lt_classifier_of(lt_trainer *t);
/* images -> logits on the tape. */
lt_tensor *lt_classifier_forward(classifier *s, lt_tensor *images);

/* program.c */
extern const lt_trainer_program lt_classifier_program;

/* sources.c: --data's parts to train on and to evaluate. */
lt_status lt_classifier_open_sources(classifier *s);
/* Pixels, and the class names of the data, whose labels become those of the weights' classes of these names.
 * Errors: LT_E_FORMAT, naming classes that the weights do not have. */
lt_status lt_classifier_open_metadata(classifier *s);
/* Whether weights, those of the checkpoint to resume, were made with the same pixels and classes. */
lt_status lt_classifier_check_metadata(const classifier *s, const char *path);
/* Those to save; borrowed from s. Returns how many. */
size_t lt_classifier_metadata(const classifier *s, lt_metadata out[META_ENTRIES]);
/* Bytes that --cache-ram says; 0: no cache. */
int64_t lt_classifier_cache_bytes(const classifier *s);

/* preprocess.c */
/* Mean and deviation of pixels with so many channels: of the flags, the weights, or the usual ones. */
lt_status lt_classifier_choose_pixels(classifier *s, int channels);
/* Size, crop, filter and augmentation; usual: the side that neither flags nor weights say.
 * Errors: LT_E_FORMAT (the weights' metadata). */
lt_status lt_classifier_choose_input(classifier *s, int usual);
/* Parses --auto-augment. Errors: LT_E_ARG. */
lt_status lt_classifier_auto_augment(const image_options *o, bool *trivial, lt_rand_augment *rand);
lt_transform lt_classifier_eval_transform(const classifier *s);
/* Side of the inputs that an epoch trains on, and the largest of any. */
int lt_classifier_train_side(const classifier *s, int64_t epoch);
int lt_classifier_largest_side(const classifier *s);
/* Logs one line: network, size, crop, interpolation, and where they come from. */
void lt_classifier_describe_input(const classifier *s);
/* The network of a file of weights, alone: without data, its input is what the file and the arguments say. */
lt_status lt_classifier_open_weights(classifier *s, const char *path, const char *device,
                                     int threads);

/* logits.c */
lt_status lt_classifier_save_logits(classifier *s, const char *path);
/* details.c: from here on evaluations collect what --eval-json writes; after one, the file, and another; either path may be NULL. Collective. */
lt_status lt_classifier_open_details(classifier *s);
/* The task's collect; details: s->details. */
lt_status lt_classifier_add_details(void *details, lt_tape *tape, const lt_batch *batch,
                                    lt_tensor *logits);
lt_status lt_classifier_save_details(classifier *s, const lt_evaluation *e, const char *path,
                                     const char *other);
void lt_classifier_close_details(classifier *s);

/* The commands predict and export. */
extern const lt_trainer_command lt_predict_command, lt_export_command, lt_serve_data_command;

#endif
