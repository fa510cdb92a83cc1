/* --eval-json: collects what each image was taken for, and which images are the most telling. */

#include "train/classify/details.h"

#include "lather/ext/fail.h"

#include <stdlib.h>
#include <string.h>

lt_status lt_classifier_open_details(classifier *s)
{
    s->details = calloc(1, sizeof *s->details);
    if (!s->details)
        return lt_fail(LT_E_NOMEM, "--eval-json: no memory");
    s->details->classes = s->t->choice.spec.classes;
    s->details->channels = s->t->choice.spec.channels;
    s->details->side = s->transform.size;
    s->details->wrong.most = DETAIL_WRONG;
    s->details->right.most = DETAIL_RIGHT;
    return LT_OK;
}

static void clear(detail_list *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->item[i].image);
}

void lt_classifier_close_details(classifier *s)
{
    struct details *d = s->details;
    if (!d)
        return;
    clear(&d->wrong);
    clear(&d->right);
    free(d->pair);
    free(d->probability);
    free(d->label);
    free(d->pixels);
    free(d);
    s->details = NULL;
}

/* The likeliest; of equal ones the first. */
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

static bool belongs(const detail_list *list, const detail_sample *sample)
{
    return list->count < list->most || sample->certain < list->item[list->count - 1].certain;
}

static void insert(detail_list *list, const detail_sample *sample)
{
    if (list->count == list->most)
        free(list->item[--list->count].image);
    int at = list->count++;
    for (; at > 0 && list->item[at - 1].certain > sample->certain; at--)
        list->item[at] = list->item[at - 1];
    list->item[at] = *sample;
}

static lt_status add_pair(struct details *d, int label, int predicted)
{
    if (d->count == d->capacity) {
        size_t capacity = 2 * d->capacity + 1024;
        detail_pair *grown = realloc(d->pair, capacity * sizeof *grown);
        if (!grown)
            return lt_fail(LT_E_NOMEM, "--eval-json: no memory for %zu images", capacity);
        d->pair = grown;
        d->capacity = capacity;
    }
    d->pair[d->count++] = (detail_pair){label, predicted};
    return LT_OK;
}

static lt_status add_row(struct details *d, const lt_batch *batch, int row)
{
    int classes = d->classes, side = d->side;
    size_t image = (size_t)d->channels * (size_t)side * (size_t)side;
    double *p = d->probability + (size_t)row * (size_t)classes;
    detail_sample sample = {.index = batch->row[row].sample, .label = d->label[row]};
    lt_classifier_softmax(p, classes);
    find_top(p, classes, &sample);
    sample.certain = p[sample.label];
    LT_TRY(add_pair(d, sample.label, sample.predicted[0]));
    detail_list *list = sample.predicted[0] == sample.label ? &d->right : &d->wrong;
    if (!belongs(list, &sample))
        return LT_OK;
    sample.image = lt_thumbnail(d->pixels + (size_t)row * image, d->channels, side);
    if (!sample.image)
        return lt_fail(LT_E_NOMEM, "--eval-json: no memory for an image");
    insert(list, &sample);
    return LT_OK;
}

static lt_status read_tensor(const lt_tensor *from, void *to)
{
    return to ? lt_tensor_read(from, to, lt_tensor_bytes(from))
              : lt_fail(LT_E_NOMEM, "--eval-json: no memory for a batch");
}

lt_status lt_details_add(struct details *d, lt_tape *tape, const lt_batch *batch, lt_tensor *logits)
{
    lt_tensor *y = lt_cast(tape, logits, LT_F64);
    LT_TRY(lt_tape_status(tape));
    if (!d->probability) { /* the first batch is the largest */
        d->probability = malloc(lt_tensor_bytes(y));
        d->label = malloc(lt_tensor_bytes(batch->labels));
        d->pixels = malloc(lt_tensor_bytes(batch->inputs));
    }
    LT_TRY(read_tensor(y, d->probability));
    LT_TRY(read_tensor(batch->labels, d->label));
    LT_TRY(read_tensor(batch->inputs, d->pixels));
    for (int row = 0; row < batch->count; row++)
        LT_TRY(add_row(d, batch, row));
    return LT_OK;
}

static int by_label(const void *a, const void *b)
{
    const detail_pair *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    return (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

lt_status lt_classifier_save_details(classifier *s, const lt_evaluation *e, const char *path,
                                     const char *other)
{
    struct details *d = s->details;
    char *all;
    size_t bytes;
    lt_ranks *ranks = &s->t->ranks;
    const size_t own = ranks->is_counted ? d->count * sizeof *d->pair : 0;
    LT_TRY(lt_ranks_gather(ranks, d->pair, own, &all, &bytes));
    free(d->pair);
    d->pair = (detail_pair *)(void *)all;
    d->count = d->capacity = bytes / sizeof *d->pair;
    qsort(d->pair, d->count, sizeof *d->pair, by_label);
    if (s->t->ranks.rank)
        return LT_OK;
    if (path)
        LT_TRY(lt_details_write(d, s, e, path, false));
    return other ? lt_details_write(d, s, e, other, true) : LT_OK;
}
