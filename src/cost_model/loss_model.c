/* Hemingway's model of a run's loss: Pan et al., arXiv 1702.05865. The floor f maximises the profile likelihood of Box
 * & Cox (1964): if errors of log10(loss - f) have deviation sd, the log-likelihood of the losses is -(log sd + mean of
 * log(loss - f)) per point, up to constants. */

#include "base/alloc.h"

#include "lather/detail/fit.h"
#include "lather/ext/fail.h"

#include <math.h>

static void terms_of(double *terms, double ranks, double step)
{
    const double i = step, m = ranks;
    const double value[LT_LOSS_TERMS] = {
        i,                                  /* exponential decay, independent of ranks */
        sqrt(i),                            /* between exponential and power law */
        i / m,      i / m / m,              /* i log(1 - c/m): averaged local updates */
        log(i),                             /* power law: stochastic gradients */
        log(i) / m, log(i) * log(m), 1 / i, /* the first steps */
        log(m),     1 / m,           m      /* variance of a mean over ranks; cost of averaging */
    };
    for (int j = 0; j < LT_LOSS_TERMS; j++)
        terms[j] = value[j];
}

double lt_loss_predict(const lt_loss_model *model, double ranks, double step)
{
    double term[LT_LOSS_TERMS], sum = model->intercept;
    terms_of(term, ranks, step);
    for (int j = 0; j < LT_LOSS_TERMS; j++)
        sum += model->x[j] * term[j];
    return model->floor + pow(10, sum);
}

/* Finds the first step that reaches the goal: by growing steps, then by bisection, as if the loss only fell. */
lt_status lt_loss_steps(double *steps, const lt_loss_model *model, double ranks, double goal)
{
    const double most = 100 * model->last, growth = 1.01;
    if (!(goal > model->floor))
        return lt_fail(LT_E_ARG, "loss model: the goal %g is not above the floor %g", goal,
                       model->floor);
    double below = 0, step = 1;
    while (!(lt_loss_predict(model, ranks, step) <= goal)) {
        if (!(step < most))
            return lt_fail(LT_E_ARG, "loss model: %g is not reached on %g ranks: %g after %g steps",
                           goal, ranks, lt_loss_predict(model, ranks, most), most);
        below = step;
        step = fmin(most, fmax(step + 1, floor(step * growth)));
    }
    while (step - below > 1) {
        const double middle = floor((below + step) / 2);
        *(lt_loss_predict(model, ranks, middle) <= goal ? &step : &below) = middle;
    }
    *steps = step;
    return LT_OK;
}

/* Working data of a fit. */
typedef struct losses {
    const lt_loss_point *point;
    size_t count;
    double least, most;                               /* smallest and largest loss */
    double mean[LT_LOSS_TERMS], scale[LT_LOSS_TERMS]; /* terms: mean, deviation */
    double *a, *b; /* a (owned): standardised terms; b: log10(loss - floor) */
    int *fold;     /* owned */
} losses;

static lt_status check_point(const lt_loss_point *p, size_t index)
{
    if (!(p->ranks >= 1) || !isfinite(p->ranks) || !(p->step >= 1) || !isfinite(p->step))
        return lt_fail(LT_E_ARG,
                       "loss model: point %zu: step %g on %g ranks, want at least 1 of both", index,
                       p->step, p->ranks);
    if (!isfinite(p->loss))
        return lt_fail(LT_E_ARG, "loss model: point %zu: the loss of step %g on %g ranks is %g",
                       index, p->step, p->ranks, p->loss);
    return LT_OK;
}

/* Makes a fold of each number of ranks; returns their count. */
static int assign_folds(losses *s)
{
    int folds = 0;
    for (size_t i = 0; i < s->count; i++) {
        size_t j = 0;
        while (s->point[j].ranks != s->point[i].ranks)
            j++;
        s->fold[i] = j < i ? s->fold[j] : folds++;
    }
    return folds;
}

/* Scales terms to mean 0 and deviation 1. A constant term becomes zeros, which the Lasso ignores; so does the last one,
 * m, where three numbers of ranks cannot distinguish it from 1, log m and 1/m. */
static void standardize_terms(losses *s, int folds)
{
    const double n = (double)s->count;
    for (size_t i = 0; i < s->count; i++)
        terms_of(s->a + i * LT_LOSS_TERMS, s->point[i].ranks, s->point[i].step);
    for (size_t j = 0; j < LT_LOSS_TERMS; j++) {
        double sum = 0, square = 0;
        for (size_t i = 0; i < s->count; i++)
            sum += s->a[i * LT_LOSS_TERMS + j] / n;
        for (size_t i = 0; i < s->count; i++) {
            const double apart = s->a[i * LT_LOSS_TERMS + j] - sum;
            square += apart * apart / n;
        }
        s->mean[j] = sum;
        const bool is_determined = j + 1 < LT_LOSS_TERMS || folds > LT_LOSS_RANKS;
        s->scale[j] = is_determined && sqrt(square) > 1e-12 * fabs(sum) ? sqrt(square) : 0;
        for (size_t i = 0; i < s->count; i++) {
            double *cell = &s->a[i * LT_LOSS_TERMS + j];
            *cell = s->scale[j] > 0 ? (*cell - sum) / s->scale[j] : 0;
        }
    }
}

static void losses_free(losses *s)
{
    lt_free(s->a);
    lt_free(s->fold);
}

