/* Coupled iterations for A^(-q/p):
 *
 *   X <- X T,  M <- T^p M,  T = sum over i < order of b_i (I - M)^i,
 *   b_i = product over j <= i of (1 + (j-1) p) / (j p),
 *
 * the truncated binomial series of M^(-1/p): M goes to I, and X to A^(-1/p), whose q-th power is
 * taken at the end. Order 2 is Newton's: Guo & Higham, "A Schur-Newton method for the matrix pth
 * root and its inverse", SIAM J. Matrix Anal. Appl. 28, 2006. */

#include "optim/shampoo/root/work_matrices.h"

#include "lather/ext/elementary.h"

#include <math.h>

enum { X, M, T, E, POWER, BASE, TEMP, BUFFERS };
enum { MOST_STEPS = 100, MOST_ROOT = 64 };

typedef struct coupled {
    lt_work_matrices work;
    const lt_root_set *set;
    int order, p, q; /* series terms; exponent q/p of the active items */
} coupled;

bool lt_root_exponent_as_ratio(double exponent, int *p, int *q)
{
    for (*q = 1; *q <= 8; ++*q) {
        *p = (int)lround(*q / exponent);
        if (*p >= 1 && *p <= MOST_ROOT && fabs(*q / exponent - *p) < 1e-9 * *p)
            return true;
    }
    return false;
}

/* POWER = from^power by squaring; overwrites from. */
static lt_status raise_to(coupled *c, int from, int power)
{
    lt_work_matrices *s = &c->work;
    bool any = false;
    LT_TRY(lt_work_combine(s, BASE, 1, NULL, from, 0));
    for (; power; power >>= 1) {
        if (power & 1 && !any)
            LT_TRY(lt_work_combine(s, POWER, 1, NULL, BASE, 0));
        else if (power & 1) {
            LT_TRY(lt_work_product(s, TEMP, POWER, BASE, false));
            lt_work_swap(s, TEMP, POWER);
        }
        any = any || power & 1;
        if (power > 1) {
            LT_TRY(lt_work_product(s, TEMP, BASE, BASE, false));
            lt_work_swap(s, TEMP, BASE);
        }
    }
    return LT_OK;
}

/* Evaluates the truncated series T at E = I - M by Horner's rule. */
static lt_status evaluate_series(coupled *c)
{
    lt_work_matrices *s = &c->work;
    double b[8] = {1};
    for (int i = 1; i < c->order; i++)
        b[i] = b[i - 1] * (1 + (i - 1) * (double)c->p) / (i * (double)c->p);
    LT_TRY(lt_work_combine(s, T, b[c->order - 1], NULL, E, 0));
    LT_TRY(lt_work_add_identity(s, T, b[c->order - 2]));
    for (int i = c->order - 3; i >= 0; i--) {
        LT_TRY(lt_work_product(s, TEMP, T, E, false));
        lt_work_swap(s, TEMP, T);
        LT_TRY(lt_work_add_identity(s, T, b[i]));
    }
    return LT_OK;
}

/* E = I - M; items that have converged or no longer improve become inactive. */
static lt_status measure_errors(coupled *c, int step, double tolerance)
{
    lt_work_matrices *s = &c->work;
    LT_TRY(lt_work_combine(s, E, -1, NULL, M, 0));
    LT_TRY(lt_work_add_identity(s, E, 1));
    LT_TRY(lt_work_read_norms(s, E));
    for (size_t i = 0; i < c->set->count; i++) {
        if (!s->active[i])
            continue;
        const double error = s->number[i] / sqrt((double)c->set->item[i].n);
        const bool worse = step > 0 && !(error < 1.2 * c->work.error[i]);
        const bool stuck = error < 0.1 && error > 0.5 * c->work.error[i];
        c->set->item[i].job->iterations = step;
        s->active[i] = !(error <= tolerance || worse || stuck);
        c->work.error[i] = error;
    }
    return LT_OK;
}

static lt_status run_coupled_iteration(coupled *c)
{
    lt_work_matrices *s = &c->work;
    const int steps = c->set->config->solver_iterations;
    const double tolerance = c->set->dtype == LT_F64 ? 1e-10 : 1e-6;
    for (int step = 0; step <= (steps ? steps : MOST_STEPS); step++) {
        LT_TRY(measure_errors(c, step, tolerance));
        if (!lt_work_any_active(s))
            break;
        LT_TRY(evaluate_series(c));
        LT_TRY(lt_work_product(s, TEMP, X, T, false));
        LT_TRY(lt_work_combine(s, X, 1, NULL, TEMP, 0));
        LT_TRY(raise_to(c, T, c->p));
        LT_TRY(lt_work_product(s, TEMP, POWER, M, false));
        LT_TRY(lt_work_combine(s, M, 1, NULL, TEMP, 0));
    }
    return LT_OK;
}

/* Activates the items with this exponent. */
static void activate_items_by_exponent(coupled *c, double exponent)
{
    for (size_t i = 0; i < c->set->count; i++)
        c->work.active[i] = c->set->item[i].job->exponent == exponent;
}

static lt_status solve_exponent(coupled *c, double exponent)
{
    lt_work_matrices *s = &c->work;
    const lt_root_set *set = c->set;
    if (!lt_root_exponent_as_ratio(exponent, &c->p, &c->q))
        return lt_fail(LT_E_ARG, "coupled iteration: exponent %g is not a ratio of small integers",
                       exponent);
    activate_items_by_exponent(c, exponent);
    LT_TRY(lt_work_read_norms(s, -1));
    /* Newton converges for eigenvalues of M below p + 1, a longer series below 2. Scale the norm to the middle of
     * the first interval, or to 1. */
    const double start = c->order == 2 ? (c->p + 1) / 2.0 : 1;
    for (size_t i = 0; i < set->count; i++)
        c->work.scale[i] = s->number[i] > 0 ? start / s->number[i] : 1;
    LT_TRY(lt_work_load_scaled(s, M, c->work.scale));
    LT_TRY(lt_work_combine(s, X, 0, NULL, M, 0));
    LT_TRY(lt_work_add_identity(s, X, 1));
    LT_TRY(run_coupled_iteration(c));
    activate_items_by_exponent(c, exponent);
    LT_TRY(raise_to(c, X, c->q));
    for (size_t i = 0; i < set->count; i++)
        c->work.scale[i] = lt_f64_pow(c->work.scale[i], exponent);
    return lt_work_store_results(s, c->work.scale, POWER);
}

/* Solves each exponent once, in the order of the items. */
static lt_status solve_each_exponent(coupled *c)
{
    const lt_root_set *set = c->set;
    for (size_t i = 0; i < set->count; i++) {
        const double e = set->item[i].job->exponent;
        size_t before = 0;
        while (before < i && set->item[before].job->exponent != e)
            before++;
        if (before == i)
            LT_TRY(solve_exponent(c, e));
    }
    return LT_OK;
}

lt_status lt_root_coupled(const lt_root_set *set, int order)
{
    coupled c = {.set = set, .order = order};
    lt_status st = lt_work_open(&c.work, set, BUFFERS);
    if (!st)
        st = solve_each_exponent(&c);
    lt_work_close(&c.work);
    return st ? st : lt_root_compute_residuals(set);
}

lt_status lt_root_newton(const lt_root_set *set)
{
    return lt_root_coupled(set, 2);
}

lt_status lt_root_higher_order(const lt_root_set *set)
{
    const int order = set->config->solver_order;
    return lt_root_coupled(set, order ? order : 3);
}
