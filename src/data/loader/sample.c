/* Reading, decoding and transforming one sample. */

#include "data/loader/sample.h"

#include "base/clock.h"
#include "base/trace.h"
#include "data/loader/corrupt_samples.h"
#include "data/remote/remote.h"

#include "lather/ops/loss.h"

#include <inttypes.h>
#include <string.h>

static lt_status read_label(const lt_dataset *d, int64_t index, const lt_record *record,
                            int32_t *label)
{
    if (record->label < 0 || record->label >= d->classes) {
        const char *name = lt_dataset_sample_name(d, index);
        return lt_fail(LT_E_FORMAT, "%s: sample %" PRId64 " has label %d, outside of 0 .. %d",
                       name ? name : d->ops->name, index, (int)record->label, d->classes - 1);
    }
    *label = record->label;
    return LT_OK;
}

static lt_status read_record(const lt_dataset *d, int64_t index, lt_scratch *scratch)
{
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    lt_status st = d->ops->read(d, index, &scratch->record);
    scratch->read_seconds += lt_clock_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "read", (int64_t)scratch->record.size);
    return st;
}

size_t lt_sample_bytes(const lt_dataset *d, int size)
{
    if (d->shape.ndim) /* f32 or i32 */
        return (size_t)lt_shape_count(d->shape) * sizeof(float);
    return (size_t)size * (size_t)size * (size_t)lt_dataset_channels(d);
}

size_t lt_sample_labels(const lt_dataset *d)
{
    return d->tokens ? (size_t)lt_shape_count(d->shape) : 1;
}

/* Ids below the vocabulary's size; labels alike, or LT_IGNORED_LABEL. */
static lt_status check_ids(const lt_dataset *d, int64_t index, const int32_t *id, size_t count)
{
    for (size_t i = 0; i < 2 * count; i++)
        if ((id[i] < 0 || id[i] >= d->classes) && (i < count || id[i] != LT_IGNORED_LABEL))
            return lt_fail(LT_E_FORMAT,
                           "%s: sample %" PRId64 " has the id %d; the vocabulary has %d",
                           d->ops->name, index, (int)id[i], d->classes);
    return LT_OK;
}

/* Ids and labels, both unchanged. */
static lt_status place_tokens(const lt_sample *s, const lt_record *r, int32_t *label, uint8_t *out)
{
    const lt_dataset *d = s->dataset;
    const size_t count = lt_sample_labels(d), bytes = count * sizeof *label;
    if (r->encoding != LT_ENCODING_TOKENS || r->size != 2 * bytes)
        return lt_fail(LT_E_FORMAT, "data: a record of %zu bytes is no %zu ids and labels", r->size,
                       count);
    LT_TRY(check_ids(d, s->index, (const int32_t *)(const void *)r->bytes, count));
    memcpy(out, r->bytes, bytes);
    memcpy(label, r->bytes + bytes, bytes);
    return LT_OK;
}

/* Copies numbers; [C,H,W] is permuted to [H,W,C], as 4-D tensors are stored channels-last. */
static lt_status place_numbers(const lt_dataset *d, const lt_record *r, uint8_t *out)
{
    char shape[LT_SHAPE_TEXT];
    if (r->encoding != LT_ENCODING_FLOATS || r->size != lt_sample_bytes(d, 0))
        return lt_fail(LT_E_FORMAT, "data: a record of %zu bytes is no %s of f32", r->size,
                       lt_shape_text(d->shape, shape));
    if (d->shape.ndim != 3) {
        memcpy(out, r->bytes, r->size);
        return LT_OK;
    }
    size_t channels = (size_t)d->shape.dim[0],
           pixels = (size_t)d->shape.dim[1] * (size_t)d->shape.dim[2];
    const float *from = (const float *)(const void *)r->bytes;
    float *to = (float *)(void *)out;
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < pixels; i++)
            to[i * channels + c] = from[c * pixels + i];
    return LT_OK;
}

