/* Maps a job graph to processes and builds their command lines. */

#include "base/alloc.h"
#include "launch/hosts.h"
#include "launch/launch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A command line being built. */
typedef struct line {
    char *text;
    lt_status status;
} line;

static void LT_PRINTF(2, 3) add_word(line *l, const char *fmt, ...)
{
    char word[2 * LT_LAUNCH_PATH];
    va_list list;
    va_start(list, fmt);
    vsnprintf(word, sizeof word, fmt, list);
    va_end(list);
    char *longer = lt_format("%s %s", l->text ? l->text : "", word);
    if (!longer)
        l->status = LT_E_NOMEM;
    lt_free(l->text);
    l->text = longer;
}

static void add_number(line *l, int64_t number)
{
    add_word(l, "%" PRId64, number);
}

static const char *program_path(const lt_launch *launch)
{
    return launch->config->program ? launch->config->program : "lather";
}

/* Adds lather node FOLDER FILES PLATFORM PARENT LABEL FIRST COUNT OFFSET GRAD_ACCUM RUN. offset: rank of the first node
 * under mpirun or srun; negative: started directly, which sets PARENT. */
static void add_node_command(const lt_launch *launch, line *l, const lt_task *task, int offset)
{
    add_word(l, "'%s' node", program_path(launch));
    add_word(l, "'%s'", launch->place.folder);
    add_word(l, "'%s'", launch->place.files);
    add_number(l, launch->place.platform);
    add_number(l, offset < 0 ? getpid() : 0);
    add_word(l, "%s", task->group->config.label);
    add_number(l, task->index);
    add_number(l, task->group->config.kind == LT_LAUNCH_NODE_GANG ? task->count
                                                                  : task->group->config.count);
    add_number(l, offset);
    add_number(l, task->grad_accum);
    add_number(l, task->run);
}

/* Adds srun's -N and -r for a step of fewer tasks than machines: one machine per task, consecutive steps on consecutive
 * machines. */
static void add_srun_placement(const lt_launch *launch, line *l, int count)
{
    const char *text = getenv("SLURM_JOB_NUM_NODES");
    const int nodes = text ? (int)strtol(text, NULL, 10) : 0;
    if (count < nodes)
        add_word(l, "-N %d -r %d", count, (int)(launch->tasks % (size_t)(nodes - count + 1)));
}

/* Adds mpirun's list of hosts: those of a placement, or all. */
static void add_hosts(const lt_launch *launch, line *l, const int *host_of_rank, int ranks)
{
    char *list = NULL;
    if (!launch->hosts || l->status)
        return;
    l->status = lt_launch_hosts_list(launch->hosts, host_of_rank, ranks, &list);
    char *longer = list ? lt_format("%s --host %s", l->text, list) : NULL;
    lt_free(list);
    if (!longer)
        return;
    lt_free(l->text);
    l->text = longer;
}

/* Marks all processes of a task by a variable, by which a later attempt finds those that are left; mpirun's daemons on
 * other hosts get it too. */
static void add_mark(const lt_launch *launch, line *l, const lt_task *task)
{
    char mark[2 * LT_LAUNCH_NAME];
    lt_task_mark(launch, task, mark, sizeof mark);
    add_word(l, "env %s=%s", LT_TASK_MARK, mark);
    if (!getenv("OMPI_MCA_orte_launch_agent"))
        add_word(l, "'OMPI_MCA_orte_launch_agent=env %s=%s orted'", LT_TASK_MARK, mark);
    if (!getenv("PRTE_MCA_prte_launch_agent"))
        add_word(l, "'PRTE_MCA_prte_launch_agent=env %s=%s prted'", LT_TASK_MARK, mark);
}

/* Adds srun or mpirun for count processes. */
static void add_launcher_prefix(const lt_launch *launch, line *l, int count, const lt_task *task)
{
    const bool is_gang = task->group && task->group->config.kind == LT_LAUNCH_NODE_GANG;
    if (launch->place.platform == LT_LAUNCH_SLURM) {
        add_word(l, "srun --overlap --label --kill-on-bad-exit=1 %s",
                 is_gang ? "--mpi=pmix" : "--mpi=none");
        add_srun_placement(launch, l, count);
        add_word(l, "-n");
    } else {
        if (launch->hosts)
            add_mark(launch, l, task);
        add_word(l, "mpirun %s", geteuid() ? "" : "--allow-run-as-root");
        add_word(l, "--oversubscribe --tag-output");
        add_hosts(launch, l, task->host, is_gang ? count : 0);
        add_word(l, "-n");
    }
    add_number(l, count);
}

/* Returns true if one mpirun starts the group together with others. */
static bool is_in_joint_mpirun(const lt_launch *launch, const lt_launch_handle *h)
{
    return launch->place.platform == LT_LAUNCH_MPIRUN && h->config.kind != LT_LAUNCH_NODE_GANG
           && h->config.policy == LT_LAUNCH_NODE_FAIL_FAST;
}

/* Adds mpirun -n 1 A : -n 4 B of all services or all functions. */
static void add_joint_mpirun(const lt_launch *launch, line *l, const lt_task *joint)
{
    const lt_launch_node_kind kind = (lt_launch_node_kind)joint->index;
    int offset = 0;
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next) {
        if (!is_in_joint_mpirun(launch, h) || h->config.kind != kind)
            continue;
        const lt_task task = {.group = h, .count = h->config.count};
        if (offset) {
            add_word(l, ":");
            add_hosts(launch, l, NULL, 0);
            add_word(l, "-n");
            add_number(l, h->config.count);
        } else {
            add_launcher_prefix(launch, l, h->config.count, joint);
        }
        add_node_command(launch, l, &task, offset);
        offset += h->config.count;
    }
}

