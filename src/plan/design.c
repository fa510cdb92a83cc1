/* A-optimal designs: Kiefer's equivalence theorem (1974) and multiplicative updates (Silvey, Titterington & Torsney,
 * 1978; that they converge: Yu, "Monotonic convergence of a general algorithm for computing optimal designs", 2010).
 *
 * With v[i] = cost[i] w[i] / budget, which sum to 1, and g[i] = f[i] sqrt(budget / cost[i]), M = sum of v[i] g[i] g[i]^T.
 * d[i] = |M^-1 g[i]|^2 is the trace's derivative with its sign changed, the sum of v[i] d[i] is the trace, and as
 * 1 / trace is concave and homogeneous in M, trace / minimum <= max d / trace. */

#include "base/alloc.h"
#include "plan/dense.h"

#include "lather/ext/fail.h"
#include "lather/fit.h"

#include <math.h>
#include <string.h>

typedef struct design {
    int candidates, columns;
    double *g;      /* owns; [candidates,columns], columns with norm 1 */
    double *norm;   /* [columns], of the columns */
    double *v, *d;  /* [candidates] */
    double *m;      /* [columns,2 columns]: M, and what was the identity */
    double *column; /* [columns] */
    double trace;
} design;

static lt_status check(const double *f, int candidates, int columns, const double *cost,
                       double budget)
{
    if (candidates < 1 || columns < 1)
        return lt_fail(LT_E_ARG, "design: %d candidates of %d columns, want at least 1 of 1",
                       candidates, columns);
    if (!(budget > 0) || !isfinite(budget))
        return lt_fail(LT_E_ARG, "design: a budget of %g, want more than 0", budget);
    for (int i = 0; i < candidates; i++) {
        if (cost && (!(cost[i] > 0) || !isfinite(cost[i])))
            return lt_fail(LT_E_ARG, "design: candidate %d costs %g, want more than 0", i, cost[i]);
        for (int j = 0; j < columns; j++)
            if (!isfinite(f[(size_t)i * (size_t)columns + (size_t)j]))
                return lt_fail(LT_E_ARG, "design: column %d of candidate %d is %g", j, i,
                               f[(size_t)i * (size_t)columns + (size_t)j]);
    }
    return LT_OK;
}

static lt_status design_new(design *s, const double *f, int candidates, int columns,
                            const double *cost)
{
    const size_t c = (size_t)candidates, n = (size_t)columns;
    *s = (design){.candidates = candidates, .columns = columns};
    s->g = lt_alloc(c * n + 2 * n + 2 * c + 2 * n * n, sizeof *s->g);
    if (!s->g)
        return LT_E_NOMEM;
    s->norm = s->g + c * n;
    s->column = s->norm + n;
    s->v = s->column + n;
    s->d = s->v + c;
    s->m = s->d + c;
    for (size_t i = 0; i < c; i++)
        s->v[i] = 1 / (double)c;
    for (size_t i = 0; i < c * n; i++)
        s->g[i] = f[i] / sqrt(cost ? cost[i / n] : 1);
    for (size_t j = 0; j < n; j++) {
        s->norm[j] = lt_dense_norm(s->g + j, c, n);
        for (size_t i = 0; i < c; i++)
            s->g[i * n + j] /= s->norm[j] > 0 ? s->norm[j] : 1;
    }
    return LT_OK;
}

/* M, and the identity beside it. */
static void gather(design *s)
{
    const size_t n = (size_t)s->columns, two = 2 * n;
    memset(s->m, 0, n * two * sizeof *s->m);
    for (size_t i = 0; i < (size_t)s->candidates; i++) {
        const double *g = s->g + i * n;
        for (size_t j = 0; j < n; j++)
            for (size_t k = 0; k < n; k++)
                s->m[j * two + k] += s->v[i] * g[j] * g[k];
    }
    for (size_t j = 0; j < n; j++)
        s->m[j * two + n + j] = 1;
}

/* The right half becomes the inverse of the left one. */
static bool invert(design *s)
{
    const size_t n = (size_t)s->columns, two = 2 * n;
    lt_dense_triangle(s->m, s->columns, 2 * s->columns);
    for (size_t k = 0; k < n; k++) {
        for (size_t j = 0; j < n; j++)
            s->column[j] = s->m[j * two + n + k];
        if (!lt_dense_solve(s->m, 2 * s->columns, s->columns, s->column))
            return false;
        for (size_t j = 0; j < n; j++)
            s->m[j * two + n + k] = s->column[j];
    }
    return true;
}

/* d and the trace, in the caller's columns; returns max d / trace - 1, or -1 if M is singular. */
static double derive(design *s)
{
    const size_t n = (size_t)s->columns, two = 2 * n;
    double most = 0;
    gather(s);
    if (!invert(s))
        return -1;
    s->trace = 0;
    for (size_t i = 0; i < (size_t)s->candidates; i++) {
        s->d[i] = 0;
        for (size_t j = 0; j < n; j++) {
            double dot = 0;
            for (size_t k = 0; k < n; k++)
                dot += s->m[j * two + n + k] * s->g[i * n + k];
            s->d[i] += dot * dot / (s->norm[j] * s->norm[j]);
        }
        s->trace += s->v[i] * s->d[i];
        most = fmax(most, s->d[i]);
    }
    return most / s->trace - 1;
}

/* Weights that are 0 in the optimum shrink with each update, but never to 0. */
static void drop_traces(design *s)
{
    const double trace = 1e-8;
    double sum = 0;
    for (int i = 0; i < s->candidates; i++)
        sum += s->v[i] > trace ? s->v[i] : 0;
    for (int i = 0; i < s->candidates; i++)
        s->v[i] = s->v[i] > trace ? s->v[i] / sum : 0;
}

static lt_status optimise(design *s, double *gap)
{
    enum { UPDATES = 200000 };
    const double enough = 1e-4, near = 0.9 * enough;
    for (int i = 0; i < UPDATES; i++) {
        *gap = derive(s);
        if (*gap < 0 && i == 0)
            return lt_fail(LT_E_ARG, "design: the %d candidates do not determine %d columns",
                           s->candidates, s->columns);
        if (*gap <= near) {
            drop_traces(s);
            *gap = derive(s);
            if (*gap >= 0 && *gap <= enough)
                return LT_OK;
        }
        for (int k = 0; k < s->candidates; k++)
            s->v[k] *= sqrt(s->d[k] / s->trace);
    }
    return lt_fail(LT_E_ARG, "design: after %d updates the gap is %g, want %g", UPDATES, *gap,
                   enough);
}

lt_status lt_design(double *weight, double *gap, const double *f, int candidates, int columns,
                    const double *cost, double budget)
{
    design s;
    double last = 0;
    LT_TRY(check(f, candidates, columns, cost, budget));
    LT_TRY(design_new(&s, f, candidates, columns, cost));
    const lt_status st = optimise(&s, &last);
    for (int i = 0; !st && i < candidates; i++)
        weight[i] = s.v[i] * budget / (cost ? cost[i] : 1);
    if (!st && gap)
        *gap = last;
    lt_free(s.g);
    return st;
}
