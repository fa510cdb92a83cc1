/* Batches for the steps of a run, and statistics of whether the loader or the computation limits the speed. */

#include "input.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void lt_train_input_close(lt_train_input *in)
{
    lt_loader_free(&in->loader);
    lt_dataset_free(&in->train);
    lt_dataset_free(&in->val);
}

lt_status lt_train_input_next(void *input, lt_batch *batch)
{
    lt_train_input *in = input;
    in->queued = lt_loader_statistics(in->loader).queued;
    return lt_loader_next(in->loader, batch);
}

lt_status lt_train_input_next_epoch(lt_train_input *in, int64_t epoch, int64_t batch)
{
    lt_batch none;
    lt_status st = lt_loader_next(in->loader, &none);
    if (st && st != LT_END)
        return st;
    return st == LT_END ? LT_OK : lt_loader_seek(in->loader, epoch, batch);
}

static lt_status agree_dataset(const lt_train_input *in, lt_ranks *ranks, const char *part,
                               const lt_dataset *data)
{
    char what[64];
    if (!data)
        return LT_OK;
    int classes = lt_dataset_classes(data);
    snprintf(what, sizeof what, "the number of %s to %s", in->unit, part);
    LT_TRY(lt_ranks_same_number(ranks, what, lt_dataset_count(data)));
    snprintf(what, sizeof what, "the number of classes to %s", part);
    LT_TRY(lt_ranks_same_number(ranks, what, classes));
    snprintf(what, sizeof what, "the sum of the names of %s to %s", in->unit, part);
    return lt_ranks_same_hash(ranks, what, lt_dataset_fingerprint(data));
}

lt_status lt_train_input_check_ranks(const lt_train_input *in, lt_ranks *ranks)
{
    LT_TRY(agree_dataset(in, ranks, "train on", in->train));
    return agree_dataset(in, ranks, "evaluate", in->val);
}

/* --- Corrupt samples --- */

/* Concatenates the descriptions of corrupt samples from index *listed on, each with its NUL; free with lt_free(). */
static char *join_bad_descriptions(const lt_loader *loader, int64_t *listed, size_t *bytes)
{
    size_t used = 0;
    for (int64_t i = *listed; loader && lt_loader_corrupt(loader, i); i++)
        used += strlen(lt_loader_corrupt(loader, i)) + 1;
    char *text = lt_alloc(used + 1, 1);
    *bytes = used;
    for (char *at = text; text && loader && lt_loader_corrupt(loader, *listed); ++*listed)
        at = stpcpy(at, lt_loader_corrupt(loader, *listed)) + 1;
    return text;
}

lt_status lt_train_input_record_corrupt(lt_ranks *ranks, lt_run *run, const lt_loader *loader,
                                        int64_t *listed)
{
    size_t bytes, total;
    char *own = join_bad_descriptions(loader, listed, &bytes), *all = NULL;
    bytes = ranks->is_counted ? bytes : 0;
    lt_status st = own ? lt_ranks_gather(ranks, own, bytes, &all, &total) : LT_E_NOMEM;
    for (const char *at = all; !st && at < all + total; at += strlen(at) + 1)
        st = lt_run_bad_image(run, at);
    lt_free(all);
    lt_free(own);
    return st;
}

/* --- Statistics --- */

void lt_train_input_begin_stats(lt_train_input *in, double epoch_seconds)
{
    in->begin = lt_loader_statistics(in->loader);
    in->begin_seconds = epoch_seconds;
}

static lt_loader_stats loader_stats_since_begin(const lt_train_input *in)
{
    lt_loader_stats now = lt_loader_statistics(in->loader);
    return lt_loader_stats_since(&now, &in->begin);
}

void lt_train_input_metrics(const lt_train_input *in, lt_metric out[INPUT_VALUES])
{
    const lt_loader_stats t = loader_stats_since_begin(in);
    const bool ram = in->has_ram_cache;
    const double unknown = (double)NAN;
    const lt_metric values[INPUT_VALUES] = {
        {"loader_wait_seconds", t.wait_seconds},
        {"loader_read_seconds", t.read_seconds},
        {"loader_decode_seconds", t.decode_seconds},
        {"loader_resize_seconds", t.resize_seconds},
        {"loader_idle_seconds", t.idle_seconds},
        {"loader_starved_batches", (double)t.starved},
        {"loader_mean_queue", t.batches ? (double)t.ready / (double)t.batches : 0},
        {"cache_ram_hits", ram ? (double)t.cache_hits : unknown},
        {"cache_ram_misses", ram ? (double)t.cache_misses : unknown},
        {"cache_ram_bytes", ram ? (double)t.cache_bytes : unknown},
    };
    memcpy(out, values, sizeof values);
}

void lt_train_input_log_bottleneck(const lt_train_input *in, lt_run *run, int64_t epoch,
                                   double epoch_seconds)
{
    const lt_loader_stats t = loader_stats_since_begin(in);
    const double seconds = epoch_seconds - in->begin_seconds;
    const double work = t.read_seconds + t.decode_seconds + t.resize_seconds;
    if (!t.batches || seconds <= 0 || work <= 0)
        return;
    lt_run_note(run,
                "epoch %lld: %s: %.1f %% of the time waited for %s, %.1f of %d batches ready in "
                "the mean; loader: %.0f %% reading, %.0f %% decoding, %.0f %% resizing",
                (long long)epoch + 1, lt_loader_bottleneck(&t, seconds),
                100 * t.wait_seconds / seconds, in->unit, (double)t.ready / (double)t.batches,
                t.capacity, 100 * t.read_seconds / work, 100 * t.decode_seconds / work,
                100 * t.resize_seconds / work);
}
