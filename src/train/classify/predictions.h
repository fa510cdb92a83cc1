/* Output of predict: one or several lines an image, on standard output. */
#ifndef LT_CLASSIFY_PREDICTIONS_H
#define LT_CLASSIFY_PREDICTIONS_H

#include "train/classify/metadata.h"

#include "lather/detail/json.h"

typedef enum output_form { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_CSV } output_form;

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
/* Of the program, form, top and names that out has; top: at most. */
lt_status lt_predictions_open(predictions *out, int classes);
/* logits [classes] become probabilities. */
lt_status lt_predictions_add(predictions *s, const char *name, const double *logits);
/* A broken one: to standard error, and a line of JSON. */
lt_status lt_predictions_add_failure(predictions *s, const char *name, const char *why);
void lt_predictions_close(predictions *s);

#endif