static lt_status losses_new(losses *s, const lt_loss_point *point, size_t count)
{
    *s = (losses){
        .point = point, .count = count, .least = (double)INFINITY, .most = -(double)INFINITY};
    for (size_t i = 0; i < count; i++) {
        LT_TRY(check_point(&point[i], i));
        s->least = fmin(s->least, point[i].loss);
        s->most = fmax(s->most, point[i].loss);
    }
    LT_TRY(LT_ALLOC(&s->a, count * (LT_LOSS_TERMS + 1) + 1));
    LT_TRY(LT_ALLOC(&s->fold, count + 1));
    s->b = s->a + count * LT_LOSS_TERMS;
    const int folds = assign_folds(s);
    if (folds < LT_LOSS_RANKS)
        return lt_fail(LT_E_ARG,
                       "loss model: not enough measurements: %d different numbers of ranks, want "
                       "at least %d",
                       folds, LT_LOSS_RANKS);
    if (!(s->most > s->least))
        return lt_fail(LT_E_ARG, "loss model: all %zu losses are %g", count, s->least);
    standardize_terms(s, folds);
    return LT_OK;
}

/* Cross-validates with a floor: penalty, error of the folds, and cost, the negative log-likelihood per point. */
static lt_status try_floor(losses *s, double at, double *penalty, double *held_out, double *cost)
{
    double sum = 0;
    *cost = (double)INFINITY; /* rounding has lifted the floor to the smallest loss */
    if (!(s->least > at))
        return LT_OK;
    for (size_t i = 0; i < s->count; i++) {
        s->b[i] = log10(s->point[i].loss - at);
        sum += log(s->point[i].loss - at);
    }
    LT_TRY(lt_lasso_choose(penalty, held_out, s->a, (int)s->count, LT_LOSS_TERMS, s->b, s->fold));
    *cost = log(fmax(*held_out, 1e-300)) + sum / (double)s->count;
    return LT_OK;
}

static lt_status fit_with_floor(lt_loss_model *out, losses *s, double at)
{
    lt_loss_model model = {.floor = at, .least = (double)INFINITY};
    double x[LT_LOSS_TERMS], cost;
    LT_TRY(try_floor(s, at, &model.penalty, &model.held_out, &cost));
    LT_TRY(lt_lasso(x, &model.intercept, s->a, (int)s->count, LT_LOSS_TERMS, s->b, model.penalty));
    for (int j = 0; j < LT_LOSS_TERMS; j++) {
        model.x[j] = s->scale[j] > 0 ? x[j] / s->scale[j] : 0;
        model.intercept -= model.x[j] * s->mean[j];
    }
    for (size_t i = 0; i < s->count; i++) {
        const lt_loss_point *p = &s->point[i];
        model.least = fmin(model.least, p->ranks);
        model.most = fmax(model.most, p->ranks);
        model.last = fmax(model.last, p->step);
    }
    *out = model;
    return LT_OK;
}

/* Returns the floor least - exp(u), at least 0 if all losses are positive. */
static double floor_from_log_distance(const losses *s, double u)
{
    const double at = s->least - exp(u);
    return s->least > 0 && at < 0 ? 0 : at;
}

typedef struct guess {
    double u, cost;
} guess;

static lt_status try_at(losses *s, guess *g)
{
    double penalty, held_out;
    return try_floor(s, floor_from_log_distance(s, g->u), &penalty, &held_out, &g->cost);
}

/* Golden-section search around the best guess. */
static lt_status golden_section_search(losses *s, guess left, guess best, guess right, double *u)
{
    enum { STEPS = 70 };
    const double part = (3 - sqrt(5)) / 2;
    for (int i = 0; i < STEPS && right.u - left.u > 1e-15 * fabs(best.u); i++) {
        const bool up = right.u - best.u > best.u - left.u;
        guess next = {.u = best.u + part * ((up ? right.u : left.u) - best.u)};
        LT_TRY(try_at(s, &next));
        if (next.cost < best.cost) {
            *(up ? &left : &right) = best;
            best = next;
        } else {
            *(up ? &right : &left) = next;
        }
    }
    *u = best.u;
    return LT_OK;
}

/* Tries distances below the smallest loss, from 1e-9 to 100 times the range of the losses, then refines the best. */
static lt_status find_floor(losses *s, double *at)
{
    enum { GUESSES = 45, PER_DECADE = 4, DECADES = 9 };
    guess guessed[GUESSES];
    const double range = log(s->most - s->least);
    int best = 0;
    for (int i = 0; i < GUESSES; i++) {
        guessed[i].u = range + log(10) * ((double)i / PER_DECADE - DECADES);
        LT_TRY(try_at(s, &guessed[i]));
        best = guessed[i].cost < guessed[best].cost ? i : best;
    }
    double u = guessed[best].u;
    if (best > 0 && best < GUESSES - 1)
        LT_TRY(golden_section_search(s, guessed[best - 1], guessed[best], guessed[best + 1], &u));
    *at = floor_from_log_distance(s, u);
    return LT_OK;
}

lt_status lt_loss_fit(lt_loss_model *out, const lt_loss_point *point, size_t count)
{
    losses s;
    double at = 0;
    lt_status st = losses_new(&s, point, count);
    if (!st)
        st = find_floor(&s, &at);
    if (!st)
        st = fit_with_floor(out, &s, at);
    losses_free(&s);
    return st;
}

lt_status lt_loss_fit_above(lt_loss_model *out, const lt_loss_point *point, size_t count,
                            double floor)
{
    losses s;
    lt_status st = losses_new(&s, point, count);
    if (!st && !(s.least > floor))
        st = lt_fail(LT_E_ARG, "loss model: the loss %g is not above the floor %g", s.least, floor);
    if (!st)
        st = fit_with_floor(out, &s, floor);
    losses_free(&s);
    return st;
}