static lt_status transform(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                           bool *fatal)
{
    lt_rng rng = {.key = s->key};
    lt_status st = read_label(s->dataset, s->index, &scratch->record, label);
    *fatal = st != LT_OK;
    if (!st && s->dataset->shape.ndim)
        return place_numbers(s->dataset, &scratch->record, out);
    return st ? st
              : lt_transform_run(s->transform, lt_dataset_channels(s->dataset), &rng, scratch, out);
}

/* From the image cache, whose record replaces the thread's own during the transform; false: it is
 * not cached. */
static bool make_cached(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                        bool *fatal, lt_status *st)
{
    lt_record own = scratch->record;
    if (!lt_image_cache_find(s->cache, s->index, &scratch->record))
        return false;
    *st = transform(s, scratch, label, out, fatal);
    scratch->record = own;
    return true;
}

/* A window of tokens. None is replaced by another: an epoch visits each token once. */
static lt_status make_tokens(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                             bool *fatal)
{
    *fatal = true;
    LT_TRY(read_record(s->dataset, s->index, scratch));
    LT_TRY(place_tokens(s, &scratch->record, label, out));
    *fatal = false;
    return LT_OK;
}

static lt_status make(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                      bool *fatal)
{
    lt_status st;
    *fatal = false;
    scratch->record.epoch_key = s->epoch_key;
    if (s->dataset->tokens)
        return make_tokens(s, scratch, label, out, fatal);
    if (s->cache && make_cached(s, scratch, label, out, fatal, &st))
        return st;
    LT_TRY(read_record(s->dataset, s->index, scratch));
    if (s->cache) {
        double start = lt_clock_seconds();
        lt_image_cache_add(s->cache, s->index, &scratch->record, lt_dataset_channels(s->dataset),
                           s->transform);
        scratch->decode_seconds += lt_clock_seconds() - start;
    }
    return transform(s, scratch, label, out, fatal);
}

/* Labels, and ids of tokens, index what a model has: a service's are checked here too. */
static lt_status check_remote(const lt_sample *s, const int32_t *label, const uint8_t *out)
{
    const lt_dataset *d = s->dataset;
    const size_t count = lt_sample_labels(d);
    const int32_t *id = d->tokens ? (const int32_t *)(const void *)out : NULL;
    for (size_t i = 0; i < count; i++) {
        const bool ignored = d->tokens && label[i] == LT_IGNORED_LABEL;
        if ((!ignored && (label[i] < 0 || label[i] >= d->classes))
            || (id && (id[i] < 0 || id[i] >= d->classes)))
            return lt_fail(LT_E_FORMAT,
                           "data: a service's sample %" PRId64 " has label %d, id %d; there are %d",
                           s->index, (int)label[i], id ? (int)id[i] : 0, d->classes);
    }
    return LT_OK;
}

/* By a service; its seconds are those of reading. */
static lt_status make_remote(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                             bool *fatal)
{
    const lt_dataset *d = s->dataset;
    const lt_remote_sample sample = {.index = s->index,
                                     .key = s->key,
                                     .epoch_key = s->epoch_key,
                                     .transform = s->transform,
                                     .label_bytes = lt_sample_labels(d) * sizeof *label,
                                     .bytes = lt_sample_bytes(d, s->transform->size)};
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    lt_status st = lt_remote_make(d, &sample, label, out, fatal);
    scratch->read_seconds += lt_clock_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "ask for a sample", (int64_t)sample.bytes);
    if (!st) {
        st = check_remote(s, label, out);
        *fatal = st;
    }
    return st;
}

lt_status lt_sample_make(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                         bool *fatal)
{
    const int32_t *map = s->dataset->label_map;
    lt_status st = s->dataset->remote ? make_remote(s, scratch, label, out, fatal)
                                      : make(s, scratch, label, out, fatal);
    if (!st && map)
        *label = map[*label];
    if (s->dataset->remote)
        return st;
    if (*fatal || (st != LT_E_NOMEM && st != LT_E_UNSUPPORTED))
        return st;
    *fatal = true;
    return lt_broken_fatal(s->dataset, s->index, st);
}
