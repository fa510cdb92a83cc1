/* Splits a data set: a part of each class is held back for evaluation. A class's samples are sorted by random keys of
 * their names below the folder that all have in common, and the first ones are held back. So the parts depend neither
 * on the order of samples nor on how they are stored, and adding or removing some moves few others. */

#include "base/alloc.h"
#include "base/hash.h"
#include "base/rng.h"
#include "data/files/files.h"

#include "lather/detail/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- A part of a data set --- */

typedef struct part {
    lt_dataset base;
    lt_dataset *source; /* owned */
    int64_t *index;     /* [count] the part's samples in the source, ascending */
} part;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const part *p = (const part *)self;
    return p->source->ops->read(p->source, p->index[index], record);
}

static void read_ahead(const lt_dataset *self, int64_t index)
{
    const part *p = (const part *)self;
    if (p->source->ops->ahead)
        p->source->ops->ahead(p->source, p->index[index]);
}

static const char *class_name(const lt_dataset *self, int label)
{
    return lt_dataset_class_name(((const part *)self)->source, label);
}

static const char *sample_name(const lt_dataset *self, int64_t index)
{
    const part *p = (const part *)self;
    return lt_dataset_sample_name(p->source, p->index[index]);
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    const part *p = (const part *)self;
    return lt_dataset_label(p->source, p->index[index], label);
}

/* Hashes the indices, as the samples have no names. */
static uint64_t fingerprint(const lt_dataset *self, uint64_t hash)
{
    const part *p = (const part *)self;
    if (p->source->ops->fingerprint)
        hash = p->source->ops->fingerprint(p->source, hash);
    return lt_fnv1a(hash, p->index, (size_t)self->count * sizeof *p->index);
}

static void destroy(lt_dataset *self)
{
    part *p = (part *)self;
    lt_dataset_free(&p->source);
    lt_free(p->index);
}

static const lt_dataset_ops ops = {
    .name = "part",
    .bytes = sizeof(part),
    .read = read_sample,
    .ahead = read_ahead,
    .class_name = class_name,
    .sample_name = sample_name,
    .fingerprint = fingerprint,
    .label = read_label,
    .destroy = destroy,
};

/* --- The samples to hold back --- */

typedef struct keyed_sample {
    uint64_t key;
    int64_t index;
    int32_t label;
    bool is_held_back;
} keyed_sample;

static int by_class_then_key(const void *a, const void *b)
{
    const keyed_sample *x = a, *y = b;
    int order = (x->label > y->label) - (x->label < y->label);
    order = order ? order : (x->key > y->key) - (x->key < y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int by_index(const void *a, const void *b)
{
    const keyed_sample *x = a, *y = b;
    return (x->index > y->index) - (x->index < y->index);
}

/* Returns the bytes of the longest folder that the names of all samples begin with, including its slash. */
static size_t common_folder_length(const lt_dataset *d)
{
    const char *first = lt_dataset_sample_name(d, 0), *slash = first ? strrchr(first, '/') : NULL;
    size_t common = slash ? (size_t)(slash + 1 - first) : 0;
    for (int64_t i = 1; common && i < d->count; i++) {
        const char *name = lt_dataset_sample_name(d, i);
        size_t same = 0;
        while (name && same < common && name[same] == first[same])
            same++;
        while (same && first[same - 1] != '/')
            same--;
        common = same;
    }
    return common;
}

static lt_status list_samples(const lt_dataset *d, uint64_t seed, keyed_sample *out)
{
    const size_t folder = common_folder_length(d);
    for (int64_t i = 0; i < d->count; i++) {
        const char *name = lt_dataset_sample_name(d, i);
        int label = 0;
        LT_TRY(lt_dataset_label(d, i, &label));
        out[i] = (keyed_sample){.index = i, .label = label};
        out[i].key = name ? lt_rng_name_key(seed, LT_STREAM_SPLIT, name + folder)
                          : lt_rng_key(seed, LT_STREAM_SPLIT, (uint64_t)i, 0);
    }
    qsort(out, (size_t)d->count, sizeof *out, by_class_then_key);
    return LT_OK;
}

static int64_t count_held_back(int64_t samples, double fraction)
{
    return llround((double)samples * fraction);
}

/* Fails because all or none of the samples of a class would be held back. */
static lt_status fail_empty_class(const lt_dataset *d, int label, int64_t samples, double fraction)
{
    enum { SHOWN = 256 };
    const char *name = lt_dataset_class_name(d, label);
    const int64_t held_back = count_held_back(samples, fraction);
    char shown[SHOWN], advice[SHOWN] = "each class needs at least two";
    if (!name)
        snprintf(shown, sizeof shown, "%d", label);
    if (samples > 1)
        snprintf(advice, sizeof advice, "a fraction from %.3g to %.3g splits it",
                 0.5 / (double)samples + 5e-4, 1 - 0.5 / (double)samples - 5e-4);
    return lt_fail(LT_E_ARG,
                   "%g of class '%s' with its %" PRId64 " samples leaves %" PRId64
                   " to train on and %" PRId64 " to evaluate; %s",
                   fraction, name ? lt_text_escape(shown, sizeof shown, name) : shown, samples,
                   samples - held_back, held_back, advice);
}

/* Marks the samples to hold back; the smallest class that cannot be split is an error. */
static lt_status hold_back(const lt_dataset *d, double fraction, keyed_sample *sample)
{
    int64_t end, fewest = INT64_MAX;
    int smallest = -1;
    for (int64_t i = 0; i < d->count; i = end) {
        for (end = i + 1; end < d->count && sample[end].label == sample[i].label;)
            end++;
        const int64_t held_back = count_held_back(end - i, fraction);
        if ((!held_back || held_back == end - i) && end - i < fewest) {
            fewest = end - i;
            smallest = sample[i].label;
        }
        for (int64_t k = i; k < i + held_back; k++)
            sample[k].is_held_back = true;
    }
    return smallest < 0 ? LT_OK : fail_empty_class(d, smallest, fewest, fraction);
}

static lt_status choose_part(part *p, const lt_dataset *d, double fraction, uint64_t seed,
                             bool train)
{
    keyed_sample *sample = lt_alloc((size_t)d->count, sizeof *sample);
    p->index = lt_alloc((size_t)d->count, sizeof *p->index);
    lt_status st = sample && p->index ? list_samples(d, seed, sample) : LT_E_NOMEM;
    if (!st)
        st = hold_back(d, fraction, sample);
    if (!st)
        qsort(sample, (size_t)d->count, sizeof *sample, by_index);
    for (int64_t i = 0; i < d->count && !st; i++)
        if (sample[i].is_held_back != train)
            p->index[p->base.count++] = i;
    lt_free(sample);
    return st;
}

lt_status lt_dataset_split(lt_dataset **dataset, double fraction, uint64_t seed, bool train)
{
    lt_dataset *d = *dataset, *out = NULL;
    if (!(fraction > 0 && fraction < 1))
        return lt_fail(LT_E_ARG, "got %g, want a fraction between 0 and 1", fraction);
    if (d->remote || d->tokens || d->label_map)
        return lt_fail(LT_E_UNSUPPORTED, "cannot split %s",
                       d->remote   ? "the images of a data service: serve-data has --val-split"
                       : d->tokens ? "tokens"
                                   : "a data set with other class numbers");
    LT_TRY(lt_dataset_new(&out, &ops));
    part *p = (part *)out;
    out->classes = d->classes;
    out->channels = d->channels;
    out->shape = d->shape;
    lt_status st = choose_part(p, d, fraction, seed, train);
    if (!st)
        p->source = d;
    return lt_dataset_set_or_free(dataset, out, st);
}
