/* A pilot: a short run of a candidate, started by the command line that is printed for it. Its cost and budget,
 * and the uncertainty of a candidate, which decides whether one is worth it. ADR 0042. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- Uncertainty --- */

/* Factor by which the seconds of a step may be off: the model is within 2 of measured steps, within 1.5 once scaled to
 * runs of other ranks (docs/results/plan.md). */
static double step_uncertainty(const plan_estimate *step)
{
    static const double factor[] = {1.05, 1.25, 1.5, 2, 2};
    const double errors = 2, measured = 1 + errors * step->spread;
    return step->basis == PLAN_MEASURED && measured > factor[0] ? measured : factor[step->basis];
}

/* Lower bound of the steps to the goal: of a lossy candidate those of its lossless counterpart; in the best's class
 * as many samples as that one needs, as a pilot would measure the noise scale. NaN: unknown. */
static double steps_lower_bound(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    const plan_config *own = &c->config, *b = &best->config;
    const plan_candidate *lossless = own->is_lossless ? NULL : lt_plan_find_lossless(p, own);
    if (isfinite(c->steps.value))
        return c->steps.value;
    if (lossless)
        return lossless->steps.value;
    return own->is_lossless && b->is_lossless && own->convergence == b->convergence
               ? best->steps.value * (double)b->batch / (double)own->batch
               : (double)NAN;
}

/* True if candidate and best both have seconds of a run, or both only seconds of an epoch that is worth the same. */
static bool is_comparable(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    return isfinite(best->seconds)
               ? isfinite(steps_lower_bound(p, c))
               : !isfinite(c->seconds) && c->config.is_lossless == best->config.is_lossless;
}

double lt_plan_objective_bound(const plan *p, const plan_candidate *c)
{
    plan_candidate least = *c;
    if (isfinite(p->table.item[0].seconds))
        least.seconds = c->step.value * steps_lower_bound(p, c);
    return lt_plan_objective(p, &least) / step_uncertainty(&c->step);
}

bool lt_plan_may_be_best(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    if (*c->why || !is_comparable(p, c) || lt_plan_is_beyond_pilots(p, c))
        return false;
    return c == best
           || lt_plan_objective_bound(p, c)
                  < lt_plan_objective(p, best) * step_uncertainty(&best->step);
}

/* --- Cost and budget --- */

double lt_plan_run_cost(const plan_candidate *c)
{
    const double steps =
        isfinite(c->steps.value) ? c->steps.value : lt_plan_steps_from_flags(&c->config);
    return lt_plan_step_cost(c) * steps;
}

/* Returns --pilot-budget of the rank-seconds of the cheapest run that may yet be chosen. */
double lt_plan_budget(const plan *p)
{
    const plan_table *t = &p->table;
    double least = lt_plan_run_cost(t->item);
    for (size_t i = 1; i < t->kept; i++) {
        const double cost = lt_plan_run_cost(&t->item[i]);
        if (lt_plan_may_be_best(p, &t->item[i]) && cost > 0)
            least = fmin(least, cost);
    }
    return p->request.pilot_share * least;
}

double lt_plan_budget_left(const plan *p)
{
    return lt_plan_budget(p) - p->pilots.spent - p->profile.paid;
}

/* Returns startup seconds of the pilot with the nearest number of ranks, scaled up for more ranks on its cores. */
double lt_plan_startup_seconds(const plan *p, int ranks)
{
    double found = 1 /* before the first pilot */, nearest = HUGE_VAL;
    for (int i = 0; i < p->pilots.count; i++) {
        const plan_pilot *q = &p->pilots.item[i];
        const double distance = fabs(log((double)q->ranks / ranks));
        const double start = q->wall - (double)q->steps * q->measured;
        if (!*q->why && start > 0 && distance < nearest) {
            nearest = distance;
            found = start * fmax(1, (double)ranks / q->ranks);
        }
    }
    return found;
}

/* Returns a pilot's steps: warm-up and whole periods, for half a second or an eighth of the remaining budget. */
static int64_t choose_timed_steps(const plan *p, const plan_candidate *c)
{
    const double least = 10, most = 200;
    const double seconds = fmin(0.5, lt_plan_budget_left(p) / (8 * c->config.setup.ranks));
    const int64_t period = lt_plan_repeat_period(&c->config.setup);
    const double wanted = fmin(fmax(seconds / c->step.value, least), most);
    return PLAN_WARM_STEPS + period * (int64_t)ceil(wanted / (double)period);
}

double lt_plan_pilot_cost(const plan *p, const plan_candidate *c, int64_t steps)
{
    const int ranks = c->config.setup.ranks;
    const double count = (double)(steps ? steps : choose_timed_steps(p, c));
    return ranks * (lt_plan_startup_seconds(p, ranks) + count * c->step.value);
}

/* --- The command line --- */

/* Removes --resume with its value: a pilot starts from scratch. */
static void drop_resume(plan_argv *w)
{
    static const char flag[] = "--resume";
    const size_t bytes = sizeof flag - 1;
    int kept = 0;
    for (int i = 0; i < w->count; i++) {
        if (strncmp(w->word[i], flag, bytes) != 0) {
            w->word[kept++] = w->word[i];
            continue;
        }
        const bool has_value = !w->word[i][bytes] && i + 1 < w->count;
        lt_free(w->word[i]);
        if (has_value)
            lt_free(w->word[++i]);
    }
    w->word[w->count = kept] = NULL;
}

