/* The Denman-Beavers iteration without inverses, for roots 2 and 4:
 *
 *   E = 3/2 I - 1/2 Z Y,  Y <- Y E,  Z <- E Z   from  Y = A / c,  Z = I:
 *
 * Y converges to (A/c)^(1/2), Z to (A/c)^(-1/2). The fourth root is the square root of Y's. c is twice
 * an estimate of the largest eigenvalue: scaling by the Frobenius norm would take more steps. Higham,
 * "Functions of matrices", 2008, section 6.7; scaling: Modoranu et al., "DASH", 2026. */

#include "optim/shampoo/root/work_matrices.h"

#include "lather/ext/elementary.h"

#include <math.h>

enum { Y, Z, E, TEMP, BUFFERS };
enum { MOST_STEPS = 60 };

typedef struct denman {
    lt_work_matrices work;
    const lt_root_set *set;
} denman;

/* TEMP = Z Y; items whose product is I, or no longer approaches it, become inactive. */
static lt_status measure_errors(denman *d, int step, double tolerance)
{
    lt_work_matrices *s = &d->work;
    LT_TRY(lt_work_product(s, TEMP, Z, Y, false));
    LT_TRY(lt_work_combine(s, E, 1, NULL, TEMP, 0));
    LT_TRY(lt_work_add_identity(s, E, -1));
    LT_TRY(lt_work_read_norms(s, E));
    for (size_t i = 0; i < d->set->count; i++) {
        if (!s->active[i])
            continue;
        const double error = s->number[i] / sqrt((double)d->set->item[i].n);
        const bool stuck = step > 0 && error < 0.1 && !(error < 0.7 * d->work.error[i]);
        d->set->item[i].job->iterations++;
        s->active[i] = error > tolerance && !stuck && isfinite(error);
        d->work.error[i] = error;
    }
    return LT_OK;
}

/* Replaces Y by its square root. */
static lt_status take_square_root(denman *d)
{
    lt_work_matrices *s = &d->work;
    const int steps = d->set->config->solver_iterations;
    const double tolerance = d->set->dtype == LT_F64 ? 1e-10 : 1e-6;
    for (int step = 0; step < (steps ? steps : MOST_STEPS); step++) {
        LT_TRY(measure_errors(d, step, tolerance));
        if (!lt_work_any_active(s))
            break;
        LT_TRY(lt_work_combine(s, E, -0.5, NULL, TEMP, 0));
        LT_TRY(lt_work_add_identity(s, E, 1.5));
        LT_TRY(lt_work_product(s, TEMP, Y, E, false));
        LT_TRY(lt_work_combine(s, Y, 1, NULL, TEMP, 0));
        LT_TRY(lt_work_product(s, TEMP, E, Z, false));
        LT_TRY(lt_work_combine(s, Z, 1, NULL, TEMP, 0));
    }
    return LT_OK;
}

static lt_status set_identity(lt_work_matrices *s, int to)
{
    LT_TRY(lt_work_combine(s, to, 0, NULL, Y, 0));
    return lt_work_add_identity(s, to, 1);
}

static void activate_items(denman *d, bool fourth)
{
    for (size_t i = 0; i < d->set->count; i++)
        d->work.active[i] = !fourth || d->set->item[i].job->exponent < 0.4;
}

static lt_status compute_inverse_roots(denman *d)
{
    lt_work_matrices *s = &d->work;
    LT_TRY(lt_root_estimate_largest(d->set, d->work.scale));
    for (size_t i = 0; i < d->set->count; i++)
        d->work.scale[i] = d->work.scale[i] > 0 ? 0.5 / d->work.scale[i] : 1;
    LT_TRY(lt_work_load_scaled(s, Y, d->work.scale));
    LT_TRY(set_identity(s, Z));
    LT_TRY(take_square_root(d));
    activate_items(d, true);
    LT_TRY(set_identity(s, Z));
    LT_TRY(take_square_root(d));
    activate_items(d, false);
    for (size_t i = 0; i < d->set->count; i++)
        d->work.scale[i] = lt_f64_pow(d->work.scale[i], d->set->item[i].job->exponent);
    return lt_work_store_results(s, d->work.scale, Z);
}

lt_status lt_root_newton_db(const lt_root_set *set)
{
    denman d = {.set = set};
    lt_status st = lt_work_open(&d.work, set, BUFFERS);
    if (!st)
        st = compute_inverse_roots(&d);
    lt_work_close(&d.work);
    return st ? st : lt_root_compute_residuals(set);
}
