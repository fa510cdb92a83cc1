/* What --eval tells besides its three numbers: what each image was taken for, and some of them. */
#ifndef DETAILS_H
#define DETAILS_H

#include "train/classify/classifier.h"

#include "lather/json.h"

enum { DETAIL_TOP = 3, DETAIL_WRONG = 16, DETAIL_RIGHT = 8 };

typedef struct detail_pair {
    int32_t label, predicted;
} detail_pair;

/* An image to show. */
typedef struct detail_sample {
    int64_t index; /* in the data set */
    int label, predicted[DETAIL_TOP];
    double certain, probability[DETAIL_TOP]; /* of the label; of those predicted */
    char *image;                             /* a data URI; owned */
} detail_sample;

/* Those with the least probability of their label; of equal ones the first. */
typedef struct detail_list {
    detail_sample item[DETAIL_WRONG];
    int count, most;
} detail_list;

struct details {
    int classes, channels, side; /* of logits; of the batches' images */
    detail_pair *pair;           /* of every image of this rank */
    size_t count, capacity;
    detail_list wrong, right;
    double *probability; /* [N,classes] of a batch */
    int32_t *label;      /* [N] */
    uint8_t *pixels;     /* [N,C,H,W] */
};

/* details.c: of the rows of a batch. Reads logits, labels and images. */
lt_status lt_details_add(struct details *d, lt_tape *tape, const lt_batch *batch,
                         lt_tensor *logits);

/* thumbnail.c: pixels [channels][side][side] as "data:image/bmp;base64,...", at most 64 x 64; yours. NULL: no memory. */
char *lt_thumbnail(const uint8_t *pixels, int channels, int side);

/* details_write.c: pairs are sorted. is_own_name: the program made up the path, in a folder of a run. Errors: LT_E_IO, LT_E_NOMEM. */
lt_status lt_details_write(const struct details *d, const classifier *s, const lt_evaluation *e,
                           const char *path, bool is_own_name);

#endif
