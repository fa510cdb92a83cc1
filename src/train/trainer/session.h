/* A run of a classifier's program: its options and all that they open. */
#ifndef SESSION_H
#define SESSION_H

#include "train/classify/task.h"
#include "train/trainer/arguments.h"
#include "train/trainer/family.h"
#include "train/trainer/loop.h"

#include "lather/run_folder.h"

/* What a file of weights says besides numbers: texts in its metadata, under the names notes_key[]. */
typedef enum note_key {
    NOTE_MEAN,
    NOTE_STD, /* "0.485,0.456,0.406", of white 1 */
    NOTE_IMAGE_SIZE,
    NOTE_CROP_PCT,
    NOTE_INTERPOLATION,
    NOTE_AUGMENT,
    NOTE_CHANNELS,
    NOTE_CLASSES,
    NOTE_KEYS,
    NOTES = NOTE_KEYS + LT_MODEL_FACTS + 1 /* and the names of classes */
} note_key;
extern const char *const notes_key[NOTE_KEYS];
enum { NOTE_BYTES = 64, NAME_TEXT = 256 };
typedef struct notes {
    char *names;                      /* of classes, escaped, a line each; NULL: unknown */
    char text[NOTE_KEYS][NOTE_BYTES]; /* "": unknown */
} notes;
typedef enum origin { FROM_USUAL, FROM_FLAG, FROM_WEIGHTS } origin;
enum { SMALL_SIDE = 64, IMAGENET_SIDE = 224 }; /* pixels */

/* Zeroed parts are not there yet; session_close() frees what is. */
typedef struct session {
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

    lt_transform transform; /* of training; evaluation: session_eval_transform() */
    lt_size_schedule sizes; /* of training, if there is one */
    double crop;            /* share that evaluation's centre crop keeps; 0: the usual one */
    lt_normalize_config pixels;
    notes known, own;         /* of s->weights; of this run */
    origin origin[NOTE_KEYS]; /* of size, crop and interpolation */
    classification classify;  /* context of the task */
    int64_t total_steps;
    char weights[1100]; /* its model.safetensors, else --weights; "": neither */
    char changed[1024]; /* flags that are others than before the resume */
    lt_run_lock *lock;  /* of --output; NULL: none */

    struct details *details; /* of an evaluation; NULL: they are not wanted */

    lt_data_parallel *dp; /* NULL: one rank, or an evaluation */
    int workers;          /* loader threads of this rank; 0: as many as allowed */
    bool at_work;         /* everything is open: what fails from here on is no wrong command line */
} session;

/* parallel.c: several processes train one model. */
/* Joins the others that the launcher started; shares out the machine's threads. */
lt_status session_open_ranks(session *s);
/* Before the optimizer: gradients are averaged from now on. */
lt_status session_open_parallel(session *s);
/* Behind the optimizer and its groups, before a checkpoint: each rank keeps a part of the state. */
lt_status session_divide_optimizer(session *s);

/* sources.c: --data's parts to train on and to evaluate. */
lt_status session_open_sources(session *s);
/* Bytes that --cache-ram says; 0: no cache. */
int64_t session_cache_bytes(const session *s);

/* notes.c */
/* Errors: as lt_safetensors_open(). */
lt_status notes_read(notes *out, const char *path);
/* False, and text as it was, if the class has no name. */
bool notes_class_name(const notes *n, int label, char *text, size_t size);
int notes_class_count(const notes *n);
/* Names as they are, a line each, in place of those that n has. */
lt_status notes_set_names(notes *n, const char *lines);
void notes_clear(notes *n);
/* Mean and deviation of pixels with so many channels: of the flags, the weights, or the usual ones. */
lt_status session_choose_pixels(session *s, int channels);
/* That, and the class names of the data. */
lt_status session_open_notes(session *s);
/* Whether the checkpoint to resume was made with the same pixels and classes. */
lt_status session_check_notes(const session *s);
/* Those to save; borrowed from s. Returns how many. */
size_t session_notes(const session *s, lt_weights_note out[NOTES]);

/* input.c */
/* Size, crop, filter and augmentation; usual: the side that neither flags nor weights say.
 * Errors: LT_E_FORMAT (the weights' metadata). */
lt_status session_choose_input(session *s, int usual);
lt_transform session_eval_transform(const session *s);
/* Side of the inputs that an epoch trains on, and the largest of any. */
int session_train_side(const session *s, int64_t epoch);
int session_largest_side(const session *s);
/* Logs one line: network, size, crop, interpolation, and where they come from. */
void session_describe_input(const session *s);
/* The network of a file of weights, alone: without data, its input is what the file and the arguments say. */
lt_status session_open_weights(session *s, const char *path);

