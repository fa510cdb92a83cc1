/* What the parts of the command predict share. */
#ifndef PREDICT_H
#define PREDICT_H

#include "train/classify/classifier.h"

#include "lather/json.h"

typedef enum output_form { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_CSV } output_form;

typedef struct predict_arguments {
    const char *weights, *device, *class_names, *files_from;
    image_options images; /* those that predict has */
    int64_t threads, top;
    bool json, csv;
} predict_arguments;

/* What the command line lists, in order. Starts as {0}. */
typedef struct image_list {
    char **path; /* owned */
    size_t count, capacity;
    char input[32]; /* where the bytes of standard input can be read; "": it is no image */
} image_list;

/* images.c: arguments, "-" being an image on standard input, and the lines of --files-from.
 * Errors: LT_E_ARG (none; standard input asked for twice), LT_E_IO, LT_E_NOMEM. */
lt_status lt_image_list_read(image_list *p, const lt_options *options, const char *files_from);
void lt_image_list_clear(image_list *p);

/* predictions.c: a line or some for each image, on standard output. */
typedef struct predictions {
    const char *program;
    output_form form;
    int top;               /* classes for each */
    int classes;           /* of the weights */
    const metadata *names; /* borrowed */
    int *order;            /* [classes], the likeliest first */
    double *probability;   /* [classes] */
    lt_json_writer line;
    bool begun;
} predictions;
lt_status lt_predictions_open(predictions *out, const predict_arguments *a, const classifier *s);
/* logits [classes] become probabilities. */
lt_status lt_predictions_add(predictions *s, const char *name, const double *logits);
/* A broken one: to standard error, and a line of JSON. */
lt_status lt_predictions_add_failure(predictions *s, const char *name, const char *why);
void lt_predictions_close(predictions *s);

#endif
