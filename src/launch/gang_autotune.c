/* Chooses the ranks of a gang: runs its command with `plan` before the gang starts, and again between its runs, with
 * the finished ones as --from, and takes the ranks and flags of the best candidate. The flags are written to a file of
 * the launch's folder, as every node expands the command independently. */

#include "base/alloc.h"
#include "base/os.h"
#include "launch/launch.h"

#include "lather/detail/json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ARGS = 512, TEXT = LT_LAUNCH_PATH };

void lt_launch_flags_path(const lt_launch_place *place, const char *label, char *out, size_t size)
{
    snprintf(out, size, "%s/%s.flags", place->files, label);
}

/* Command line of the command `plan`, being built; the first error sticks. */
typedef struct argv_list {
    char **word; /* [MOST_ARGS], NULL after the last */
    size_t count;
    lt_status status;
} argv_list;

static void LT_PRINTF(2, 3) add_argument(argv_list *w, const char *format, ...)
{
    char text[2 * TEXT];
    va_list list;
    if (w->status)
        return;
    if (w->count + 1 >= MOST_ARGS) {
        w->status = lt_fail(LT_E_ARG, "launch: plan = auto: more than %d arguments", MOST_ARGS - 1);
        return;
    }
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    w->word[w->count] = lt_strdup(text);
    w->status = w->word[w->count] ? LT_OK : LT_E_NOMEM;
    w->count += !w->status;
}

/* --- The command line --- */

/* Returns the value of a flag, given as --flag=value or as two words; NULL if absent. */
static const char *flag_value(char *const *word, const char *flag)
{
    const size_t bytes = strlen(flag);
    for (; *word; word++) {
        if (strncmp(*word, flag, bytes) != 0)
            continue;
        if ((*word)[bytes] == '=')
            return *word + bytes + 1;
        if (!(*word)[bytes] && word[1])
            return word[1];
    }
    return NULL;
}

static void store_service(void *context, const lt_launch_handle *service)
{
    *(const lt_launch_handle **)context = service;
}

/* Expands a task's command; *out is for lt_free(). Errors: LT_E_ARG (it needs the address of a service). */
static lt_status expand_command(const lt_launch *launch, const lt_task *task, int ranks,
                                char ***out)
{
    const lt_launch_node_config *c = &task->group->config;
    const lt_launch_values v = {.program = launch->program,
                                .group = task->group,
                                .place = &launch->place,
                                .count = ranks,
                                .run = task->run,
                                .grad_accum = 1};
    const lt_launch_handle *service = NULL;
    char *expanded = NULL;
    char *text =
        c->arguments ? lt_format("%s %s", c->command, c->arguments) : lt_strdup(c->command);
    lt_status st = text ? lt_launch_visit_used_services(&v, text, store_service, (void *)&service)
                        : LT_E_NOMEM;
    if (!st && service)
        st = lt_fail(LT_E_ARG,
                     "launch: %s: plan = auto runs before %s has an address, which its command "
                     "needs",
                     c->label, service->config.label);
    if (!st)
        st = lt_launch_expand_placeholders(&v, text, &expanded);
    if (!st)
        st = lt_launch_split_argv(out, expanded);
    lt_free(text);
    lt_free(expanded);
    return st;
}

/* Adds the numbers of ranks that keep the global batch, and their grad-accum. Errors: those of lt_launch_compute_gang_size(). */
static lt_status add_rank_choices(argv_list *w, const lt_launch_node_config *c, int most)
{
    enum { MOST = 16 }; /* values of --vary */
    char ranks[TEXT / 4] = "", accum[TEXT / 4] = "";
    int64_t grad_accum = 0;
    if (!c->global_batch) {
        add_argument(w, "--ranks=1..%d", most);
        return LT_OK;
    }
    LT_TRY(lt_launch_compute_gang_size(c, most, &most, &grad_accum));
    int found[MOST] = {0}, count = 0; /* descending */
    for (int r = most; r >= 1 && count < MOST; r--)
        if (c->global_batch % (c->batch_size * r) == 0)
            found[count++] = r;
    while (count--) {
        const size_t at = strlen(ranks), to = strlen(accum);
        snprintf(ranks + at, sizeof ranks - at, "%s%d", at ? "," : "", found[count]);
        snprintf(accum + to, sizeof accum - to, "%s%" PRId64, to ? "," : "",
                 c->global_batch / (c->batch_size * found[count]));
    }
    add_argument(w, "--ranks=%s", ranks);
    add_argument(w, "--vary=grad-accum=%s", accum);
    add_argument(w, "--global-batch=%" PRId64, c->global_batch);
    return LT_OK;
}

