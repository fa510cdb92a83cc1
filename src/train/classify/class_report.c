/* --eval-json: collects the prediction of each image and the most informative images, and writes the accuracy of
 * each class, the confusions, and these images. */

#include "base/alloc.h"
#include "base/shared_file.h"
#include "train/classify/classifier.h"
#include "train/classify/thumbnail.h"

#include "lather/detail/json.h"
#include "lather/detail/text.h"
#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DETAIL_TOP = 3, DETAIL_WRONG = 16, DETAIL_RIGHT = 8, MOST_SCORES = 1 << 26 };

typedef struct detail_pair {
    int32_t label, predicted;
} detail_pair;

/* An image shown in the report. */
typedef struct detail_sample {
    int64_t index; /* index in the data set */
    int label, predicted[DETAIL_TOP];
    double certain,
        probability[DETAIL_TOP]; /* probability of the label; probabilities of the predictions */
    char *image;                 /* a data URI; owned */
} detail_sample;

/* Images with the lowest probability of their label; among equals the first. */
typedef struct detail_list {
    detail_sample item[DETAIL_WRONG];
    int count, most;
} detail_list;

struct details {
    int classes, channels, side; /* number of logits; channels and side of the batches' images */
    detail_pair *pair;           /* one for each image of this rank */
    size_t count, capacity;
    float
        *score; /* [capacity,1+classes]: label and probabilities; NULL beyond MOST_SCORES of them */
    detail_list wrong, right;
    double *probability; /* [N,classes] of a batch */
    int32_t *label;      /* [N] */
    uint8_t *pixels;     /* [N,C,H,W] */
};

lt_status lt_classifier_open_details(classifier *s)
{
    LT_TRY(LT_ALLOC(&s->details, 1));
    s->details->classes = lt_trainer_spec(s->t)->classes;
    s->details->channels = lt_trainer_spec(s->t)->channels;
    s->details->side = s->transform.size;
    s->details->wrong.most = DETAIL_WRONG;
    s->details->right.most = DETAIL_RIGHT;
    return LT_OK;
}

static void free_sample_images(detail_list *list)
{
    for (int i = 0; i < list->count; i++)
        lt_free(list->item[i].image);
}

void lt_classifier_close_details(classifier *s)
{
    struct details *d = s->details;
    if (!d)
        return;
    free_sample_images(&d->wrong);
    free_sample_images(&d->right);
    lt_free(d->pair);
    lt_free(d->score);
    lt_free(d->probability);
    lt_free(d->label);
    lt_free(d->pixels);
    lt_free(d);
    s->details = NULL;
}

/* Finds the most probable classes; among equals the first. */
static void find_top(const double *p, int classes, detail_sample *sample)
{
    int *top = sample->predicted, count = 0;
    for (int k = 0; k < classes; k++) {
        int at = count < DETAIL_TOP ? count++ : DETAIL_TOP;
        for (; at > 0 && !(p[top[at - 1]] >= p[k]); at--)
            if (at < DETAIL_TOP)
                top[at] = top[at - 1];
        if (at < DETAIL_TOP)
            top[at] = k;
    }
    for (int i = 0; i < DETAIL_TOP; i++) {
        sample->predicted[i] = i < count ? top[i] : -1;
        sample->probability[i] = i < count ? p[top[i]] : 0;
    }
}

static bool belongs_in_list(const detail_list *list, const detail_sample *sample)
{
    return list->count < list->most || sample->certain < list->item[list->count - 1].certain;
}

static void insert_sample(detail_list *list, const detail_sample *sample)
{
    if (list->count == list->most)
        lt_free(list->item[--list->count].image);
    int at = list->count++;
    for (; at > 0 && list->item[at - 1].certain > sample->certain; at--)
        list->item[at] = list->item[at - 1];
    list->item[at] = *sample;
}

/* Makes space for one more image; without space for its scores, all scores are dropped. */
static lt_status reserve_image(struct details *d)
{
    const size_t capacity = 2 * d->capacity + 1024, row = (size_t)d->classes + 1;
    if (d->count < d->capacity)
        return LT_OK;
    LT_TRY(LT_RESIZE(&d->pair, capacity));
    float *scores = (d->score || !d->capacity) && capacity * row <= MOST_SCORES
                        ? lt_realloc(d->score, capacity * row, sizeof *scores)
                        : NULL;
    if (!scores)
        lt_free(d->score);
    d->score = scores;
    d->capacity = capacity;
    return LT_OK;
}

static lt_status add_prediction(struct details *d, int label, int predicted, const double *p)
{
    LT_TRY(reserve_image(d));
    float *row = d->score ? d->score + d->count * ((size_t)d->classes + 1) : NULL;
    for (int k = -1; k < d->classes && row; k++)
        *row++ = (float)(k < 0 ? label : p[k]);
    d->pair[d->count++] = (detail_pair){label, predicted};
    return LT_OK;
}

