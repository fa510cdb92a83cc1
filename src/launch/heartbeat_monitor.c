/* Heartbeats as the launcher hears them.
 *
 * A node beats twice in a heartbeat and is silent for one and a half before it hangs, so a hang is noticed within
 * two. Only what has beaten once is looked at, as a launcher may take its time to start it.
 * A gang's ranks wait for each other: of those that make no progress the one that has made least hangs. */

#include "launch/heartbeat_monitor.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/heartbeat.h"

#include <string.h>

double lt_beats_interval(const lt_launch_node_config *config)
{
    const double beats = 2, looks = 4;
    const double by_heart = config->heartbeat / beats, by_progress = config->progress / looks;
    return config->heartbeat > 0 && (config->progress <= 0 || by_heart < by_progress) ? by_heart
                                                                                      : by_progress;
}

static int count_nodes(const lt_launch *launch, const lt_task *task, bool *wanted)
{
    int nodes = 0;
    for (int rank = 0;; rank++) {
        const lt_handle *h = lt_task_group(launch, task, rank, NULL);
        if (!h)
            return nodes;
        *wanted = *wanted || lt_beats_interval(&h->config) > 0;
        nodes++;
    }
}

lt_status lt_beats_new(lt_beats *out, const lt_launch *launch, const lt_task *task)
{
    bool wanted = false;
    const int nodes = count_nodes(launch, task, &wanted);
    *out = (lt_beats){0};
    if (!wanted)
        return LT_OK;
    out->node = lt_alloc((size_t)nodes, sizeof *out->node);
    out->nodes = nodes;
    return out->node ? LT_OK : LT_E_NOMEM;
}

void lt_beats_free(lt_beats *beats)
{
    lt_free(beats->node);
    *beats = (lt_beats){0};
}

void lt_beats_reset(lt_beats *beats)
{
    beats->bytes = 0;
    if (beats->nodes)
        memset(beats->node, 0, (size_t)beats->nodes * sizeof *beats->node);
}

static void note(lt_beats *b)
{
    int rank = -1;
    long long count = 0;
    b->text[b->bytes] = 0;
    if (sscanf(b->text, "\001beat %d %lld", &rank, &count) != 2 || rank < 0 || rank >= b->nodes)
        return;
    lt_heard *h = &b->node[rank];
    const double now = lt_clock_seconds();
    if (count == LT_BEAT_END) {
        *h = (lt_heard){0};
        return;
    }
    if (h->at == 0 || (count != LT_BEAT_ALIVE && count != h->progress)) {
        h->moved = now;
        h->progress = count;
    }
    h->at = now;
}

bool lt_beats_take(lt_beats *beats, char c, bool *whole)
{
    *whole = false;
    if (!beats->nodes || (!beats->bytes && c != '\001'))
        return false;
    *whole = c == '\n' || beats->bytes == LT_BEATS_LINE - 1;
    if (*whole) {
        note(beats);
        beats->bytes = 0;
    } else {
        beats->text[beats->bytes++] = c;
    }
    return true;
}

void lt_beats_forgive(lt_beats *beats, double seconds)
{
    for (int i = 0; i < beats->nodes; i++)
        if (beats->node[i].at > 0) {
            beats->node[i].at += seconds;
            beats->node[i].moved += seconds;
        }
}

/* The rank of a gang that hangs; -1: none has made less progress than all others. */
static int least_progress(const lt_beats *beats)
{
    int least = 0, with = 0;
    for (int i = 0; i < beats->nodes; i++) {
        if (beats->node[i].at > 0 && beats->node[i].progress < beats->node[least].progress)
            least = i;
    }
    for (int i = 0; i < beats->nodes; i++)
        with += beats->node[i].at > 0 && beats->node[i].progress == beats->node[least].progress;
    return with == 1 ? least : -1;
}

static bool is_silent(const lt_heard *h, const lt_launch_node_config *c, lt_hang *out)
{
    const double most = 1.5, since = lt_clock_seconds() - h->at;
    if (!(c->heartbeat > 0 && h->at > 0 && since > most * c->heartbeat))
        return false;
    snprintf(out->why, sizeof out->why, "has not been heard of for %.2g s (heartbeat = %g)", since,
             c->heartbeat);
    return true;
}

static bool is_stuck(const lt_heard *h, const lt_launch_node_config *c, lt_hang *out)
{
    const double since = lt_clock_seconds() - h->moved;
    if (!(c->progress > 0 && h->at > 0 && since > c->progress))
        return false;
    snprintf(out->why, sizeof out->why, "has made no progress for %.2g s (progress = %g)", since,
             c->progress);
    return true;
}

bool lt_beats_hang(const lt_beats *beats, const lt_launch *launch, const lt_task *task,
                   lt_hang *out)
{
    for (int i = 0; i < beats->nodes; i++) {
        const lt_handle *h = lt_task_group(launch, task, i, NULL);
        out->rank = i;
        if (h && is_silent(&beats->node[i], &h->config, out))
            return true;
        if (!h || !is_stuck(&beats->node[i], &h->config, out))
            continue;
        if (h->config.kind == LT_LAUNCH_NODE_GANG)
            out->rank = least_progress(beats);
        return true;
    }
    return false;
}
