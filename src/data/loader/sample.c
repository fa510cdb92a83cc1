/* Reads, decodes and transforms one sample. */

#include "data/loader/sample.h"

#include "base/clock.h"
#include "base/trace.h"
#include "data/loader/corrupt_samples.h"
#include "data/remote/remote.h"

#include "lather/ops/loss.h"

#include <inttypes.h>
#include <string.h>

static lt_status check_label(const lt_dataset *d, int64_t index, int32_t label)
{
    const char *name = lt_dataset_sample_name(d, index);
    if (label >= 0 && label < d->classes)
        return LT_OK;
    return lt_fail(LT_E_FORMAT, "%s: sample %" PRId64 " has label %d, want 0 .. %d",
                   name ? name : d->ops->name, index, (int)label, d->classes - 1);
}

/* Checks token ids and labels; a label may also be LT_IGNORED_LABEL. */
static lt_status check_ids(const lt_dataset *d, int64_t index, const int32_t *id,
                           const int32_t *label)
{
    const size_t count = lt_sample_label_count(d);
    for (size_t i = 0; i < 2 * count; i++) {
        const int32_t value = i < count ? id[i] : label[i - count];
        if ((value < 0 || value >= d->classes) && (i < count || value != LT_IGNORED_LABEL))
            return lt_fail(LT_E_FORMAT,
                           "%s: sample %" PRId64 " has the id %d; the vocabulary has %d",
                           d->ops->name, index, (int)value, d->classes);
    }
    return LT_OK;
}

static lt_status read_record(const lt_dataset *d, int64_t index, lt_sample_workspace *workspace)
{
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    lt_status st = d->ops->read(d, index, &workspace->record);
    workspace->read_seconds += lt_clock_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "read", (int64_t)workspace->record.size);
    return st;
}

size_t lt_sample_bytes(const lt_dataset *d, int size)
{
    if (d->shape.ndim) /* f32 or i32 */
        return (size_t)lt_shape_count(d->shape) * sizeof(float);
    return (size_t)size * (size_t)size * (size_t)lt_dataset_channels(d);
}

size_t lt_sample_label_count(const lt_dataset *d)
{
    return d->tokens ? (size_t)lt_shape_count(d->shape) : 1;
}

/* Checks and copies the token ids and labels of a record. */
static lt_status copy_tokens(const lt_sample *s, const lt_record *r, int32_t *label, uint8_t *out)
{
    const lt_dataset *d = s->dataset;
    const size_t count = lt_sample_label_count(d), bytes = count * sizeof *label;
    const int32_t *id = (const int32_t *)(const void *)r->bytes;
    if (r->encoding != LT_ENCODING_TOKENS || r->size != 2 * bytes)
        return lt_fail(LT_E_FORMAT,
                       "%s: sample %" PRId64
                       " has a record of %zu bytes, want %zu ids and as many labels",
                       d->ops->name, s->index, r->size, count);
    LT_TRY(check_ids(d, s->index, id, id + count));
    memcpy(out, id, bytes);
    memcpy(label, id + count, bytes);
    return LT_OK;
}

/* Copies numbers; permutes [C,H,W] to [H,W,C], as 4-D tensors are stored channels-last. */
static lt_status copy_numbers(const lt_dataset *d, const lt_record *r, uint8_t *out)
{
    char shape[LT_SHAPE_TEXT];
    if (r->encoding != LT_ENCODING_FLOATS || r->size != lt_sample_bytes(d, 0))
        return lt_fail(LT_E_FORMAT, "data: record of %zu bytes, want f32 of shape %s", r->size,
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

static lt_status transform_record(const lt_sample *s, lt_sample_workspace *workspace,
                                  int32_t *label, uint8_t *out, bool *fatal)
{
    lt_rng rng = {.key = s->key};
    *label = workspace->record.label;
    lt_status st = check_label(s->dataset, s->index, *label);
    *fatal = st != LT_OK;
    if (!st && s->dataset->shape.ndim)
        return copy_numbers(s->dataset, &workspace->record, out);
    return st ? st
              : lt_transform_run(s->transform, lt_dataset_channels(s->dataset), &rng, workspace,
                                 out);
}

/* Makes the sample from the image cache, whose record replaces the thread's during the transform. Returns false if the
 * sample is not cached. */
static bool make_cached(const lt_sample *s, lt_sample_workspace *workspace, int32_t *label,
                        uint8_t *out, bool *fatal, lt_status *st)
{
    lt_record own = workspace->record;
    if (!lt_image_cache_find(s->cache, s->index, &workspace->record))
        return false;
    *st = transform_record(s, workspace, label, out, fatal);
    workspace->record = own;
    return true;
}

/* Makes a window of tokens. Errors are fatal, because replacing a window would repeat tokens within the epoch. */
static lt_status make_tokens(const lt_sample *s, lt_sample_workspace *workspace, int32_t *label,
                             uint8_t *out, bool *fatal)
{
    *fatal = true;
    LT_TRY(read_record(s->dataset, s->index, workspace));
    LT_TRY(copy_tokens(s, &workspace->record, label, out));
    *fatal = false;
    return LT_OK;
}

static lt_status make_local(const lt_sample *s, lt_sample_workspace *workspace, int32_t *label,
                            uint8_t *out, bool *fatal)
{
    lt_status st;
    *fatal = false;
    workspace->record.epoch_key = s->epoch_key;
    if (s->dataset->tokens)
        return make_tokens(s, workspace, label, out, fatal);
    if (s->cache && make_cached(s, workspace, label, out, fatal, &st))
        return st;
    LT_TRY(read_record(s->dataset, s->index, workspace));
    if (s->cache) {
        double start = lt_clock_seconds();
        lt_image_cache_add(s->cache, s->index, &workspace->record, lt_dataset_channels(s->dataset),
                           s->transform);
        workspace->decode_seconds += lt_clock_seconds() - start;
    }
    return transform_record(s, workspace, label, out, fatal);
}

/* Requests the sample from a data service; counts the time as reading. */
static lt_status make_remote(const lt_sample *s, lt_sample_workspace *workspace, int32_t *label,
                             uint8_t *out, bool *fatal)
{
    const lt_dataset *d = s->dataset;
    const lt_remote_sample sample = {.index = s->index,
                                     .key = s->key,
                                     .epoch_key = s->epoch_key,
                                     .transform = s->transform,
                                     .label_bytes = lt_sample_label_count(d) * sizeof *label,
                                     .bytes = lt_sample_bytes(d, s->transform->size)};
    int64_t span = lt_trace_begin();
    double start = lt_clock_seconds();
    lt_status st = lt_remote_make_sample(d, &sample, label, out, fatal);
    workspace->read_seconds += lt_clock_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "request a sample", (int64_t)sample.bytes);
    if (!st) { /* labels and ids are indices: those of a service are checked too */
        st = d->tokens ? check_ids(d, s->index, (const int32_t *)(const void *)out, label)
                       : check_label(d, s->index, *label);
        *fatal = st;
    }
    return st;
}

lt_status lt_sample_make(const lt_sample *s, lt_sample_workspace *workspace, int32_t *label,
                         uint8_t *out, bool *fatal)
{
    const int32_t *map = s->dataset->label_map;
    lt_status st = s->dataset->remote ? make_remote(s, workspace, label, out, fatal)
                                      : make_local(s, workspace, label, out, fatal);
    if (!st && map)
        *label = map[*label];
    if (s->dataset->remote)
        return st;
    if (*fatal || (st != LT_E_NOMEM && st != LT_E_UNSUPPORTED))
        return st;
    *fatal = true;
    return lt_add_sample_name_to_error(s->dataset, s->index, st);
}
