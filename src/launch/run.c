/* A launch from its folder to its end. */

#include "base/alloc.h"
#include "base/commit.h"
#include "base/token.h"
#include "launch/launch.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static lt_status make_folder(lt_launch *launch)
{
    enum { OURS_ALONE = 0700, LONGEST = 64 };
    const char *given = launch->config->folder, *base = getenv("TMPDIR");
    char *folder = launch->place.folder;
    if (given && (mkdir(given, OURS_ALONE) && errno != EEXIST))
        return lt_fail(LT_E_IO, "launch: %s: %s", given, strerror(errno));
    if (given)
        return realpath(given, folder) ? LT_OK
                                       : lt_fail(LT_E_IO, "launch: %s: %s", given, strerror(errno));
    if (launch->place.platform > LT_LAUNCH_LOCAL && getcwd(folder, LT_LAUNCH_PATH / 2))
        strcat(folder,
               "/lather-XXXXXX"); /* the machines of a job share its folder, not their /tmp */
    else                          /* a socket's path has at most 107 bytes */
        snprintf(folder, LT_LAUNCH_PATH, "%s/lather-XXXXXX",
                 base && *base && strlen(base) < LONGEST ? base : "/tmp");
    return mkdtemp(folder) ? LT_OK : lt_fail(LT_E_IO, "launch: %s: %s", folder, strerror(errno));
}

/* What nodes left there; a folder that was given stays. */
static void clean(const lt_launch *launch)
{
    static const char *const ours[] = {".address", ".socket",   "secret",   "program.ini",
                                       ".plan",    ".plan-log", ".profile", ".flags"};
    DIR *dir = opendir(launch->place.folder);
    const struct dirent *d;
    while (dir && (d = readdir(dir))) {
        const size_t bytes = strlen(d->d_name);
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
            const size_t tail = strlen(ours[i]);
            if (bytes >= tail && !strcmp(d->d_name + bytes - tail, ours[i]))
                unlinkat(dirfd(dir), d->d_name, 0);
        }
    }
    if (dir)
        closedir(dir);
    if (!launch->config->folder)
        rmdir(launch->place.folder);
}

static lt_status prepare(const lt_launch *launch)
{
    char path[LT_LAUNCH_PATH + 16], token[LT_TOKEN_NONCE];
    snprintf(path, sizeof path, "%s/secret", launch->place.folder);
    LT_TRY(lt_token_draw(token));
    LT_TRY(lt_token_write(path, token));
    snprintf(path, sizeof path, "%s/program.ini", launch->place.folder);
    return lt_program_graph_save(launch->program, path);
}

static void write_gang(const lt_launch *launch, const lt_task *t)
{
    const lt_node_config *c = &t->group->config;
    if (c->plan)
        fprintf(launch->log, "    plan = auto: ranks, at most %d, and flags by plan%s\n", t->count,
                c->plan);
    if (c->runs > 1)
        fprintf(launch->log, "    %d runs\n", c->runs);
}

static void write_plan(const lt_launch *launch)
{
    char name[LT_LAUNCH_NAME];
    for (const lt_handle *h = launch->program->first; h; h = h->next) {
        char address[LT_LAUNCH_PATH];
        lt_launch_listen_address(&launch->place, h->config.label, 0, address, sizeof address);
        fprintf(launch->log, "%s x %d%s%s\n", h->config.label, h->config.count,
                h->config.kind == LT_NODE_SERVICE ? " at " : "",
                h->config.kind == LT_NODE_SERVICE ? address : "");
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
            write_gang(launch, t);
    }
}

static lt_status launch_in_folder(lt_launch *launch)
{
    LT_TRY(lt_launch_plan(launch));
    if (launch->config->dry_run) {
        write_plan(launch);
        return LT_OK;
    }
    LT_TRY(prepare(launch));
    return lt_launch_supervise(launch);
}

lt_status lt_program_graph_launch(lt_program_graph *program, const lt_launch_config *config)
{
    lt_launch launch = {
        .program = program, .config = config, .log = config->log ? config->log : stdout};
    launch.place.platform = config->platform;
    LT_TRY(lt_program_graph_check(program));
    if (config->slots < 0)
        return lt_fail(LT_E_ARG, "launch: %d slots", config->slots);
    LT_TRY(make_folder(&launch));
    const lt_status st = launch_in_folder(&launch);
    char *why = st ? lt_strdup(lt_error_message()) : NULL;
    clean(&launch);
    for (size_t i = 0; i < launch.tasks; i++) {
        lt_free((void *)launch.task[i].argv);
        lt_free(launch.task[i].ended);
    }
    lt_free(launch.task);
    const lt_status result = st ? lt_fail(st, "%s", why ? why : "") : LT_OK;
    lt_free(why);
    return result;
}
