/* Rational approximation of x^(-e) with negative poles. The poles of the best approximation are nearly a geometric
 * sequence (Stahl, Acta Mathematica 190, 2003), so only its ends are optimized. The weights minimize the largest
 * error by iteratively reweighted least squares (Lawson's iteration: Rice & Usow, Mathematics of Computation 22,
 * 1968). */

#include "optim/shampoo/root/fit.h"

#include "lather/ext/elementary.h"
#include "lather/ext/fail.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { GRID = 64, FINE = 4 * GRID, COLUMNS = LT_MAX_POLES + 1 };

typedef struct problem {
    double exponent, range;
    int poles;
    double x[GRID], power[GRID]; /* points, and x^e */
} problem;

static double grid_point(const problem *p, int i, int count)
{
    return lt_f64_exp(lt_f64_log(p->range) * i / (count - 1));
}

/* Least squares a c = b with columns a[0..count), by modified Gram-Schmidt; overwrites a and b. */
static void least_squares(double (*a)[GRID], double *b, int count, double *c)
{
    double r[COLUMNS][COLUMNS];
    LT_ASSERT(count > 0 && count <= COLUMNS);
    for (int j = 0; j < count; j++) {
        double square = 0, dot = 0;
        for (int i = 0; i < GRID; i++)
            square += a[j][i] * a[j][i];
        r[j][j] = sqrt(square);
        for (int i = 0; i < GRID; i++) {
            a[j][i] /= r[j][j];
            dot += a[j][i] * b[i];
        }
        c[j] = dot;
        for (int i = 0; i < GRID; i++)
            b[i] -= dot * a[j][i];
        for (int k = j + 1; k < count; k++) {
            r[j][k] = 0;
            for (int i = 0; i < GRID; i++)
                r[j][k] += a[j][i] * a[k][i];
            for (int i = 0; i < GRID; i++)
                a[k][i] -= r[j][k] * a[j][i];
        }
    }
    for (int j = count - 1; j >= 0; j--) {
        for (int k = j + 1; k < count; k++)
            c[j] -= r[j][k] * c[k];
        c[j] /= r[j][j];
    }
}

static void set_shifts(const problem *p, const double ends[2], double *shift)
{
    const double step = p->poles > 1 ? (ends[1] - ends[0]) / (p->poles - 1) : 0;
    for (int j = 0; j < p->poles; j++)
        shift[j] = lt_f64_exp(p->poles > 1 ? ends[0] + step * j : (ends[0] + ends[1]) / 2);
}

/* Computes r(x) x^e - 1 at the points; returns the largest magnitude. */
static double compute_relative_errors(const problem *p, double (*value)[GRID], const double *c,
                                      double *error)
{
    double largest = 0;
    for (int i = 0; i < GRID; i++)
        error[i] = -1;
    for (int j = 0; j <= p->poles; j++)
        for (int i = 0; i < GRID; i++)
            error[i] += c[j] * value[j][i];
    for (int i = 0; i < GRID; i++)
        largest = fmax(largest, fabs(error[i]));
    return largest;
}

/* Computes the weights and, in best[poles], the constant for poles between these ends; returns the largest error at
 * the points. */
static double fit_weights(const problem *p, const double ends[2], int rounds, double best[COLUMNS])
{
    double value[COLUMNS][GRID], a[COLUMNS][GRID], importance[GRID], shift[COLUMNS];
    double least = HUGE_VAL;
    set_shifts(p, ends, shift);
    for (int i = 0; i < GRID; i++) {
        importance[i] = 1;
        for (int j = 0; j < p->poles; j++)
            value[j][i] = p->power[i] / (p->x[i] + shift[j]);
        value[p->poles][i] = p->power[i];
    }
    for (int round = 0; round < rounds; round++) {
        double b[GRID], c[COLUMNS], error[GRID], sum = 0;
        for (int i = 0; i < GRID; i++)
            b[i] = sqrt(importance[i]);
        for (int j = 0; j <= p->poles; j++)
            for (int i = 0; i < GRID; i++)
                a[j][i] = b[i] * value[j][i];
        least_squares(a, b, p->poles + 1, c);
        const double largest = compute_relative_errors(p, value, c, error);
        if (largest < least) {
            least = largest;
            memcpy(best, c, (size_t)(p->poles + 1) * sizeof *c);
        }
        for (int i = 0; i < GRID; i++) {
            importance[i] *= fabs(error[i]) + 1e-3 * largest;
            sum += importance[i];
        }
        for (int i = 0; i < GRID; i++)
            importance[i] *= GRID / sum;
    }
    return least;
}

/* Optimizes the ends of the poles, in logarithms, one at a time. The starting point is a fit to the results for
 * many ranges and exponents, which depend on the distance between poles. */
static void optimize_pole_ends(const problem *p, double ends[2])
{
    const double width = lt_f64_log(p->range), distance = width / p->poles;
    const double bend = p->exponent - 0.25;
    double c[COLUMNS];
    ends[0] = 1.05 * (distance - 2.7) - 3.5 * bend;
    ends[1] = width - 0.7 - 0.95 * (distance - 2.3) - 1.8 * bend;
    double best = fit_weights(p, ends, 5, c);
    for (double step = 0.4; step > 0.15;) {
        bool better = false;
        for (int way = 0; way < 4; way++) {
            double next[2] = {ends[0], ends[1]};
            next[way / 2] += way % 2 ? -step : step;
            const double error = fit_weights(p, next, 5, c);
            if (error < best) {
                best = error;
                memcpy(ends, next, sizeof next);
                better = true;
            }
        }
        if (!better)
            step /= 2;
    }
}

static lt_fit fit_with_poles(const problem *p)
{
    lt_fit f = {.poles = p->poles};
    double c[COLUMNS], ends[2];
    optimize_pole_ends(p, ends);
    fit_weights(p, ends, 20, c);
    set_shifts(p, ends, f.shift);
    memcpy(f.weight, c, (size_t)p->poles * sizeof *c);
    f.constant = c[p->poles];
    for (int i = 0; i < FINE; i++) {
        const double x = grid_point(p, i, FINE);
        double sum = f.constant;
        for (int j = 0; j < f.poles; j++)
            sum += f.weight[j] / (x + f.shift[j]);
        f.error = fmax(f.error, fabs(sum * lt_f64_pow(x, p->exponent) - 1));
    }
    return f;
}

lt_fit lt_fit_power(double exponent, double range, double tolerance)
{
    lt_fit f = {.poles = 1, .weight = {1}};
    problem p = {.exponent = exponent, .range = fmax(range, 2)};
    if (exponent >= 1)
        return f;
    for (int i = 0; i < GRID; i++) {
        p.x[i] = grid_point(&p, i, GRID);
        p.power[i] = lt_f64_pow(p.x[i], exponent);
    }
    /* The error falls by about a constant factor per pole: start at the fewest that could suffice. */
    const double distance = fmax(3.45 + (lt_f64_log(tolerance) + 4.2) / 1.5, 1);
    const int fewest = (int)(0.75 * lt_f64_log(p.range) / distance);
    for (p.poles = fewest > 1 ? fewest : 1; p.poles <= LT_MAX_POLES; p.poles++) {
        f = fit_with_poles(&p);
        if (f.error <= tolerance)
            break;
    }
    return f;
}
