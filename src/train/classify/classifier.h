/* A run of a classifier's program: its options and all that they open. */
#ifndef LT_CLASSIFIER_H
#define LT_CLASSIFIER_H

#include "train/classify/arguments.h"
#include "train/classify/task.h"
#include "train/trainer/loop.h"

/* What a file of weights says besides numbers: texts in its metadata, under the names lt_metadata_name[]. */
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
typedef enum origin { FROM_USUAL, FROM_FLAG, FROM_WEIGHTS } origin;
enum { SMALL_SIDE = 64, IMAGENET_SIDE = 224 }; /* pixels */

/* Zeroed parts are not there yet; lt_classifier_close() frees what is. */
typedef struct classifier {
    lt_options *options;
    arguments args;

    lt_ranks ranks;
    lt_train_input input;
    lt_train_state state;
    lt_train_step *step; /* NULL in an evaluation */
    lt_device *device;
    lt_module *model;
    family_choice choice; /* of the model */
    lt_params params;
    lt_optim *optim;
    lt_schedule schedule;
    lt_tape *tape;
    lt_run *run;
    lt_task_labels labels; /* borrowed by run */

    lt_transform transform; /* of training; evaluation: lt_classifier_eval_transform() */
    lt_size_schedule sizes; /* of training, if there is one */
    double crop;            /* share that evaluation's centre crop keeps; 0: the usual one */
    lt_normalize_config pixels;
    metadata known, own;      /* of s->weights; of this run */
    origin origin[META_KEYS]; /* of size, crop and interpolation */
    classification classify;  /* context of the task */
    int64_t total_steps;
    char weights[1100]; /* its model.safetensors, else --weights; "": neither */
    char changed[1024]; /* flags that are others than before the resume */
    lt_run_lock *lock;  /* of --output; NULL: none */

    struct details *details; /* of an evaluation; NULL: they are not wanted */

    lt_data_parallel *dp; /* NULL: one rank, or an evaluation */
    int workers;          /* loader threads of this rank; 0: as many as allowed */
    bool at_work;         /* everything is open: what fails from here on is no wrong command line */
} classifier;

/* parallel.c: several processes train one model. */
/* Joins the others that the launcher started; shares out the machine's threads. */
lt_status lt_classifier_open_ranks(classifier *s);
/* Before the optimizer: gradients are averaged from now on. */
lt_status lt_classifier_open_parallel(classifier *s);
/* Behind the optimizer and its groups, before a checkpoint: each rank keeps a part of the state. */
lt_status lt_classifier_divide_optimizer(classifier *s);

/* sources.c: --data's parts to train on and to evaluate. */
lt_status lt_classifier_open_sources(classifier *s);
/* Bytes that --cache-ram says; 0: no cache. */
int64_t lt_classifier_cache_bytes(const classifier *s);

/* metadata.c */
/* Errors: as lt_safetensors_open(). */
lt_status lt_metadata_read(metadata *out, const char *path);
/* False, and text as it was, if the class has no name. */
bool lt_metadata_class_name(const metadata *n, int label, char *text, size_t size);
int lt_metadata_class_count(const metadata *n);
/* Names as they are, a line each, in place of those that n has. */
lt_status lt_metadata_set_names(metadata *n, const char *lines);
void lt_metadata_clear(metadata *n);
/* Mean and deviation of pixels with so many channels: of the flags, the weights, or the usual ones. */
lt_status lt_classifier_choose_pixels(classifier *s, int channels);
/* That, and the class names of the data. */
lt_status lt_classifier_open_metadata(classifier *s);
/* Whether the checkpoint to resume was made with the same pixels and classes. */
lt_status lt_classifier_check_metadata(const classifier *s);
/* Those to save; borrowed from s. Returns how many. */
size_t lt_classifier_metadata(const classifier *s, lt_metadata out[META_ENTRIES]);

/* preprocess.c */
/* Size, crop, filter and augmentation; usual: the side that neither flags nor weights say.
 * Errors: LT_E_FORMAT (the weights' metadata). */
lt_status lt_classifier_choose_input(classifier *s, int usual);
lt_transform lt_classifier_eval_transform(const classifier *s);
/* Side of the inputs that an epoch trains on, and the largest of any. */
int lt_classifier_train_side(const classifier *s, int64_t epoch);
int lt_classifier_largest_side(const classifier *s);
/* Logs one line: network, size, crop, interpolation, and where they come from. */
void lt_classifier_describe_input(const classifier *s);
/* The network of a file of weights, alone: without data, its input is what the file and the arguments say. */
lt_status lt_classifier_open_weights(classifier *s, const char *path);

/* model.c */
lt_status lt_classifier_open_model(classifier *s);

/* setup.c: opens everything that the arguments ask for, in this order. */
lt_status lt_classifier_open_device(classifier *s);
lt_status lt_classifier_open_data(classifier *s);
lt_status lt_classifier_open_training(classifier *s);
void lt_classifier_close(classifier *s);
lt_pass lt_classifier_pass(const classifier *s, bool train);
/* Classification by the model, with the pixels and details of now. */
lt_task lt_classifier_task(classifier *s);
/* images -> logits on the tape. */
lt_tensor *lt_classifier_forward(classifier *s, lt_tensor *images);

/* train.c: to the end, a target, a limit or a signal. */
lt_status lt_classifier_train(classifier *s);
lt_status lt_classifier_open_step(classifier *s);
/* What --resume asks for, if there is one: state, model, optimizer, averages. */
lt_status lt_classifier_load_checkpoint(classifier *s);
lt_status lt_classifier_evaluate(classifier *s, lt_evaluation *out);

/* logits.c */
/* The softmax of logits, in their place. */
void lt_classifier_softmax(double *logits, int classes);
lt_status lt_classifier_save_logits(classifier *s, const char *path);
/* details.c: from here on evaluations collect what --eval-json writes; after one, the file. Collective. */
lt_status lt_classifier_open_details(classifier *s);
lt_status lt_classifier_save_details(classifier *s, const lt_evaluation *e, const char *path);
void lt_classifier_close_details(classifier *s);

/* memory.c: whether a step will fit; parameters, FLOPs, memory. Errors: LT_E_NOMEM. */
lt_status lt_classifier_check_memory(const classifier *s);
lt_status lt_classifier_summary(classifier *s);

/* A command beside training: its first argument, its own options and their struct. */
typedef struct classifier_command {
    const char *name;          /* "predict" */
    const lt_program *program; /* of its options; its name is made of the family's */
    size_t bytes;              /* of the struct that the options fill */
    /* Its work; *code: the exit status if it succeeds, EXIT_DONE before. */
    lt_status (*run)(classifier *s, const void *values, int *code);
} classifier_command;
extern const classifier_command lt_predict_command, lt_export_command;

/* main.c: of the process, by how its work ended. An LT_E_ARG before the first image is a wrong command line: found
 * while reading it, in a value that only the library can check, or beside a checkpoint or data that it does not fit. */
enum { EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED };
int lt_exit_status(const classifier *s, lt_status st);

#endif
