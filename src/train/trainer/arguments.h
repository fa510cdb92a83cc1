/* What the command line of a training program says. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "lather/optim_flags.h"
#include "lather/trainer.h"

/* Indices of the choices, in the order of the table in arguments.c. */
enum { AMP_OFF, AMP_BF16, AMP_F16, AMP_TF32 };
enum { RUN_AHEAD_AUTO, RUN_AHEAD_OFF, RUN_AHEAD_ON };
enum { TF32_OFF, TF32_ON };
enum { AUGMENT_AUTO, AUGMENT_NONE, AUGMENT_IMAGENET, AUGMENT_SMALL };
enum { FILTER_AUTO, FILTER_BILINEAR };
enum { ON_NAN_ABORT, ON_NAN_SKIP };
enum { DIST_AUTO, DIST_OFF, DIST_MPI };
enum { COMM_F32, COMM_BF16, COMM_F16 };

/* What --help says of a family. */
typedef struct program_text {
    lt_program program;
    lt_option recipe; /* --recipe */
    lt_option dist;   /* --dist, with the choices dists */
    char dists[256];
    char description[1024], recipe_help[256];
} program_text;

typedef struct arguments {
    program_text text;
    /* Data */
    const char *data, *val_labels, *image_size_schedule;
    int augment, auto_augment, interpolation, decode;
    int exif;
    const char *mean, *std, *cache_dir, *cache_ram;
    int64_t read_ahead;
    int64_t image_size, workers, max_bad_images, limit_train_batches, limit_eval_batches;
    int64_t max_image_pixels;
    double max_image_seconds;
    int64_t overfit_batches, repeated_aug;
    double flip, color_jitter, color_jitter_hue, random_erase, mixup_alpha, cutmix_alpha, crop_pct;
    bool shuffle;
    /* Model */
    const char *weights, *recipe;
    int64_t num_classes;
    bool reset_head, freeze_bn;
    lt_option_list freeze;
    /* Training */
    int64_t batch_size, grad_accum, max_steps, seed;
    double epochs, label_smoothing, clip_grad, ema_decay;
    int amp, recompute, on_nan;
    bool deterministic;
    /* Optimizer */
    lt_optim_flags optim;
    lt_option_list param_group;
    /* Schedule */
    int sched;
    double warmup_epochs, warmup_lr, min_lr, step_epochs, gamma, power;
    lt_option_list milestone;
    /* Evaluation */
    bool eval;
    int64_t eval_every, eval_batch_size;
    double target_top1;
    const char *save_logits, *eval_json;
    /* Output */
    const char *output, *resume, *profile;
    int progress;
    int64_t checkpoint_every, keep, log_every;
    bool verbose, tensorboard, overwrite;
    /* Ranks */
    int dist, dist_bn, comm_dtype, grad_comm_dtype, balance;
    bool sync_bn, overlap, communicate_params, shard_optimizer;
    double bucket_mib, comm_timeout;
    int64_t num_trainers_per_group;
    const char *comm_model;
    /* Machine */
    const char *device;
    int64_t threads;
    int tf32, fused;
    bool graph;
    int run_ahead;
} arguments;

/* The program's options, into args and the family's config; the selector is "optim".
 * Errors: as lt_options_compose(). */
lt_status lt_arguments_open(lt_options **out, arguments *args, const lt_model_family *family,
                            void *config);

void lt_arguments_close(lt_options **options, arguments *args);

/* Contradictions that no single option's range can tell. */
lt_status lt_arguments_check(const arguments *args, const lt_options *options);

#endif
