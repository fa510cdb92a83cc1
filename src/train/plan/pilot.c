/* A pilot: a short run of a candidate, started as the printed command would start it; what it costs, of which budget; and what of a
 * candidate is known so little that one may tell. ADR 0042. */

#include "base/clock.h"
#include "planner.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* --- What is not known --- */

/* By so much the seconds of a candidate may be off, either way: the model was within a factor of 2 of what steps took, scaled to
 * runs of other ranks within 1.5 (docs/results/plan.md). */
static double doubt(const plan_estimate *step)
{
    static const double factor[] = {1.05, 1.25, 1.5, 2, 2};
    const double errors = 2, measured = 1 + errors * step->spread;
    return step->trust == PLAN_MEASURED && measured > factor[0] ? measured : factor[step->trust];
}

/* Steps that it takes at the least: of what loses gradients those of the course that loses none; else as many samples as
 * the best one takes, where a pilot would measure the noise scale. NaN: nothing says it. */
static double least_steps(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    const plan_setting *s = &c->setting, *b = &best->setting;
    const plan_candidate *lossless = s->is_exact ? NULL : lt_plan_find_lossless(p, s);
    if (isfinite(c->steps.value))
        return c->steps.value;
    if (lossless)
        return lossless->steps.value;
    return s->is_exact && b->is_exact && s->converge == b->converge
               ? best->steps.value * (double)b->batch / (double)s->batch
               : (double)NAN;
}

/* Whether its seconds may be held against the best one's: both of a run, or both of an epoch that is worth the same. */
static bool is_comparable(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    return isfinite(best->seconds)
               ? isfinite(least_steps(p, c))
               : !isfinite(c->seconds) && c->setting.is_exact == best->setting.is_exact;
}

/* What the goal minimises, at the least. */
double lt_plan_least_key(const plan *p, const plan_candidate *c)
{
    plan_candidate least = *c;
    if (isfinite(p->table.item[0].seconds))
        least.seconds = c->step.value * least_steps(p, c);
    return lt_plan_key(p, &least) / doubt(&c->step);
}

/* Its least seconds are below the best one's largest. */
bool lt_plan_may_be_best(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    if (*c->why || !is_comparable(p, c) || lt_plan_is_out_of_reach(p, c))
        return false;
    return c == best || lt_plan_least_key(p, c) < lt_plan_key(p, best) * doubt(&best->step);
}

/* --- What it may cost --- */

/* Rank-seconds of a candidate's run; 0: not known. */
double lt_plan_run_cost(const plan_candidate *c)
{
    const double steps =
        isfinite(c->steps.value) ? c->steps.value : lt_plan_flag_steps(&c->setting);
    return c->setting.setup.ranks * c->step.value * steps;
}

/* Of the cheapest run that may yet be chosen, as what is paid is a share of the one that is. */
static double least_run_cost(const plan *p)
{
    const plan_table *t = &p->table;
    double least = lt_plan_run_cost(t->item);
    for (size_t i = 1; i < t->kept; i++) {
        const double cost = lt_plan_run_cost(&t->item[i]);
        if (lt_plan_may_be_best(p, &t->item[i]) && cost > 0)
            least = fmin(least, cost);
    }
    return least;
}

double lt_plan_budget(const plan *p)
{
    return p->request.pilot_share * least_run_cost(p);
}

/* The profile is paid from the budget too, where this plan measured it. */
double lt_plan_budget_left(const plan *p)
{
    return lt_plan_budget(p) - p->pilots.spent - p->profile.paid;
}

/* Of the pilot with the nearest number of ranks; more of them start on the same cores. */
double lt_plan_start_seconds(const plan *p, int ranks)
{
    const double usual = 1;
    double found = usual, nearest = HUGE_VAL;
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

/* Steps that are timed: half a second of them, or an eighth of what is left; whole rounds of roots and of local steps, as a part
 * of one has too many of them or too few. */
static int64_t steps_of(const plan *p, const plan_candidate *c)
{
    const double least = 10, most = 200;
    const double seconds = fmin(0.5, lt_plan_budget_left(p) / (8 * c->setting.setup.ranks));
    const int64_t round = lt_plan_period(&c->setting.setup);
    const double wanted = fmin(fmax(seconds / c->step.value, least), most);
    return PLAN_WARM_STEPS + round * (int64_t)ceil(wanted / (double)round);
}

double lt_plan_pilot_cost(const plan *p, const plan_candidate *c, int64_t steps)
{
    const int ranks = c->setting.setup.ranks;
    const double count = (double)(steps ? steps : steps_of(p, c));
    return ranks * (lt_plan_start_seconds(p, ranks) + count * c->step.value);
}

/* --- A run --- */

/* A pilot begins anew, whatever the run does. */
static void drop_resume(plan_words *w)
{
    static const char flag[] = "--resume";
    for (int i = 0; i < w->count; i++) {
        const bool is_it = !strncmp(w->word[i], flag, strlen(flag));
        const int words = !is_it ? 0 : w->word[i][strlen(flag)] || i + 1 == w->count ? 1 : 2;
        for (int k = 0; k < words; k++)
            free(w->word[i + k]);
        memmove(w->word + i, w->word + i + words,
                (size_t)(w->count - i - words + 1) * sizeof *w->word);
        w->count -= words;
        i -= words > 0;
    }
}

static lt_status add_words(plan_words *w, const plan *p, const plan_candidate *c,
                           const plan_pilot *q)
{
    const lt_plan_setup *u = &c->setting.setup;
    char program[PLAN_TEXT];
    const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
    program[bytes > 0 ? bytes : 0] = 0;
    LT_TRY(lt_plan_start_words(p, c, bytes > 0 ? program : p->path, w));
    drop_resume(w);
    LT_TRY(lt_plan_add_word(w, "--max-steps=%lld", (long long)q->steps));
    if (lt_plan_flag_steps(&c->setting) > 0) /* rates are those of the whole run */
        LT_TRY(lt_plan_add_word(w, "--epochs=%.17g",
                                lt_plan_flag_steps(&c->setting) / (double)c->setting.epoch_steps));
    LT_TRY(lt_plan_add_word(w, "--output=%s", q->folder));
    LT_TRY(lt_plan_add_word(w, "--overwrite"));
    LT_TRY(lt_plan_add_word(w, "--eval-every=-1"));
    LT_TRY(lt_plan_add_word(w, "--checkpoint-every=0"));
    LT_TRY(lt_plan_add_word(w, "--no-tensorboard"));
    LT_TRY(lt_plan_add_word(w, "--progress=off"));
    if (*p->request.goal.metric && c->setting.is_exact && !u->mesh.data
        && (u->ranks > 1 || u->grad_accum > 1))
        LT_TRY(lt_plan_add_word(w, "--gradient-noise"));
    return LT_OK;
}

/* The environment, in which mpirun starts more ranks than cores, for root too. */
static char **environment(char *const *now)
{
    static char more[][48] = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                              "OMPI_MCA_rmaps_base_oversubscribe=1"};
    const size_t own = sizeof more / sizeof *more;
    size_t count = 0;
    while (now[count])
        count++;
    char **out = calloc(count + own + 1, sizeof *out);
    if (out)
        memcpy(out, now, count * sizeof *out);
    for (size_t i = 0; i < own && out; i++)
        out[count + i] = more[i];
    return out;
}

