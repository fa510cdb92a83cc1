/* What the loader's counters say of an epoch: whether it or the computation held the run up. */

#include "train/trainer/session.h"

#include <math.h>
#include <stdio.h>

void session_feed_begin(session *s)
{
    s->feed_before = lt_loader_statistics(s->loader);
    s->feed_seconds = s->state.epoch_seconds;
}

static lt_loader_stats counted(const session *s)
{
    lt_loader_stats now = lt_loader_statistics(s->loader);
    return lt_loader_stats_since(&now, &s->feed_before);
}

void session_feed_values(const session *s, lt_metric out[FEED_VALUES])
{
    const lt_loader_stats t = counted(s);
    const bool ram = s->args.cache_ram, dir = s->args.cache_dir;
    const double unknown = (double)NAN;
    const lt_metric values[FEED_VALUES] = {
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
        {"cache_dir_hits", dir ? (double)t.disk_hits : unknown},
        {"cache_dir_misses", dir ? (double)t.disk_misses : unknown},
    };
    for (int i = 0; i < FEED_VALUES; i++)
        out[i] = values[i];
}

void session_feed_note(const session *s)
{
    const lt_loader_stats t = counted(s);
    double seconds = s->state.epoch_seconds - s->feed_seconds;
    double work = t.read_seconds + t.decode_seconds + t.resize_seconds;
    if (!t.batches || seconds <= 0 || work <= 0)
        return;
    lt_run_note(
        s->run,
        "epoch %lld: %s: %.1f %% of the time waited for pictures, %.1f of %d batches ready in "
        "the mean; loader: %.0f %% reading, %.0f %% decoding, %.0f %% resizing",
        (long long)s->state.epoch + 1, lt_loader_bound(&t, seconds), 100 * t.wait_seconds / seconds,
        (double)t.ready / (double)t.batches, t.capacity, 100 * t.read_seconds / work,
        100 * t.decode_seconds / work, 100 * t.resize_seconds / work);
}