static lt_status add_image(struct details *d, const lt_batch *batch, int row)
{
    int classes = d->classes, side = d->side;
    size_t image = (size_t)d->channels * (size_t)side * (size_t)side;
    double *p = d->probability + (size_t)row * (size_t)classes;
    detail_sample sample = {.index = batch->row[row].sample, .label = d->label[row]};
    lt_classification_softmax(p, classes);
    find_top(p, classes, &sample);
    sample.certain = p[sample.label];
    LT_TRY(add_prediction(d, sample.label, sample.predicted[0], p));
    detail_list *list = sample.predicted[0] == sample.label ? &d->right : &d->wrong;
    if (!belongs_in_list(list, &sample))
        return LT_OK;
    sample.image = lt_thumbnail(d->pixels + (size_t)row * image, d->channels, side);
    if (!sample.image)
        return LT_E_NOMEM;
    insert_sample(list, &sample);
    return LT_OK;
}

lt_status lt_classifier_add_details(void *details, lt_tape *tape, const lt_batch *batch,
                                    lt_tensor *logits)
{
    struct details *d = details;
    lt_tensor *y = lt_cast(tape, logits, LT_F64);
    LT_TRY(lt_tape_status(tape));
    const size_t bytes[] = {lt_tensor_bytes(y), lt_tensor_bytes(batch->labels),
                            lt_tensor_bytes(batch->inputs)};
    if (!d->probability) { /* the first batch is the largest */
        LT_TRY(LT_ALLOC(&d->label, bytes[1] / sizeof *d->label));
        LT_TRY(LT_ALLOC(&d->pixels, bytes[2]));
        LT_TRY(LT_ALLOC(&d->probability, bytes[0] / sizeof *d->probability));
    }
    LT_TRY(lt_tensor_read(y, d->probability, bytes[0]));
    LT_TRY(lt_tensor_read(batch->labels, d->label, bytes[1]));
    LT_TRY(lt_tensor_read(batch->inputs, d->pixels, bytes[2]));
    for (int row = 0; row < batch->count; row++)
        LT_TRY(add_image(d, batch, row));
    return LT_OK;
}

/* --- The file --- */

enum { MATRIX_CLASSES = 256, MOST_CONFUSED = 1000 };
enum { SHOWN_BYTES = 4 * PATH_MAX }; /* a byte may become \xHH */

static void put_escaped(lt_json_writer *w, const char *key, const char *text)
{
    char shown[SHOWN_BYTES];
    lt_json_put_string(w, key, text ? lt_text_escape(shown, sizeof shown, text) : NULL);
}

/* Puts a fraction in percent; null if it is NaN, as that of nothing. */
static void put_percent(lt_json_writer *w, const char *key, double fraction)
{
    const double percent = 100;
    if (!isnan(fraction))
        lt_json_put_number(w, key, percent * fraction);
    else
        lt_json_put_string(w, key, NULL);
}

static double share(int64_t part, int64_t whole)
{
    return whole ? (double)part / (double)whole : (double)NAN;
}

/* Writes a class; returns its F1, NaN if it is neither a label nor predicted. */
static double write_class(lt_json_writer *w, const classifier *s, int label, const int64_t *row,
                          int64_t predicted)
{
    char name[NAME_TEXT];
    const metadata *names = s->own.names ? &s->own : &s->known;
    int64_t images = 0;
    for (int k = 0; k < lt_trainer_spec(s->t)->classes; k++)
        images += row[k];
    lt_json_begin_object(w, NULL);
    put_escaped(w, "name", lt_metadata_class_name(names, label, name, sizeof name) ? name : NULL);
    lt_json_put_integer(w, "images", images);
    lt_json_put_integer(w, "correct", row[label]);
    lt_json_put_integer(w, "predicted", predicted);
    const double f1 = share(2 * row[label], images + predicted);
    put_percent(w, "top1", share(row[label], images));
    put_percent(w, "precision", share(row[label], predicted));
    put_percent(w, "f1", f1);
    lt_json_end(w);
    lt_json_put_raw(w, "\n");
    return f1;
}

/* Counts the predictions for a label in row; pairs are sorted. Returns the index of the next label's first pair. */
static size_t count_predictions_of_label(const struct details *d, size_t at, int label,
                                         int64_t *row, int classes)
{
    memset(row, 0, (size_t)classes * sizeof *row);
    for (; at < d->count && d->pair[at].label == label; at++)
        row[d->pair[at].predicted]++;
    return at;
}