/* Builds the command line PROGRAM plan FLAGS... */
static lt_status make_plan_argv(argv_list *w, const lt_launch *launch, const lt_task *task,
                                char *const *command, int most)
{
    const lt_launch_node_config *c = &task->group->config;
    char **own = NULL;
    add_argument(w, "%s", command[0]);
    add_argument(w, "plan");
    for (size_t i = 1; command[i]; i++)
        add_argument(w, "%s", command[i]);
    LT_TRY(add_rank_choices(w, c, most));
    LT_TRY(lt_launch_split_argv(&own, c->plan));
    if (!flag_value(own, "--step-profile"))
        add_argument(w, "--step-profile=%s/%s.profile", launch->place.files, c->label);
    for (size_t i = 0; own[i]; i++)
        add_argument(w, "%s", own[i]);
    lt_free((void *)own);
    if (task->ended) { /* runs are better measurements than pilots */
        add_argument(w, "--pilots=off");
        add_argument(w, "--extrapolate");
    }
    for (const char *at = task->ended; at && *at; at += strspn(at, "\n")) {
        const int bytes = (int)strcspn(at, "\n");
        add_argument(w, "--from=%.*s", bytes, at);
        at += bytes;
    }
    add_argument(w, "--json=%s/%s.plan", launch->place.files, c->label);
    return w->status;
}

/* --- Running it --- */

/* Runs a child that ends with this process, its output going to a file; returns its status. */
static int run_child(char *const *argv, const char *log)
{
    const pid_t pid = fork();
    if (!pid) {
        sigset_t none;
        sigemptyset(&none);
        lt_os_die_with_parent(SIGTERM);
        sigprocmask(SIG_SETMASK, &none, NULL);
        const int in = open("/dev/null", O_RDONLY),
                  out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
            _exit(1);
        execvp(argv[0], argv);
        dprintf(2, "%s: %s\n", argv[0], strerror(errno));
        _exit(1);
    }
    return pid < 0 ? -1 : lt_os_wait(pid);
}

/* Returns the last line of a file that is not empty. */
static const char *last_line(const char *path, char *out, size_t size)
{
    char line[TEXT];
    FILE *file = fopen(path, "r");
    snprintf(out, size, "no output");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line)
            snprintf(out, size, "%s", line);
    }
    if (file)
        fclose(file);
    return out;
}

/* --- The plan --- */

/* Returns a member's number, or NaN if absent; the next function its text, or "?". */
static double json_number(const lt_json_value *object, const char *key)
{
    const lt_json_value *v = lt_json_member(object, key);
    return v && v->type == LT_JSON_NUMBER ? v->number : (double)NAN;
}

static const char *json_text(const lt_json_value *object, const char *key)
{
    const lt_json_value *v = lt_json_member(object, key);
    return v && v->type == LT_JSON_STRING ? v->string : "?";
}

/* Logs "trainer: plan: 2 of at most 4 ranks, sgd, flat: 12 ms a step (measured), ..." */
static void log_choice(const lt_launch *launch, const lt_task *task, const lt_json_value *best,
                       const lt_json_value *next, int most)
{
    const double ms = 1e3, seconds = json_number(best, "seconds");
    const bool is_known = isfinite(seconds);
    const lt_json_value *step = lt_json_member(best, "step_seconds");
    fprintf(launch->log, "launch| %s: plan: %d of at most %d ranks, %s: %.4g ms a step (%s)",
            task->group->config.label, task->count, most, json_text(best, "setting"),
            ms * json_number(step, "value"), json_text(step, "rests_on"));
    fprintf(launch->log, ", %.4g s%s (%s)", is_known ? seconds : json_number(best, "epoch_seconds"),
            is_known ? "" : " an epoch", json_text(lt_json_member(best, "steps"), "why"));
    if (next)
        fprintf(launch->log, "; next: %.0f ranks, %.4g ms a step", json_number(next, "ranks"),
                ms * json_number(lt_json_member(next, "step_seconds"), "value"));
    fprintf(launch->log, "\n");
    fflush(launch->log);
}