/* Sets the host of each rank. */
static lt_status place_gang(const lt_launch *launch, lt_task *task)
{
    if (!launch->hosts || !task->group || task->group->config.kind != LT_LAUNCH_NODE_GANG)
        return LT_OK;
    LT_TRY(LT_RESIZE(&task->host, task->count));
    const int placed = lt_launch_hosts_place(launch->hosts, task->count, task->host);
    return placed == task->count
               ? LT_OK
               : lt_fail(LT_E_COMM, "launch: %s needs %d ranks, but there are %d slots",
                         task->group->config.label, task->count, placed);
}

lt_status lt_launch_build_command(const lt_launch *launch, lt_task *task)
{
    line l = {0};
    const bool is_gang = task->group && task->group->config.kind == LT_LAUNCH_NODE_GANG;
    const bool by_launcher =
        launch->place.platform > LT_LAUNCH_LOCAL || (is_gang && task->count > 1);
    lt_free((void *)task->argv);
    task->argv = NULL;
    if (task->group && task->group->config.entry) {
        if (launch->place.platform > LT_LAUNCH_LOCAL || is_gang)
            return lt_fail(
                LT_E_UNSUPPORTED,
                "launch: %s: a function of this program can only run as a thread or a local process; use a module",
                task->group->config.label);
        return LT_OK;
    }
    LT_TRY(place_gang(launch, task));
    if (!task->group) {
        add_joint_mpirun(launch, &l, task);
    } else {
        if (by_launcher)
            add_launcher_prefix(launch, &l, task->count, task);
        add_node_command(launch, &l, task, by_launcher ? 0 : -1);
    }
    const lt_status st = l.status ? l.status : lt_launch_split_argv(&task->argv, l.text);
    lt_free(l.text);
    return st;
}

const char *lt_task_name(const lt_task *task, char *out, size_t size)
{
    if (!task->group)
        snprintf(out, size, "%s", task->index == LT_LAUNCH_NODE_SERVICE ? "services" : "functions");
    else if (task->count > 1 || task->group->config.kind == LT_LAUNCH_NODE_GANG)
        snprintf(out, size, "%s", task->group->config.label);
    else
        snprintf(out, size, "%s.%d", task->group->config.label, task->index);
    return out;
}

const char *lt_task_mark(const lt_launch *launch, const lt_task *task, char *out, size_t size)
{
    char name[LT_LAUNCH_NAME];
    const char *slash = strrchr(launch->place.files, '/');
    snprintf(out, size, "%.64s.%s", slash ? slash + 1 : launch->place.files,
             lt_task_name(task, name, sizeof name));
    return out;
}

const lt_launch_handle *lt_task_group_of_rank(const lt_launch *launch, const lt_task *task,
                                              int rank, int *index)
{
    int within = 0;
    int *at = index ? index : &within;
    *at = task->group ? task->index + rank : rank;
    if (task->group)
        return rank < task->count ? task->group : NULL;
    for (const lt_launch_handle *h = launch->program->first; h;
         h = h->next) { /* in the order of add_joint_mpirun() */
        if (!is_in_joint_mpirun(launch, h) || (int)h->config.kind != task->index)
            continue;
        if (*at < h->config.count)
            return h;
        *at -= h->config.count;
    }
    return NULL;
}

static lt_status add_task(lt_launch *launch, lt_task task)
{
    enum { GROWTH = 8 };
    if (launch->tasks % GROWTH == 0)
        LT_TRY(LT_RESIZE(&launch->task, launch->tasks + GROWTH));
    launch->task[launch->tasks++] = task;
    return lt_launch_build_command(launch, &launch->task[launch->tasks - 1]);
}

static lt_status add_gang_task(lt_launch *launch, const lt_launch_handle *h)
{
    const int slots = launch->config->slots;
    const int most = slots && slots < h->config.count ? slots : h->config.count;
    lt_task task = {.group = h, .run = 1, .most = most};
    if (slots && h->config.count > slots && !h->config.plan)
        return lt_fail(LT_E_ARG, "launch: %s needs %d ranks, but there are %d slots",
                       h->config.label, h->config.count, slots);
    LT_TRY(lt_launch_fit_gang(launch, &task, most));
    if (h->config.plan && !launch->config->dry_run)
        LT_TRY(lt_launch_autotune_gang(launch, &task, task.count));
    return add_task(launch, task);
}

/* Adds one task per node, or one srun step for all of them. */
static lt_status add_node_tasks(lt_launch *launch, const lt_launch_handle *h)
{
    const bool together =
        launch->place.platform == LT_LAUNCH_SLURM && h->config.policy == LT_LAUNCH_NODE_FAIL_FAST;
    const int step = together ? h->config.count : 1;
    for (int i = 0; i < h->config.count; i += step)
        LT_TRY(add_task(launch, (lt_task){.group = h, .index = i, .count = step}));
    return LT_OK;
}

lt_status lt_launch_create_tasks(lt_launch *launch)
{
    bool joint[LT_LAUNCH_NODE_GANG] = {false};
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next) {
        if (launch->place.platform == LT_LAUNCH_THREADS && !h->config.command)
            continue;
        if (h->config.kind == LT_LAUNCH_NODE_GANG) {
            LT_TRY(add_gang_task(launch, h));
        } else if (!is_in_joint_mpirun(launch, h)) {
            LT_TRY(add_node_tasks(launch, h));
        } else if (h->config.entry) {
            lt_task task = {.group = h};
            return lt_launch_build_command(launch, &task);
        } else if (!joint[h->config.kind]) {
            joint[h->config.kind] = true;
            LT_TRY(add_task(launch, (lt_task){.index = h->config.kind}));
        }
    }
    return LT_OK;
}