/* folder.c */
/* Locks --output and finds what --resume asks for; a run in the folder is refused without that or --overwrite.
 * Collective. */
lt_status session_open_folder(session *s);
/* Into s->changed: the flags that config.yaml of the checkpoint's run has otherwise. */
lt_status session_compare_flags(session *s);
/* With --overwrite, and where a run has weights but no checkpoint to go on from: it goes to OUTPUT/old-N, whose name
 * goes into to; "": nothing did. */
lt_status session_set_aside(const session *s, char *to, size_t size);
/* A resumed run's product that an earlier start wrote goes to STEM.old-N.SUFFIX. */
lt_status session_keep_file(const session *s, const char *path);

/* model.c */
lt_status session_open_model(session *s);

/* setup.c: opens everything that the arguments ask for, in this order. */
lt_status session_open_device(session *s);
lt_status session_open_data(session *s);
lt_status session_open_training(session *s);
void session_close(session *s);
lt_pass session_pass(const session *s, bool train);
/* Classification by the model, with the pixels and details of now. */
lt_task session_task(session *s);
/* images -> logits on the tape. */
lt_tensor *session_forward(session *s, lt_tensor *images);

/* optimizer.c */
lt_status session_open_optimizer(session *s);
lt_status session_open_schedule(session *s);

/* finetune.c: --freeze before the optimizer is made, --param-group after. */
lt_status session_freeze(session *s);
lt_status session_param_groups(session *s);

/* optimizer.c: what Shampoo's last step did, for a step's record; NaN if it does not apply. */
enum { SHAMPOO_VALUES = 10 };
void session_shampoo_values(const session *s, lt_metric out[SHAMPOO_VALUES]);

/* session.c: to the end, a target, a limit or a signal. */
lt_status session_train(session *s);
lt_status session_open_step(session *s);
/* What --resume asks for, if there is one: state, model, optimizer, averages. */
lt_status session_load_checkpoint(session *s);
lt_status session_evaluate(session *s, lt_evaluation *out);

/* logits.c */
/* The softmax of logits, in their place. */
void session_softmax(double *logits, int classes);
lt_status session_save_logits(session *s, const char *path);
/* details.c: from here on evaluations collect what --eval-json writes; after one, the file. Collective. */
lt_status session_open_details(session *s);
lt_status session_save_details(session *s, const lt_evaluation *e, const char *path);
void session_close_details(session *s);

/* summary.c: whether a step will fit; parameters, FLOPs, memory. Errors: LT_E_NOMEM. */
lt_status session_check_memory(const session *s);
lt_status session_summary(session *s);

/* blocks.c: Shampoo's blocks, what they keep and cost, and whose they are; to OUTPUT/blocks.txt too.
 * Errors: LT_E_IO, LT_E_NOMEM. */
lt_status session_blocks(session *s);

/* signals.c: from here on SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the run to stop; whether one did. A second
 * SIGINT or SIGTERM ends the process at once. */
void signals_install(void);
int signals_seen(void);
/* From here on a file that grows too large is EFBIG and a pipe without a reader EPIPE. */
void signals_as_errors(void);
/* Flushes standard output: the exit status, code unless that failed. */
int signals_flush(const char *program, int code);

/* predict.c: the command `predict`; returns the exit status. */
int command_predict(int argc, char *const *argv, const lt_model_family *family);
/* export.c: the command `export`. */
int command_export(int argc, char *const *argv, const lt_model_family *family);

/* recipe.c: lt_options_parse(), with the settings of --recipe NAME, of a folder of recipes, below all that the command line
 * and --config say. A run's config then has the settings, not the name. Errors: those, and LT_E_ARG
 * (no such recipe; one in a config file). */
lt_status recipe_parse(lt_options *options, const arguments *args, const char *folder, int argc,
                       char *const *argv);
/* `reproduce ...`: becomes tools/reproduce. Returns only where that fails: the exit status. */
int command_reproduce(char **argv, const char *program);

/* main.c: of the process, by how its work ended. An LT_E_ARG before the first picture is a wrong command line: found
 * while reading it, in a value that only the library can judge, or beside a checkpoint or data that it does not fit. */
enum { EXIT_DONE, EXIT_ERROR, EXIT_USAGE, EXIT_INTERRUPTED };
int exit_status(const session *s, lt_status st);

#endif
