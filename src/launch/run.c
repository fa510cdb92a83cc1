/* A launch: folder, secret, plan, supervision, cleanup. */

#include "base/alloc.h"
#include "base/shared_file.h"
#include "base/token.h"
#include "launch/host_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Resolves --folder, creating it unless this is a dry run. Errors: LT_E_IO, also for a folder that others may write,
 * who could replace the commands. */
static lt_status resolve_given_folder(const lt_launch *launch, char *out)
{
    enum { OURS_ALONE = 0700 };
    const char *given = launch->config->folder;
    const bool dry = launch->config->dry_run;
    const bool made = !dry && !mkdir(given, OURS_ALONE);
    if (dry && access(given, F_OK)) {
        snprintf(out, LT_LAUNCH_PATH, "%s", given);
        return LT_OK;
    }
    if (!made)
        LT_TRY(lt_check_private_folder(given));
    return realpath(given, out) ? LT_OK
                                : lt_fail(LT_E_IO, "launch: %s: %s", given, strerror(errno));
}

/* Returns the parent of a temporary folder: the current folder if a job has several machines, as they do not share
 * /tmp. */
static void choose_temporary_parent(const lt_launch *launch, char *out)
{
    enum { LONGEST = 64 }; /* a socket path has at most 107 bytes */
    const char *base = getenv("TMPDIR");
    if (launch->place.platform > LT_LAUNCH_LOCAL && getcwd(out, LT_LAUNCH_PATH))
        return;
    snprintf(out, LT_LAUNCH_PATH, "%s", base && *base && strlen(base) < LONGEST ? base : "/tmp");
}

/* Creates a folder for this launch's files, separate from the user's; a dry run only names it. */
static lt_status make_folder(lt_launch *launch)
{
    lt_launch_place *place = &launch->place;
    if (launch->config->folder)
        LT_TRY(resolve_given_folder(launch, place->folder));
    else
        choose_temporary_parent(launch, place->folder);
    const int bytes =
        snprintf(place->files, sizeof place->files, "%s/lather-XXXXXX", place->folder);
    if (bytes >= (int)sizeof place->files)
        return lt_fail(LT_E_ARG, "launch: a path of %d bytes, at most %zu: %s", bytes,
                       sizeof place->files - 1, place->folder);
    if (!launch->config->dry_run && !mkdtemp(place->files))
        return lt_fail(LT_E_IO, "launch: %s: %s", place->files, strerror(errno));
    if (!launch->config->folder)
        memcpy(place->folder, place->files, sizeof place->folder);
    return LT_OK;
}

static void LT_PRINTF(2, 3) remove_file(int folder, const char *format, ...)
{
    char name[LT_LAUNCH_PATH];
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    unlinkat(folder, name, 0);
}

/* Removes the files of this launch and its nodes by name, and their folder if it is then empty. */
static void remove_launch_files(const void *context)
{
    static const char *const of_group[] = {"plan", "plan-log", "profile", "flags"};
    const lt_launch *launch = context;
    const int folder = open(launch->place.files, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0)
        return;
    remove_file(folder, "secret");
    remove_file(folder, "program.ini");
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next) {
        for (size_t i = 0; i < sizeof of_group / sizeof *of_group; i++)
            remove_file(folder, "%s.%s", h->config.label, of_group[i]);
        for (int i = 0; i < h->config.count; i++) {
            remove_file(folder, "%s.%d.address", h->config.label, i);
            remove_file(folder, "%s.%d.socket", h->config.label, i);
        }
    }
    close(folder);
    rmdir(launch->place.files);
}

static lt_status write_secret_and_graph(const lt_launch *launch)
{
    char path[LT_LAUNCH_PATH + 16], token[LT_TOKEN_NONCE];
    snprintf(path, sizeof path, "%s/secret", launch->place.files);
    LT_TRY(lt_token_draw(token));
    LT_TRY(lt_token_write(path, token));
    snprintf(path, sizeof path, "%s/program.ini", launch->place.files);
    return lt_program_graph_save(launch->program, path);
}

static void print_gang(const lt_launch *launch, const lt_task *t)
{
    const lt_launch_node_config *c = &t->group->config;
    if (c->plan)
        fprintf(launch->log, "    plan = auto: ranks, at most %d, and flags by plan%s\n", t->count,
                c->plan);
    if (c->runs > 1)
        fprintf(launch->log, "    %d runs\n", c->runs);
}

static void print_dry_run(const lt_launch *launch)
{
    char name[LT_LAUNCH_NAME];
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next) {
        char address[LT_LAUNCH_PATH];
        lt_launch_make_listen_address(&launch->place, h->config.label, 0, address, sizeof address);
        fprintf(launch->log, "%s x %d%s%s\n", h->config.label, h->config.count,
                h->config.kind == LT_LAUNCH_NODE_SERVICE ? " at " : "",
                h->config.kind == LT_LAUNCH_NODE_SERVICE ? address : "");
        if (launch->place.platform == LT_LAUNCH_THREADS && !h->config.command)
            fprintf(launch->log, "    %d threads: %s %s\n", h->config.count,
                    h->config.module ? h->config.module : "a function",
                    h->config.arguments ? h->config.arguments : "");
    }
    for (size_t i = 0; i < launch->tasks; i++) {
        const lt_task *t = &launch->task[i];
        fprintf(launch->log, "%s:", lt_task_name(t, name, sizeof name));
        for (char **word = t->argv; word && *word; word++)
            fprintf(launch->log, " %s", *word);
        fprintf(launch->log, t->grad_accum ? "  (grad-accum %lld)\n" : "\n",
                (long long)t->grad_accum);
        if (t->run)
            print_gang(launch, t);
    }
}

