/* Output of predict: one or more lines per image, on standard output. */
#ifndef LT_CLASSIFY_PREDICTIONS_H
#define LT_CLASSIFY_PREDICTIONS_H

#include "train/classify/metadata.h"

#include "lather/detail/json.h"

typedef enum output_form { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_CSV } output_form;

typedef struct predictions {
    const char *program;
    output_form form;
    int top;               /* number of most probable classes to print per image */
    int classes;           /* number of classes, and of logits */
    const metadata *names; /* names of the classes; borrowed */
    int *order;            /* [classes] indices sorted by probability, the most probable first */
    double *probability;   /* [classes] softmax of the logits */
    lt_json_writer line;
    bool begun;
} predictions;
/* Allocates memory; program, form, top and names must be set. Limits top to classes. */
lt_status lt_predictions_open(predictions *out, int classes);
/* Prints the predictions from logits [classes]. */
lt_status lt_predictions_print(predictions *s, const char *name, const double *logits);
/* Reports a corrupt image on standard error, and as a line of JSON. */
lt_status lt_predictions_print_failure(predictions *s, const char *name, const char *why);
void lt_predictions_close(predictions *s);

#endif
