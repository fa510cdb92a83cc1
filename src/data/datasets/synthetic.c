/* Noise images: output of the Philox generator, keyed by the sample's index. */

#include "base/rng.h"

#include "lather/ext/dataset.h"

#include <inttypes.h>
#include <string.h>

typedef struct synthetic {
    lt_dataset base;
    int32_t size;
} synthetic;

static lt_status read_sample(const lt_dataset *self, int64_t index, lt_record *record)
{
    const synthetic *s = (const synthetic *)self;
    size_t bytes = (size_t)s->size * (size_t)s->size * (size_t)self->channels;
    LT_TRY(lt_record_reserve(record, bytes));
    uint64_t key = lt_rng_key(0, LT_STREAM_DATA, (uint64_t)index, 0);
    uint32_t word[4];
    for (size_t i = 0; i < bytes; i += sizeof word) {
        lt_philox(key, 0, i, word);
        memcpy(record->bytes + i, word, bytes - i < sizeof word ? bytes - i : sizeof word);
    }
    record->size = bytes;
    record->encoding = LT_ENCODING_PIXELS;
    record->width = record->height = s->size;
    record->channels = self->channels;
    record->label = (int32_t)(index % self->classes);
    return LT_OK;
}

static lt_status read_label(const lt_dataset *self, int64_t index, int *label)
{
    *label = (int)(index % self->classes);
    return LT_OK;
}

static const lt_dataset_ops ops = {
    .name = "synthetic",
    .bytes = sizeof(synthetic),
    .label = read_label,
    .read = read_sample,
};

lt_status lt_dataset_synthetic(lt_dataset **out, int64_t count, int size, int channels, int classes)
{
    enum { MAX_SIDE = 1 << 13 };
    if (count < 1 || size < 1 || size > MAX_SIDE || classes < 1)
        return lt_fail(LT_E_ARG,
                       "synthetic: got %" PRId64
                       " images of side %d in %d classes; want at least 1 of each, sides up to %d",
                       count, size, classes, MAX_SIDE);
    if (channels != 1 && channels != 3)
        return lt_fail(LT_E_ARG, "synthetic: got %d channels, want 1 or 3", channels);

    lt_dataset *d = NULL;
    LT_TRY(lt_dataset_new(&d, &ops));
    d->count = count;
    d->classes = classes;
    d->channels = channels;
    ((synthetic *)d)->size = size;
    *out = d;
    return LT_OK;
}