/* Opens the guard, with capacity for one process per node. */
static lt_status open_guard(lt_launch *launch)
{
    size_t nodes = 0;
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next)
        nodes += (size_t)h->config.count;
    const double more = launch->place.platform == LT_LAUNCH_SLURM ? LT_LAUNCH_SLURM_GRACE : 0;
    return lt_guard_open(&launch->guard, nodes, lt_launch_grace_seconds(launch) + more,
                         remove_launch_files, launch);
}

/* Compares the hosts' slots with the gangs'. Hosts of the environment that are too few are left to mpirun. */
static lt_status check_slots(lt_launch *launch)
{
    const int slots = lt_launch_hosts_slots(launch->hosts, true), limit = launch->config->slots;
    for (const lt_launch_handle *h = launch->program->first; h; h = h->next) {
        const int ranks = limit && limit < h->config.count ? limit : h->config.count;
        if (h->config.kind != LT_LAUNCH_NODE_GANG || h->config.plan || ranks <= slots)
            continue;
        if (launch->hosts->is_given)
            return lt_fail(LT_E_ARG, "launch: %s needs %d ranks, but --hosts has %d slots",
                           h->config.label, ranks, slots);
        fprintf(launch->log,
                "launch| %s: %d slots for the %d ranks of %s: mpirun chooses their hosts\n",
                launch->hosts->source, slots, ranks, h->config.label);
        lt_launch_hosts_free(&launch->hosts);
        return LT_OK;
    }
    return LT_OK;
}

static lt_status open_hosts(lt_launch *launch, const lt_launch_hosts_config *config)
{
    if (!config)
        return LT_OK;
    if (launch->place.platform != LT_LAUNCH_MPIRUN)
        return config->hosts || config->spares
                   ? lt_fail(LT_E_ARG, "launch: hosts are for --on mpirun")
                   : LT_OK;
    const lt_status st = lt_launch_hosts_open(&launch->hosts, config);
    if (st && !config->hosts && !config->spares) {
        fprintf(launch->log, "launch| %s: mpirun chooses the hosts\n", lt_error_message());
        return LT_OK;
    }
    return st || !launch->hosts ? st : check_slots(launch);
}

/* Returns false if there are other machines and all are left out: mpirun may reach an allocation by other means than a
 * shell. */
static bool has_reached_another(const lt_launch_hosts *hosts)
{
    int others = 0;
    for (int i = 0; i < hosts->count; i++) {
        if (!hosts->host[i].is_local && !hosts->host[i].is_out)
            return true;
        others += !hosts->host[i].is_local;
    }
    return !others;
}

/* Checks the hosts before the first start. */
static lt_status check_hosts(lt_launch *launch)
{
    int back;
    if (!launch->hosts || !launch->hosts->is_checked)
        return LT_OK;
    LT_TRY(lt_launch_hosts_check(launch, NULL, &back));
    if (!launch->hosts->is_given && !has_reached_another(launch->hosts)) {
        fprintf(launch->log, "launch| %s: mpirun chooses the hosts\n", launch->hosts->source);
        lt_launch_hosts_free(&launch->hosts);
        return LT_OK;
    }
    lt_launch_hosts_use_spares(launch->hosts, launch->log);
    return LT_OK;
}

static lt_status launch_in_folder(lt_launch *launch)
{
    if (launch->config->dry_run) {
        LT_TRY(lt_launch_create_tasks(launch));
        print_dry_run(launch);
        return LT_OK;
    }
    LT_TRY(open_guard(launch));
    LT_TRY(check_hosts(launch));
    LT_TRY(lt_launch_create_tasks(launch));
    LT_TRY(write_secret_and_graph(launch));
    return lt_launch_supervise(launch);
}

lt_status lt_job_graph_launch(lt_job_graph *program, const lt_launch_config *config)
{
    return lt_job_graph_launch_on(program, config, NULL);
}

lt_status lt_job_graph_launch_on(lt_job_graph *program, const lt_launch_config *config,
                                 const lt_launch_hosts_config *hosts)
{
    lt_launch launch = {
        .program = program, .config = config, .log = config->log ? config->log : stdout};
    launch.place.platform = config->platform;
    LT_TRY(lt_program_graph_check(program));
    if (config->slots < 0)
        return lt_fail(LT_E_ARG, "launch: %d slots, want 0 or more", config->slots);
    lt_status st = open_hosts(&launch, hosts);
    if (!st)
        st = make_folder(&launch);
    if (st) {
        lt_launch_hosts_free(&launch.hosts);
        return st;
    }
    st = launch_in_folder(&launch);
    char *why = st ? lt_strdup(lt_error_message()) : NULL;
    if (!config->dry_run)
        remove_launch_files(&launch);
    lt_guard_close(&launch.guard);
    for (size_t i = 0; i < launch.tasks; i++) {
        lt_free((void *)launch.task[i].argv);
        lt_free(launch.task[i].ended);
        lt_free(launch.task[i].host);
    }
    lt_free(launch.task);
    lt_launch_hosts_free(&launch.hosts);
    const lt_status result = st ? lt_fail(st, "%s", why ? why : "") : LT_OK;
    lt_free(why);
    return result;
}