static lt_status make_argv(plan_argv *w, const plan *p, const plan_candidate *c,
                           const plan_pilot *q)
{
    static const char *const mpi[] = {"env", "OMPI_ALLOW_RUN_AS_ROOT=1",
                                      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                                      "OMPI_MCA_rmaps_base_oversubscribe=1"};
    static const char *const quiet[] = {"--overwrite", "--eval-every=-1", "--checkpoint-every=0",
                                        "--no-tensorboard", "--progress=off"};
    const lt_plan_setup *u = &c->config.setup;
    const double steps = lt_plan_steps_from_flags(&c->config);
    char program[PLAN_TEXT];
    const bool known = lt_os_program_path(program, sizeof program);
    for (size_t i = 0; u->ranks > 1 && i < sizeof mpi / sizeof *mpi;
         i++) /* mpirun: allow root, and more ranks than cores */
        LT_TRY(lt_plan_argv_add(w, "%s", mpi[i]));
    LT_TRY(lt_plan_launch_argv(p, c, known ? program : p->path, w));
    drop_resume(w);
    LT_TRY(lt_plan_argv_add(w, "--max-steps=%lld", (long long)q->steps));
    if (steps > 0) /* learning rates are those of the whole run */
        LT_TRY(lt_plan_argv_add(w, "--epochs=%.17g", steps / (double)c->config.epoch_steps));
    LT_TRY(lt_plan_argv_add(w, "--output=%s", q->folder));
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++)
        LT_TRY(lt_plan_argv_add(w, "%s", quiet[i]));
    if (p->trainer->line.args.evaluation.early_stop) /* pilots do not evaluate */
        LT_TRY(lt_plan_argv_add(w, "--early-stop=off"));
    if (*p->request.goal.metric && c->config.is_lossless && !u->mesh.data
        && (u->ranks > 1 || u->grad_accum > 1))
        LT_TRY(lt_plan_argv_add(w, "--gradient-noise"));
    return LT_OK;
}

/* --- The process --- */

static int spawn_process(char *const *argv, const char *log, pid_t *pid)
{
    const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log, flags, 0666);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    const int error = posix_spawnp(pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

/* Returns the process's exit status. Sends SIGTERM after `seconds`, then SIGKILL, and then sets *late. */
static int wait_or_kill(pid_t pid, double seconds, bool *late)
{
    const double grace = 5;
    const struct timespec tick = {.tv_nsec = 5000000};
    const double begin = lt_clock_seconds();
    int status = 0;
    pid_t ended;
    *late = false;
    while ((ended = waitpid(pid, &status, WNOHANG)) != pid) {
        if (ended < 0 && errno != EINTR)
            return -1; /* another thread has waited for it */
        const double now = lt_clock_seconds() - begin;
        if (now > seconds && !*late)
            kill(pid, SIGTERM);
        if (now > seconds + grace)
            kill(pid, SIGKILL);
        *late = *late || now > seconds;
        nanosleep(&tick, NULL);
    }
    return status;
}

/* Runs the pilot's process to its end; sets q->why to the reason if it failed. */
static void run_pilot_process(const plan *p, char *const *argv, plan_pilot *q)
{
    char log[sizeof q->folder + 8];
    pid_t pid;
    bool late;
    const double begin = lt_clock_seconds(), most = lt_plan_budget_left(p) / q->ranks;
    snprintf(log, sizeof log, "%s.log", q->folder);
    const int error = spawn_process(argv, log, &pid);
    if (error) {
        snprintf(q->why, sizeof q->why, "cannot start %s: %s", argv[0], strerror(error));
        return;
    }
    const int status = wait_or_kill(pid, most, &late);
    q->wall = lt_clock_seconds() - begin;
    q->spent = q->wall * q->ranks;
    if (late)
        snprintf(q->why, sizeof q->why, "stopped after %.3g s, the rest of the budget: see %s",
                 q->wall, log);
    else if (!WIFEXITED(status) || WEXITSTATUS(status))
        snprintf(q->why, sizeof q->why, "%s %d: see %s",
                 WIFEXITED(status) ? "exit status" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), log);
    else if (!p->options.pilot_dir)
        unlink(log);
}

/* Adds the pilot's run folder to the runs; sets q->why if it has no usable step. */
static lt_status read_pilot(plan *p, plan_pilot *q)
{
    const lt_status st = lt_plan_read_pilot(&p->runs, q->folder, p, q->of_loss);
    if (st == LT_E_NOMEM)
        return st;
    q->measured = st ? 0 : p->runs.run[p->runs.count - 1].seconds;
    if (st)
        snprintf(q->why, sizeof q->why, "%s", lt_error_message());
    else if (!(q->measured > 0))
        snprintf(q->why, sizeof q->why, "no step after the first %d", PLAN_WARM_STEPS);
    return LT_OK;
}

lt_status lt_plan_run_pilot(plan *p, plan_candidate *c, int64_t steps, bool of_loss)
{
    plan_pilots *all = &p->pilots;
    plan_pilot *q = &all->item[all->count];
    plan_argv w = {0};
    *q = (plan_pilot){.ranks = c->config.setup.ranks,
                      .steps = steps ? steps : choose_timed_steps(p, c),
                      .predicted = c->step.value,
                      .of_loss = of_loss};
    snprintf(q->label, sizeof q->label, "%s", c->config.label);
    snprintf(q->folder, sizeof q->folder, "%s/pilot-%d", all->folder, all->count + 1);
    c->is_tried = true;
    lt_status st = make_argv(&w, p, c, q);
    if (!st)
        run_pilot_process(p, w.word, q);
    lt_plan_argv_free(&w);
    if (!st && !*q->why)
        st = read_pilot(p, q);
    all->spent += q->spent;
    all->count++;
    return st;
}
