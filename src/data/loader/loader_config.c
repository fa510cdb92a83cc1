/* A loader's config: what its zeros stand for, and what it must not say. */

#include "data/loader/loader_config.h"

#include "data/transform/augment.h"
#include "data/transform/mix.h"

#include "lather/device.h"
#include "lather/ext/dataset.h"

#include <inttypes.h>

/* Fills in what a zero stands for. */
static void fill_in(lt_loader_config *c, const lt_dataset *dataset)
{
    enum { SLOTS = 4 };
    c->size = c->size ? c->size : 1;
    c->threads = c->threads ? c->threads : lt_cpu_threads();
    c->slots = c->slots ? c->slots : SLOTS;
    c->limit = c->limit && c->limit < dataset->count ? c->limit : dataset->count;
}

/* The transform at every size. */
static lt_status check_sizes(lt_loader_config *c)
{
    LT_TRY(lt_size_schedule_check(&c->sizes));
    if (c->sizes.count && c->transform.resize)
        return lt_fail(LT_E_ARG,
                       "loader: resize %d and a schedule of sizes; crop_ratio goes with it",
                       c->transform.resize);
    for (int i = 0; i < c->sizes.count; i++) {
        lt_transform t = c->transform;
        t.size = c->sizes.step[i].size;
        LT_TRY(lt_transform_check(&t));
    }
    if (c->sizes.count)
        c->transform.size = c->sizes.step[0].size;
    return lt_transform_check(&c->transform);
}

/* What becomes of the samples: numbers take none of it. */
static lt_status check_inputs(lt_loader_config *c, const lt_dataset *dataset)
{
    LT_TRY(lt_mix_check(&c->mix));
    if (!dataset->shape.ndim)
        return check_sizes(c);
    if (lt_mix_wanted(&c->mix) || c->sizes.count)
        return lt_fail(LT_E_ARG, "loader: %s of numbers; want pictures",
                       c->sizes.count ? "sizes" : "mixing");
    return LT_OK;
}

lt_status lt_loader_config_complete(lt_loader_config *c, const lt_dataset *dataset)
{
    enum { MOST = 4096 };
    LT_TRY(check_inputs(c, dataset));
    fill_in(c, dataset);
    if (c->batch < 1)
        return lt_fail(LT_E_ARG, "loader: a batch of %d samples", c->batch);
    if (c->size < 1 || c->rank < 0 || c->rank >= c->size)
        return lt_fail(LT_E_ARG, "loader: rank %d of %d", c->rank, c->size);
    if (c->threads < 1 || c->threads > MOST || c->slots < 2 || c->slots > MOST)
        return lt_fail(LT_E_ARG, "loader: %d threads and %d slots, not 1 .. %d and 2 .. %d",
                       c->threads, c->slots, MOST, MOST);
    if (c->repeats < 0 || c->repeats > MOST)
        return lt_fail(LT_E_ARG, "loader: %d repeats, not 0 .. %d", c->repeats, MOST);
    if (c->cache_bytes < 0 || c->read_ahead < 0)
        return lt_fail(LT_E_ARG, "loader: a cache of %" PRId64 " bytes, %" PRId64 " samples ahead",
                       c->cache_bytes, c->read_ahead);
    if (c->limit < 1 || c->max_batches < 0)
        return lt_fail(LT_E_ARG, "loader: %" PRId64 " samples, at most %" PRId64 " batches",
                       c->limit, c->max_batches);
    return LT_OK;
}
