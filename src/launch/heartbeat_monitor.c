/* Detects hung nodes by their heartbeats.
 *
 * A node sends two heartbeats per interval and hangs if silent for one and a half, so a hang is detected within two
 * intervals. A node is watched from its first heartbeat on, as starting it may take long. Ranks of a gang wait for each
 * other: if they make no progress, the rank that has made the least hangs. */

#include "launch/heartbeat_monitor.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/heartbeat.h"

#include <string.h>

double lt_heartbeat_interval(const lt_launch_node_config *config)
{
    const double per_heartbeat = 2, per_progress = 4;
    const double h = config->heartbeat / per_heartbeat, p = config->progress / per_progress;
    return h > 0 && (p <= 0 || h < p) ? h : p;
}

static int count_nodes(const lt_launch *launch, const lt_task *task, bool *wanted)
{
    int nodes = 0;
    for (int rank = 0;; rank++) {
        const lt_launch_handle *h = lt_task_group_of_rank(launch, task, rank, NULL);
        if (!h)
            return nodes;
        *wanted = *wanted || lt_heartbeat_interval(&h->config) > 0;
        nodes++;
    }
}

lt_status lt_heartbeat_monitor_new(lt_heartbeat_monitor *out, const lt_launch *launch,
                                   const lt_task *task)
{
    bool wanted = false;
    const int nodes = count_nodes(launch, task, &wanted);
    *out = (lt_heartbeat_monitor){0};
    if (!wanted)
        return LT_OK;
    out->node = lt_alloc((size_t)nodes, sizeof *out->node);
    out->nodes = nodes;
    return out->node ? LT_OK : LT_E_NOMEM;
}

void lt_heartbeat_monitor_free(lt_heartbeat_monitor *monitor)
{
    lt_free(monitor->node);
    *monitor = (lt_heartbeat_monitor){0};
}

void lt_heartbeat_monitor_reset(lt_heartbeat_monitor *monitor)
{
    monitor->bytes = 0;
    if (monitor->nodes)
        memset(monitor->node, 0, (size_t)monitor->nodes * sizeof *monitor->node);
}

static void record_heartbeat(lt_heartbeat_monitor *b)
{
    int rank = -1;
    long long count = 0;
    b->text[b->bytes] = 0;
    /* NOLINTNEXTLINE(cert-err34-c): the library writes these numbers */
    if (sscanf(b->text, "\001beat %d %lld", &rank, &count) != 2 || rank < 0 || rank >= b->nodes)
        return;
    lt_node_heartbeat *h = &b->node[rank];
    const double now = lt_clock_seconds();
    if (count == LT_HEARTBEAT_END) {
        *h = (lt_node_heartbeat){0};
        return;
    }
    if (h->at == 0 || (count != LT_HEARTBEAT_ALIVE && count != h->progress)) {
        h->moved = now;
        h->progress = count;
    }
    h->at = now;
}

bool lt_heartbeat_monitor_read_byte(lt_heartbeat_monitor *monitor, char c, bool *whole)
{
    *whole = false;
    if (!monitor->nodes || (!monitor->bytes && c != '\001'))
        return false;
    *whole = c == '\n' || monitor->bytes == LT_HEARTBEAT_LINE - 1;
    if (*whole) {
        record_heartbeat(monitor);
        monitor->bytes = 0;
    } else {
        monitor->text[monitor->bytes++] = c;
    }
    return true;
}

void lt_heartbeat_monitor_extend(lt_heartbeat_monitor *monitor, double seconds)
{
    for (int i = 0; i < monitor->nodes; i++)
        if (monitor->node[i].at > 0) {
            monitor->node[i].at += seconds;
            monitor->node[i].moved += seconds;
        }
}

bool lt_heartbeat_monitor_is_silent(const lt_heartbeat_monitor *monitor, int rank, double seconds)
{
    const double at = rank < monitor->nodes ? monitor->node[rank].at : 0;
    return at > 0 && lt_clock_seconds() - at > seconds;
}

/* Returns the rank with the least progress, or -1 if several have equally little. */
static int find_least_progress(const lt_heartbeat_monitor *monitor)
{
    int least = 0, with = 0;
    for (int i = 0; i < monitor->nodes; i++)
        if (monitor->node[i].at > 0 && monitor->node[i].progress < monitor->node[least].progress)
            least = i;
    for (int i = 0; i < monitor->nodes; i++)
        with +=
            monitor->node[i].at > 0 && monitor->node[i].progress == monitor->node[least].progress;
    return with == 1 ? least : -1;
}

static bool is_silent(const lt_node_heartbeat *h, const lt_launch_node_config *c, lt_hang *out)
{
    const double most = 1.5, since = lt_clock_seconds() - h->at;
    if (!(c->heartbeat > 0 && h->at > 0 && since > most * c->heartbeat))
        return false;
    snprintf(out->why, sizeof out->why, "has sent no heartbeat for %.2g s (heartbeat = %g)", since,
             c->heartbeat);
    return true;
}

static bool is_stuck(const lt_node_heartbeat *h, const lt_launch_node_config *c, lt_hang *out)
{
    const double since = lt_clock_seconds() - h->moved;
    if (!(c->progress > 0 && h->at > 0 && since > c->progress))
        return false;
    snprintf(out->why, sizeof out->why, "has made no progress for %.2g s (progress = %g)", since,
             c->progress);
    return true;
}

bool lt_heartbeat_monitor_find_hang(const lt_heartbeat_monitor *monitor, const lt_launch *launch,
                                    const lt_task *task, lt_hang *out)
{
    for (int i = 0; i < monitor->nodes; i++) {
        const lt_launch_handle *h = lt_task_group_of_rank(launch, task, i, NULL);
        out->rank = i;
        if (h && is_silent(&monitor->node[i], &h->config, out))
            return true;
        if (!h || !is_stuck(&monitor->node[i], &h->config, out))
            continue;
        if (h->config.kind == LT_LAUNCH_NODE_GANG)
            out->rank = find_least_progress(monitor);
        return true;
    }
    return false;
}
