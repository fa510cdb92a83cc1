/* What the command line of a classifier's program says: a struct for each group of options. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "train/trainer/program.h"
#include "train/trainer/ranks.h"

#include "lather/optim_flags.h"

/* Indices of the choices, in the order of the rows. */
enum { AUGMENT_AUTO, AUGMENT_NONE, AUGMENT_IMAGENET, AUGMENT_SMALL };
enum { FILTER_AUTO, FILTER_BILINEAR };

/* What --help says of a family. */
typedef struct program_text {
    lt_program program;
    lt_option recipe; /* --recipe */
    char description[1024], recipe_help[256];
} program_text;

/* preprocess.c: what images are read, and how they become inputs. */
typedef struct image_options {
    const char *data, *val_labels, *image_size_schedule, *mean, *std;
    int augment, auto_augment, interpolation, decode, exif;
    int64_t image_size, max_image_pixels, repeated_aug;
    double flip, color_jitter, color_jitter_hue, random_erase, mixup_alpha, cutmix_alpha, crop_pct;
    double max_image_seconds;
} image_options;
lt_option_table lt_image_options(image_options *o);

typedef struct arguments {
    program_text text;
    const char *recipe, *weights, *save_logits, *eval_json;
    int64_t num_classes;
    double label_smoothing, target_top1;
    bool reset_head;
    image_options images;
    loader_options loader;
    training_options training;
    lt_optim_flags optim;
    group_options groups;
    schedule_options schedule;
    evaluation_options evaluation;
    output_options output;
    ranks_options ranks;
    machine_options machine;
} arguments;

/* The program's options, into args and the family's config; the selector is "optim".
 * Errors: as lt_options_compose(). */
lt_status lt_arguments_open(lt_options **out, arguments *args, const lt_model_family *family,
                            void *config);

void lt_arguments_close(lt_options **options, arguments *args);

/* Contradictions that no single option's range can tell. */
lt_status lt_arguments_check(const arguments *args, const lt_options *options);

#endif