static lt_status write_flags(const lt_launch *launch, const lt_task *task,
                             const lt_json_value *best)
{
    char path[TEXT + 64];
    const lt_json_value *flags = lt_json_member(best, "flags");
    lt_launch_flags_path(&launch->place, task->group->config.label, path, sizeof path);
    FILE *file = fopen(path, "we");
    if (!file)
        return lt_fail(LT_E_IO, "launch: cannot write %s", path);
    for (const lt_json_value *v = flags ? flags->child : NULL; v; v = v->next)
        fprintf(file, "%s\n", v->string ? v->string : "");
    const bool failed = ferror(file) != 0;
    return fclose(file) || failed ? lt_fail(LT_E_IO, "launch: cannot write %s", path) : LT_OK;
}

static lt_status apply_best(const lt_launch *launch, lt_task *task, const lt_json_value *root,
                            int most)
{
    const lt_json_value *all = lt_json_member(root, "candidates");
    const lt_json_value *best = all ? all->child : NULL;
    const lt_launch_node_config *c = &task->group->config;
    int64_t ranks = 0;
    if (!best || lt_json_integer(best, "ranks", &ranks) || ranks < 1 || ranks > most)
        return lt_fail(LT_E_FORMAT, "launch: %s: the plan has no candidate with 1 to %d ranks",
                       c->label, most);
    LT_TRY(lt_launch_compute_gang_size(c, (int)ranks, &task->count, &task->grad_accum));
    LT_TRY(write_flags(launch, task, best));
    log_choice(launch, task, best, best->next, most);
    return LT_OK;
}

static lt_status run_plan(const lt_launch *launch, lt_task *task, char *const *command, int most)
{
    const char *label = task->group->config.label;
    char path[TEXT + 64], log[TEXT + 64], why[TEXT];
    argv_list w = {.word = lt_alloc(MOST_ARGS, sizeof *w.word)};
    lt_json *json = NULL;
    snprintf(path, sizeof path, "%s/%s.plan", launch->place.files, label);
    snprintf(log, sizeof log, "%s/%s.plan-log", launch->place.files, label);
    lt_status st = w.word ? make_plan_argv(&w, launch, task, command, most) : LT_E_NOMEM;
    if (!st && run_child(w.word, log))
        st = lt_fail(LT_E_COMM, "launch: %s: plan = auto: %s", label,
                     last_line(log, why, sizeof why));
    if (!st)
        st = lt_json_load(&json, path);
    if (!st)
        st = apply_best(launch, task, lt_json_root(json), most);
    lt_json_free(&json);
    for (size_t i = 0; i < w.count; i++)
        lt_free(w.word[i]);
    lt_free((void *)w.word);
    return st;
}

lt_status lt_launch_autotune_gang(const lt_launch *launch, lt_task *task, int most)
{
    char **command = NULL;
    LT_TRY(expand_command(launch, task, most, &command));
    const lt_status st = run_plan(launch, task, command, most);
    lt_free((void *)command);
    return st;
}

lt_status lt_launch_record_run(const lt_launch *launch, lt_task *task)
{
    char **command = NULL;
    LT_TRY(expand_command(launch, task, task->count, &command));
    const char *output = flag_value(command, "--output");
    const char *ended = task->ended ? task->ended : "";
    char *longer = output ? lt_format("%s%s%s", ended, *ended ? "\n" : "", output) : NULL;
    lt_free((void *)command);
    if (!output)
        return LT_OK;
    if (!longer)
        return LT_E_NOMEM;
    lt_free(task->ended);
    task->ended = longer;
    return LT_OK;
}
