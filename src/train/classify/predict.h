/* What the parts of the command predict share. */
#ifndef PREDICT_H
#define PREDICT_H

#include "train/trainer/session.h"

#include "lather/json.h"

typedef enum show_form { SHOW_TEXT, SHOW_JSON, SHOW_CSV } show_form;

typedef struct predict_arguments {
    const char *weights, *device, *class_names, *mean, *std, *files_from;
    int64_t image_size, threads, top, max_image_pixels;
    double crop_pct, max_image_seconds;
    int interpolation, exif;
    bool json, csv;
} predict_arguments;

/* What the command line lists, in order. Starts as {0}. */
typedef struct pictures {
    char **path; /* owned */
    size_t count, capacity;
    char input[32]; /* where the bytes of standard input can be read; "": it is no picture */
} pictures;

/* pictures.c: arguments, "-" being a picture on standard input, and the lines of --files-from.
 * Errors: LT_E_ARG (none; standard input asked for twice), LT_E_IO, LT_E_NOMEM. */
lt_status pictures_list(pictures *out, const lt_options *options, const char *files_from);
void pictures_clear(pictures *p);

/* show.c: a line or some for each picture, on standard output. */
typedef struct show {
    const char *program;
    show_form form;
    int top;             /* classes for each */
    int classes;         /* of the weights */
    const notes *names;  /* borrowed */
    int *order;          /* [classes], the likeliest first */
    double *probability; /* [classes] */
    lt_json_writer line;
    bool begun;
} show;
lt_status show_open(show *out, const predict_arguments *a, const session *s);
/* logits [classes] become probabilities. */
lt_status show_picture(show *s, const char *name, const double *logits);
/* A broken one: to standard error, and a line of JSON. */
lt_status show_failure(show *s, const char *name, const char *why);
void show_close(show *s);

#endif
