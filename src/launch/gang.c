/* Number of ranks of a gang, and the grad-accum that keeps its global batch:
 *
 *     global batch = batch size x grad-accum x ranks */

#include "launch/hosts.h"
#include "launch/launch.h"

#include "lather/ext/fail.h"

#include <inttypes.h>
#include <string.h>

lt_status lt_launch_compute_gang_size(const lt_launch_node_config *config, int slots, int *ranks,
                                      int64_t *grad_accum)
{
    const int most = slots > 0 && slots < config->count ? slots : config->count;
    *grad_accum = 1;
    *ranks = most;
    if (!config->global_batch)
        return LT_OK;
    for (int r = most; r >= 1; r--)
        if (config->global_batch % (config->batch_size * r) == 0) {
            *ranks = r;
            *grad_accum = config->global_batch / (config->batch_size * r);
            return LT_OK;
        }
    return lt_fail(LT_E_ARG,
                   "launch: %s: a global batch of %" PRId64
                   " is not a multiple of micro-batches of %" PRId64 " on %d ranks or fewer",
                   config->label, config->global_batch, config->batch_size, most);
}

lt_status lt_launch_fit_gang(const lt_launch *launch, lt_task *task, int limit)
{
    const lt_launch_node_config *c = &task->group->config;
    const int slots = launch->hosts ? lt_launch_hosts_slots(launch->hosts, false) : limit;
    const bool may_shrink = c->policy == LT_LAUNCH_NODE_SHRINK
                            || (c->policy == LT_LAUNCH_NODE_RESTART && c->global_batch);
    char lost[512];
    if (slots < 1 || (slots < limit && !may_shrink))
        return lt_fail(LT_E_COMM,
                       "launch: %s needs %d ranks%s, but there are %d slots; left out: %s",
                       c->label, limit, may_shrink ? " or fewer" : "", slots,
                       lt_launch_hosts_describe_lost(launch->hosts, lost, sizeof lost));
    return lt_launch_compute_gang_size(c, slots < limit ? slots : limit, &task->count,
                                       &task->grad_accum);
}

const char *lt_launch_find_flag(const lt_launch_handle *group, const char *flag)
{
    const char *text[] = {group->config.command, group->config.arguments}, *at = NULL;
    for (int i = 0; i < 2 && !at; i++)
        at = text[i] ? strstr(text[i], flag) : NULL;
    return at ? at + strlen(flag) : NULL;
}
