/* What a loader's thread does for one place in a batch. */

#include "data/sample.h"

#include "base/trace.h"
#include "data/failures.h"

#include <inttypes.h>

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
    double start = lt_seconds();
    lt_status st = d->ops->read(d, index, &scratch->record);
    scratch->read_seconds += lt_seconds() - start;
    lt_trace_end(span, LT_PROFILE_LOADER, "read", (int64_t)scratch->record.size);
    return st;
}

static lt_status transform(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                           bool *fatal)
{
    lt_rng rng = {.key = s->key};
    lt_status st = read_label(s->dataset, s->index, &scratch->record, label);
    *fatal = st != LT_OK;
    return st ? st
              : lt_transform_run(s->transform, lt_dataset_channels(s->dataset), &rng, scratch, out);
}

/* From the cache, whose record takes the place of the thread's own for so long; false: not there. */
static bool make_cached(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                        bool *fatal, lt_status *st)
{
    lt_record own = scratch->record;
    if (!lt_picture_cache_find(s->cache, s->index, &scratch->record))
        return false;
    *st = transform(s, scratch, label, out, fatal);
    scratch->record = own;
    return true;
}

static lt_status make(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                      bool *fatal)
{
    lt_status st;
    *fatal = false;
    if (s->cache && make_cached(s, scratch, label, out, fatal, &st))
        return st;
    LT_TRY(read_record(s->dataset, s->index, scratch));
    if (s->cache) {
        double start = lt_seconds();
        lt_picture_cache_add(s->cache, s->index, &scratch->record, lt_dataset_channels(s->dataset),
                             s->transform);
        scratch->decode_seconds += lt_seconds() - start;
    }
    return transform(s, scratch, label, out, fatal);
}

lt_status lt_sample_make(const lt_sample *s, lt_scratch *scratch, int32_t *label, uint8_t *out,
                         bool *fatal)
{
    lt_status st = make(s, scratch, label, out, fatal);
    if (*fatal || (st != LT_E_NOMEM && st != LT_E_UNSUPPORTED))
        return st;
    *fatal = true;
    return lt_failures_fatal(s->dataset, s->index, st);
}