static void write_classes(lt_json_writer *w, const struct details *d, const classifier *s,
                          int64_t *row, int64_t *predicted)
{
    for (size_t i = 0; i < d->count; i++)
        predicted[d->pair[i].predicted]++;
    lt_json_begin_array(w, "classes");
    size_t at = 0;
    double sum = 0, defined = 0;
    for (int label = 0; label < lt_trainer_spec(s->t)->classes; label++) {
        at = count_predictions_of_label(d, at, label, row, lt_trainer_spec(s->t)->classes);
        const double f1 = write_class(w, s, label, row, predicted[label]);
        sum += isnan(f1) ? 0 : f1;
        defined += !isnan(f1);
    }
    lt_json_end(w);
    put_percent(w, "f1_macro", sum / defined);
}

/* Rows are labels, columns predictions. */
static void write_matrix(lt_json_writer *w, const struct details *d, int classes, int64_t *row)
{
    if (classes > MATRIX_CLASSES)
        return;
    lt_json_begin_array(w, "confusion");
    size_t at = 0;
    for (int label = 0; label < classes; label++) {
        at = count_predictions_of_label(d, at, label, row, classes);
        lt_json_begin_array(w, NULL);
        for (int k = 0; k < classes; k++)
            lt_json_put_integer(w, NULL, row[k]);
        lt_json_end(w);
        lt_json_put_raw(w, "\n");
    }
    lt_json_end(w);
}

typedef struct confused {
    detail_pair pair;
    int64_t count;
} confused;

/* Sorts the most frequent first; ties by label, then by prediction. */
static int by_count(const void *a, const void *b)
{
    const confused *x = a, *y = b;
    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->pair.label != y->pair.label)
        return x->pair.label < y->pair.label ? -1 : 1;
    return (x->pair.predicted > y->pair.predicted) - (x->pair.predicted < y->pair.predicted);
}

static lt_status write_confused(lt_json_writer *w, const struct details *d)
{
    size_t count = 0;
    confused *list;
    LT_TRY(LT_ALLOC(&list, d->count));
    for (size_t i = 0; i < d->count; i++) {
        const detail_pair p = d->pair[i];
        if (p.label == p.predicted)
            continue;
        bool again = count && list[count - 1].pair.label == p.label
                     && list[count - 1].pair.predicted == p.predicted;
        if (!again)
            list[count++].pair = p;
        list[count - 1].count++;
    }
    qsort(list, count, sizeof *list, by_count);
    lt_json_begin_array(w, "confused");
    for (size_t i = 0; i < count && i < MOST_CONFUSED; i++) {
        lt_json_begin_object(w, NULL);
        lt_json_put_integer(w, "label", list[i].pair.label);
        lt_json_put_integer(w, "predicted", list[i].pair.predicted);
        lt_json_put_integer(w, "count", list[i].count);
        lt_json_end(w);
        lt_json_put_raw(w, "\n");
    }
    lt_json_end(w);
    lt_free(list);
    return LT_OK;
}

static void write_samples(lt_json_writer *w, const detail_list *list, const classifier *s)
{
    for (int i = 0; i < list->count; i++) {
        const detail_sample *p = &list->item[i];
        lt_json_begin_object(w, NULL);
        put_escaped(w, "path", lt_dataset_sample_name(s->t->input.val, p->index));
        lt_json_put_integer(w, "sample", p->index);
        lt_json_put_integer(w, "label", p->label);
        lt_json_put_number(w, "probability", p->certain);
        lt_json_begin_array(w, "predictions");
        for (int k = 0; k < DETAIL_TOP && p->predicted[k] >= 0; k++) {
            lt_json_begin_object(w, NULL);
            lt_json_put_integer(w, "index", p->predicted[k]);
            lt_json_put_number(w, "probability", p->probability[k]);
            lt_json_end(w);
        }
        lt_json_end(w);
        lt_json_put_string(w, "image", p->image);
        lt_json_end(w);
        lt_json_put_raw(w, "\n");
    }
}

/* Means over the classes that some but not all images have, one class against the rest: the area under the ROC curve, as
 * scikit-learn's roc_auc_score(multi_class="ovr"), and average_precision_score(); equal scores are one threshold. */
typedef struct ranking {
    double auc, mean_precision;
} ranking;

typedef struct scored {
    float score;
    bool is_positive;
} scored;

static int highest_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

/* Adds the metrics of sorted images, `positives` of which are of the class. */
static void add_class(const scored *list, size_t count, double positives, ranking *sum)
{
    double hits = 0, seen = 0, pairs = 0, precision = 0;
    for (size_t i = 0; i < count;) {
        const float score = list[i].score;
        double equal = 0, equal_hits = 0;
        for (; i < count && !(list[i].score < score); i++) {
            equal_hits += list[i].is_positive;
            equal++;
        }
        pairs += (equal - equal_hits) * (hits + equal_hits / 2);
        hits += equal_hits;
        seen += equal;
        precision += equal_hits * hits / seen;
    }
    sum->auc += pairs / (positives * ((double)count - positives));
    sum->mean_precision += precision / positives;
}