static int start(char *const *argv, const char *log, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    char **env = environment(environ);
    if (!env)
        return ENOMEM;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW,
                                     0666);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    const int why = posix_spawnp(pid, argv[0], &files, NULL, argv, env);
    posix_spawn_file_actions_destroy(&files);
    free(env);
    return why;
}

/* Its status; behind so many seconds it is asked to end, a little later made to. *late: it was. */
static int wait_for(pid_t pid, double seconds, bool *late)
{
    const double grace = 5;
    const struct timespec tick = {.tv_nsec = 5000000};
    const double begin = lt_clock_seconds();
    int status = 0;
    pid_t ended;
    *late = false;
    while ((ended = waitpid(pid, &status, WNOHANG)) != pid) {
        if (ended < 0 && errno != EINTR)
            return -1; /* someone else took its status */
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

/* Starts it, waits, and says why it failed, if it did. */
static void run_words(const plan *p, char *const *argv, plan_pilot *q)
{
    char log[sizeof q->folder + 8];
    pid_t pid;
    bool late;
    const double begin = lt_clock_seconds(), most = lt_plan_budget_left(p) / q->ranks;
    snprintf(log, sizeof log, "%s.log", q->folder);
    const int why = start(argv, log, &pid);
    if (why) {
        snprintf(q->why, sizeof q->why, "%s cannot be started: %s", argv[0], strerror(why));
        return;
    }
    const int status = wait_for(pid, most, &late);
    q->wall = lt_clock_seconds() - begin;
    q->spent = q->wall * q->ranks;
    if (late)
        snprintf(q->why, sizeof q->why, "ended behind %.3g s, all that the budget had left: see %s",
                 q->wall, log);
    else if (!WIFEXITED(status) || WEXITSTATUS(status))
        snprintf(q->why, sizeof q->why, "%s %d: see %s",
                 WIFEXITED(status) ? "exit status" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status), log);
    else if (!p->options.pilot_dir)
        unlink(log);
}

/* Its run folder joins those of --from. */
static lt_status read_pilot(plan *p, plan_pilot *q)
{
    const lt_status st = lt_plan_read_pilot(&p->runs, q->folder, p, q->of_loss);
    if (st == LT_E_NOMEM)
        return st;
    const plan_run *run = st ? NULL : &p->runs.run[p->runs.count - 1];
    q->measured = run ? run->seconds : 0;
    if (st)
        snprintf(q->why, sizeof q->why, "%s", lt_error_message());
    else if (!(q->measured > 0))
        snprintf(q->why, sizeof q->why, "it has no step behind the first %d", PLAN_WARM_STEPS);
    return LT_OK;
}

lt_status lt_plan_run_pilot(plan *p, plan_candidate *c, int64_t steps, bool of_loss)
{
    plan_pilots *all = &p->pilots;
    plan_pilot *q = &all->item[all->count];
    plan_words w = {0};
    *q = (plan_pilot){.ranks = c->setting.setup.ranks,
                      .steps = steps ? steps : steps_of(p, c),
                      .predicted = c->step.value,
                      .of_loss = of_loss};
    snprintf(q->label, sizeof q->label, "%s", c->setting.label);
    snprintf(q->folder, sizeof q->folder, "%s/pilot-%d", all->folder, all->count + 1);
    c->is_tried = true;
    lt_status st = add_words(&w, p, c, q);
    if (!st)
        run_words(p, w.word, q);
    lt_plan_free_words(&w);
    if (!st && !*q->why)
        st = read_pilot(p, q);
    all->spent += q->spent;
    all->count++;
    return st;
}
