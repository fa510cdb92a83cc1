/* Growth of a gang that runs on fewer ranks than it was given, because hosts are left out. It is stopped as by hand: SIGUSR2,
 * which mpirun forwards to its ranks, ends a trainer after its epoch. */

#include "base/clock.h"
#include "launch/host_check.h"
#include "launch/spawn.h"

#include <signal.h>

static bool may_grow(const lt_launch *launch, const lt_task *task)
{
    return launch->hosts && launch->hosts->is_checked && task->group
           && task->group->config.kind == LT_LAUNCH_NODE_GANG && task->count < task->most
           && task->group->config.policy != LT_LAUNCH_NODE_FAIL_FAST
           && lt_launch_find_flag(task->group, "--resume");
}

/* Returns the ranks that the gang could have with the hosts that passed. */
static int count_ranks(const lt_host_checks *checks, const lt_launch *launch, const lt_task *task)
{
    lt_launch_host *host = launch->hosts->host;
    lt_task grown = *task;
    for (int i = 0; i < launch->hosts->count; i++)
        host[i].is_out = host[i].is_out && !lt_host_checks_permit(checks, i);
    const lt_status st = lt_launch_fit_gang(launch, &grown, task->most);
    for (int i = 0; i < launch->hosts->count; i++)
        host[i].is_out = host[i].is_out || lt_host_checks_permit(checks, i);
    return st ? 0 : grown.count;
}

void lt_process_poll_growth(const lt_launch *launch, lt_process *p)
{
    const double now = lt_clock_seconds();
    char name[LT_LAUNCH_NAME];
    if (!p->checks && now >= p->check_at && may_grow(launch, p->task)
        && lt_host_checks_start(&p->checks, launch, NULL, true))
        p->check_at = now + LT_GROWTH_SECONDS;
    if (!p->checks || !lt_host_checks_poll(p->checks, 0))
        return;
    const int ranks = count_ranks(p->checks, launch, p->task);
    if (ranks > p->task->count) {
        if (!p->grows)
            fprintf(
                launch->log,
                "launch| %s: hosts for %d ranks again: it stops after its epoch and continues\n",
                lt_task_name(p->task, name, sizeof name), ranks);
        fflush(launch->log);
        p->grows = true;
        kill(p->pid, SIGUSR2); /* again after each check, as a trainer that starts may miss it */
    }
    lt_host_checks_free(&p->checks);
    p->check_at = now + LT_GROWTH_SECONDS;
}