/* Computes the metrics of count rows: a label, then a score per class; NaN if no class has both. */
static lt_status rank_scores(ranking *out, const float *rows, size_t count, int classes)
{
    const size_t stride = (size_t)classes + 1;
    scored *list;
    int defined = 0;
    LT_TRY(LT_ALLOC(&list, count));
    *out = (ranking){0};
    for (int k = 0; k < classes; k++) {
        double positives = 0;
        for (size_t i = 0; i < count; i++) {
            list[i] = (scored){rows[i * stride + 1 + (size_t)k], (int)rows[i * stride] == k};
            positives += list[i].is_positive;
        }
        if (!(positives > 0 && positives < (double)count))
            continue;
        qsort(list, count, sizeof *list, highest_first);
        add_class(list, count, positives, out);
        defined++;
    }
    lt_free(list);
    out->auc /= defined;
    out->mean_precision /= defined;
    return LT_OK;
}

static lt_status write_report(lt_json_writer *w, const struct details *d, const classifier *s,
                              const lt_evaluation *e, int64_t *counts)
{
    int classes = lt_trainer_spec(s->t)->classes;
    lt_json_begin_object(w, NULL);
    put_escaped(w, "weights", s->t->line.args.weights);
    put_escaped(w, "data", s->t->line.args.data);
    lt_json_put_integer(w, "images", e->samples);
    lt_json_put_number(w, "top1", lt_classification_top1(&e->sums));
    lt_json_put_number(w, "top5", lt_classification_top5(&e->sums));
    lt_json_put_number(w, "loss", e->sums.loss);
    put_percent(w, "f1_micro", lt_classification_top1(&e->sums) / 100);
    ranking means = {(double)NAN, (double)NAN};
    if (d->score)
        LT_TRY(rank_scores(&means, d->score, d->count, d->classes));
    put_percent(w, "auc", means.auc);
    put_percent(w, "map", means.mean_precision);
    write_classes(w, d, s, counts, counts + classes);
    write_matrix(w, d, classes, counts);
    LT_TRY(write_confused(w, d));
    lt_json_begin_array(w, "samples");
    write_samples(w, &d->wrong, s);
    write_samples(w, &d->right, s);
    lt_json_end(w);
    lt_json_end(w);
    return LT_OK;
}

static lt_status save_json(lt_json_writer *w, const char *path, bool is_own_name)
{
    const char *text;
    size_t bytes;
    lt_json_put_raw(w, "\n");
    LT_TRY(lt_json_text(w, &text, &bytes));
    return is_own_name ? lt_shared_save(path, text, bytes) : lt_file_save(path, text, bytes);
}

static lt_status write_details(const struct details *d, const classifier *s, const lt_evaluation *e,
                               const char *path, bool is_own_name)
{
    lt_json_writer w = {0};
    int64_t *counts;
    LT_TRY(LT_ALLOC(&counts, 2 * lt_trainer_spec(s->t)->classes));
    lt_status st = write_report(&w, d, s, e, counts);
    if (!st)
        st = save_json(&w, path, is_own_name);
    lt_free(counts);
    lt_json_writer_clear(&w);
    return st;
}

static int by_label(const void *a, const void *b)
{
    const detail_pair *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

/* Gathers the scores of all ranks; drops them if a rank has none. */
static lt_status gather_scores(lt_ranks *ranks, struct details *d, size_t own)
{
    const size_t row = ((size_t)d->classes + 1) * sizeof *d->score;
    char *all;
    size_t bytes;
    LT_TRY(lt_ranks_gather(ranks, d->score, d->score ? own * row : 0, &all, &bytes));
    lt_free(d->score);
    d->score = (float *)(void *)all;
    if (bytes != d->count * row) {
        lt_free(d->score);
        d->score = NULL;
    }
    return LT_OK;
}

lt_status lt_classifier_save_details(classifier *s, const lt_evaluation *e, const char *path,
                                     const char *other)
{
    struct details *d = s->details;
    char *all;
    size_t bytes;
    lt_ranks *ranks = &s->t->ranks;
    const size_t own = ranks->is_counted ? d->count : 0;
    LT_TRY(lt_ranks_gather(ranks, d->pair, own * sizeof *d->pair, &all, &bytes));
    lt_free(d->pair);
    d->pair = (detail_pair *)(void *)all;
    d->count = d->capacity = bytes / sizeof *d->pair;
    LT_TRY(gather_scores(ranks, d, own));
    qsort(d->pair, d->count, sizeof *d->pair, by_label);
    if (s->t->ranks.rank)
        return LT_OK;
    if (path)
        LT_TRY(write_details(d, s, e, path, false));
    return other ? write_details(d, s, e, other, true) : LT_OK;
}
