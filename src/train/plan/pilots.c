/* Pilots: short runs of candidates, started as the printed command would start them, so that a choice rests on measured
 * steps and costs a small share of the run. ADR 0048.
 *
 * A round: of all candidates whose seconds may still be below the best one's (contenders), the best itself if its step was
 * never measured, else the setting with the smallest possible seconds; of that setting's ranks those which Ernest's A-optimal
 * design weighs the most. Then all is estimated anew. The rounds end when no contender is left, or the budget is too
 * small for one. */

#include "base/clock.h"
#include "base/commit.h"
#include "planner.h"

#include "lather/ext/comm.h"
#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
static double least_key(const plan *p, const plan_candidate *c)
{
    plan_candidate least = *c;
    if (isfinite(p->table.item[0].seconds))
        least.seconds = c->step.value * least_steps(p, c);
    return lt_plan_key(p, &least) / doubt(&c->step);
}

/* Its least seconds are below the best one's largest. */
static bool may_be_best(const plan *p, const plan_candidate *c)
{
    const plan_candidate *best = &p->table.item[0];
    if (*c->why || !is_comparable(p, c) || lt_plan_is_out_of_reach(p, c))
        return false;
    return c == best || least_key(p, c) < lt_plan_key(p, best) * doubt(&best->step);
}

/* No pilot of it was made, and it may be better than the best. */
static bool is_contender(const plan *p, const plan_candidate *c)
{
    const bool is_known =
        c->step.trust == PLAN_MEASURED && (c->steps.trust != PLAN_UNKNOWN || !lt_plan_is_arm(p, c));
    return !c->is_tried && !is_known && may_be_best(p, c);
}

/* --- What it may cost --- */

/* Rank-seconds of a candidate's run; 0: not known. */
static double run_cost(const plan_candidate *c)
{
    const double steps =
        isfinite(c->steps.value) ? c->steps.value : lt_plan_flag_steps(&c->setting);
    return c->setting.setup.ranks * c->step.value * steps;
}

/* Of the cheapest run that may yet be chosen, as what is paid is a share of the one that is. */
static double least_run_cost(const plan *p)
{
    const plan_table *t = &p->table;
    double least = run_cost(t->item);
    for (size_t i = 1; i < t->kept; i++) {
        const double cost = run_cost(&t->item[i]);
        if (may_be_best(p, &t->item[i]) && cost > 0)
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
    return ranks * (lt_plan_start_seconds(p, ranks) + (double)steps * c->step.value);
}

static double cost_of(const plan *p, const plan_candidate *c)
{
    int64_t steps;
    return lt_plan_is_arm(p, c) ? lt_plan_arm_cost(p, c, &steps)
                                : lt_plan_pilot_cost(p, c, steps_of(p, c));
}

/* --- Which one --- */

/* A setting on all of its numbers of ranks. */
typedef struct group {
    plan_candidate *of[PLAN_RANKS];
    lt_time_point point[PLAN_RANKS];
    double cost[PLAN_RANKS];
    size_t count;
} group;

static void find_group(const plan *p, const plan_setting *s, group *out)
{
    const plan_table *t = &p->table;
    out->count = 0;
    for (size_t i = 0; i < t->kept && out->count < PLAN_RANKS; i++) {
        plan_candidate *c = &t->item[i];
        if (!lt_plan_is_same_work(&c->setting, s))
            continue;
        out->of[out->count] = c;
        out->cost[out->count] = cost_of(p, c);
        out->point[out->count++] = (lt_time_point){c->setting.setup.ranks, 1, c->step.value};
    }
}

/* Of a setting's numbers of ranks the one that says the most of all of them, where there are enough for Ernest's model; else the
 * cheapest, by which the system model is scaled for the others. */
static plan_candidate *best_ranks(const plan *p, const plan_candidate *like, double budget)
{
    group g;
    double weight[PLAN_RANKS], most = -HUGE_VAL;
    plan_candidate *found = NULL;
    find_group(p, &like->setting, &g);
    const bool is_designed =
        g.count >= LT_TIME_TERMS && !lt_time_design(weight, NULL, g.point, g.count, g.cost, budget);
    for (size_t i = 0; i < g.count; i++) {
        const double value = is_designed ? weight[i] : -g.cost[i];
        if (!is_contender(p, g.of[i]) || g.cost[i] > budget || !(value > most))
            continue;
        most = value;
        found = g.of[i];
    }
    return found;
}

static void stop(plan *p, const char *format, ...) LT_PRINTF(2, 3);
static void stop(plan *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->pilots.why, sizeof p->pilots.why, format, args);
    va_end(args);
}

/* NULL: there is none, and why. */
static plan_candidate *next_pilot(plan *p)
{
    const plan_table *t = &p->table;
    const double budget = lt_plan_budget_left(p);
    plan_candidate *found = NULL, *dear = NULL;
    for (size_t i = 0; i < t->kept; i++) {
        plan_candidate *c = &t->item[i];
        if (!is_contender(p, c))
            continue;
        if (cost_of(p, c) > budget)
            dear = dear ? dear : c;
        else if (!found || (found != t->item && least_key(p, c) < least_key(p, found)))
            found = c;
    }
    if (found && p->pilots.count < PLAN_PILOTS)
        return found == t->item ? found : best_ranks(p, found, budget);
    if (found)
        stop(p, "there were %d", PLAN_PILOTS);
    else if (dear)
        stop(
            p,
            "the budget: one of %d ranks, %s, would take about %.3g rank-seconds, and %.3g are left",
            dear->setting.setup.ranks, dear->setting.label, cost_of(p, dear), fmax(budget, 0));
    else
        stop(p, "the best one leads by more than what is not known");
    return NULL;
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

/* --- All of them --- */

static lt_status open_folder(plan *p)
{
    plan_pilots *all = &p->pilots;
    const char *temp = getenv("TMPDIR");
    if (p->options.pilot_dir) {
        snprintf(all->folder, sizeof all->folder, "%s", p->options.pilot_dir);
        return lt_commit_make_folders(all->folder);
    }
    snprintf(all->folder, sizeof all->folder, "%s/lather-pilots-XXXXXX", temp ? temp : "/tmp");
    return mkdtemp(all->folder) ? LT_OK
                                : lt_fail(LT_E_IO, "%s: %s; --pilot-dir says another place",
                                          all->folder, strerror(errno));
}

/* What is not asked for; logs of pilots that failed stay. */
static void clean(plan *p)
{
    for (int i = 0; i < p->pilots.count && !p->options.pilot_dir; i++)
        if (!access(p->pilots.item[i].folder, F_OK) && lt_commit_remove(p->pilots.item[i].folder))
            return;
    if (!p->options.pilot_dir)
        (void)rmdir(p->pilots.folder);
}

static lt_status check(const plan *p)
{
    const char *kind = lt_comm_launched_kind();
    if (strcmp(kind, "self") != 0)
        return lt_fail(
            LT_E_ARG,
            "--pilots: this is one of several ranks already (%s); plan starts them itself", kind);
    if (run_cost(p->table.item) > 0)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "--pilot-budget %s: of how long a run? %s; --epochs or --max-steps says it",
                   p->options.pilot_budget, p->table.item[0].steps.why);
}

lt_status lt_plan_make_pilots(plan *p)
{
    plan_candidate *next;
    LT_TRY(check(p));
    LT_TRY(open_folder(p));
    lt_status st = lt_plan_pilot_courses(p);
    if (!st)
        st = lt_plan_rank(p);
    while (!st && (next = next_pilot(p))) {
        st = lt_plan_is_arm(p, next) ? lt_plan_pilot_arm(p, next)
                                     : lt_plan_run_pilot(p, next, 0, false);
        if (!st)
            st = lt_plan_rank(p);
    }
    clean(p);
    p->pilots.racing = false;
    if (!st)
        st = lt_plan_rank(p);
    p->pilots.run = st ? 0 : run_cost(p->table.item);
    return st;
}

/* --- What is said of them --- */

void lt_plan_print_pilots(const plan *p, FILE *out)
{
    char now[PLAN_NAME], before[PLAN_NAME];
    const plan_pilots *all = &p->pilots;
    if (!(p->request.pilot_share > 0))
        return;
    fprintf(
        out,
        "pilots: %d, %.3g rank-seconds, and the profile %.3g, %.3g %% of the %.4g of the run below (budget %g %%); no more: %s\n",
        all->count, all->spent, p->profile.paid, 100 * (all->spent + p->profile.paid) / all->run,
        all->run, 100 * p->request.pilot_share, all->why);
    if (all->has_courses && all->course_steps > 0)
        fprintf(
            out,
            "  steps of each course: to a training loss of %.4g, predicted of %s behind the %.0f steps that the flags give\n",
            all->course_loss, p->runs.run[all->course_run].setting.label, all->course_steps);
    for (int i = 0; i < all->count; i++) {
        const plan_pilot *q = &all->item[i];
        fprintf(out, "  %d ranks, %s: %lld steps, %.3g rank-seconds: ", q->ranks, q->label,
                (long long)q->steps, q->spent);
        if (*q->why)
            fprintf(out, "failed, and is not used: %s\n", q->why);
        else
            fprintf(out, "%s a step, predicted %s",
                    lt_plan_seconds_text(q->measured, now, sizeof now),
                    lt_plan_seconds_text(q->predicted, before, sizeof before));
        if (q->slowdown > 0)
            fprintf(out, "; %.4g times the steps", q->slowdown);
        if (!*q->why)
            fprintf(out, "\n");
    }
}

static void put_pilot(lt_json_writer *w, const plan_pilot *q)
{
    lt_json_begin_object(w, NULL);
    lt_json_put_integer(w, "ranks", q->ranks);
    lt_json_put_string(w, "setting", q->label);
    lt_json_put_integer(w, "steps", q->steps);
    lt_json_put_number(w, "predicted_seconds", q->predicted);
    lt_json_put_number(w, "step_seconds", *q->why ? (double)NAN : q->measured);
    lt_json_put_number(w, "rank_seconds", q->spent);
    lt_json_put_string(w, "of", q->of_loss ? "loss" : "step");
    lt_json_put_number(w, "slowdown", q->slowdown > 0 ? q->slowdown : (double)NAN);
    lt_json_put_string(w, "failed", *q->why ? q->why : NULL);
    lt_json_end(w);
}

/* What steps of courses are to; null: there are none. */
static void put_courses(lt_json_writer *w, const plan *p)
{
    const plan_pilots *all = &p->pilots;
    const bool is_of_flags = all->has_courses && all->course_steps > 0;
    lt_json_put_number(w, "course_loss", all->has_courses ? all->course_loss : (double)NAN);
    lt_json_put_number(w, "course_steps", is_of_flags ? all->course_steps : (double)NAN);
    lt_json_put_string(w, "course_of",
                       is_of_flags ? p->runs.run[all->course_run].setting.label : NULL);
}

void lt_plan_put_pilots(lt_json_writer *w, const plan *p)
{
    const plan_pilots *all = &p->pilots;
    if (!(p->request.pilot_share > 0))
        return;
    lt_json_begin_object(w, "pilots");
    lt_json_put_number(w, "budget_share", p->request.pilot_share);
    lt_json_put_number(w, "rank_seconds", all->spent);
    lt_json_put_number(w, "profile_rank_seconds", p->profile.paid);
    lt_json_put_number(w, "run_rank_seconds", all->run);
    lt_json_put_string(w, "no_more", all->why);
    put_courses(w, p);
    lt_json_begin_array(w, "made");
    for (int i = 0; i < all->count; i++)
        put_pilot(w, &all->item[i]);
    lt_json_end(w);
    lt_json_end(w);
}
