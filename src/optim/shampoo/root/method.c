/* The table of root solvers, and the check that a solver suits a configuration. */

#include "optim/shampoo/root/root.h"

#include <math.h>

static bool is_one_over_integer(double exponent)
{
    int p, q;
    return lt_root_exponent_as_ratio(exponent, &p, &q) && q == 1;
}

static bool is_ratio(double exponent)
{
    int p, q;
    return lt_root_exponent_as_ratio(exponent, &p, &q);
}

static bool is_half_or_quarter(double exponent)
{
    return fabs(exponent - 0.5) < 1e-12 || fabs(exponent - 0.25) < 1e-12;
}

static bool is_at_most_one(double exponent)
{
    return exponent <= 1;
}

static const lt_root_method methods[] = {
    [LT_ROOT_EIGH] = {.name = "eigh", .solve = lt_root_eigh, .roots = true, .bases = true},
    [LT_ROOT_NEWTON] = {.name = "newton",
                        .solve = lt_root_newton,
                        .takes = is_one_over_integer,
                        .exponents = "1/p with an integer p",
                        .roots = true,
                        .tolerance = 0.08},
    [LT_ROOT_HIGHER_ORDER] = {.name = "higher_order",
                              .solve = lt_root_higher_order,
                              .takes = is_ratio,
                              .exponents = "q/p with integers q in [1,8], p in [1,64]",
                              .roots = true,
                              .tolerance = 0.08},
    [LT_ROOT_NEWTON_DB] = {.name = "newton_db",
                           .solve = lt_root_newton_db,
                           .takes = is_half_or_quarter,
                           .exponents = "1/2 or 1/4",
                           .roots = true,
                           .tolerance = 0.08},
    [LT_ROOT_QR] = {.name = "qr",
                    .solve = lt_root_qr,
                    .bases = true,
                    .needs_old = true,
                    .tolerance = HUGE_VAL}, /* one step per refresh, without an error bound */
    [LT_ROOT_RATIONAL] = {.name = "rational",
                          .solve = lt_root_rational,
                          .takes = is_at_most_one,
                          .exponents = "in (0,1]",
                          .roots = true,
                          .tolerance = 0.08},
};
enum { METHODS = sizeof methods / sizeof *methods };

const lt_root_method *lt_root_method_of(lt_root_solver solver)
{
    return &methods[solver];
}

const char *lt_root_solver_name(int solver)
{
    return solver >= 0 && solver < METHODS ? methods[solver].name : NULL;
}

double lt_root_tolerance(const lt_shampoo_config *config)
{
    const double own = lt_root_method_of(config->root_solver)->tolerance;
    return config->solver_tolerance > 0 ? config->solver_tolerance : own;
}

static bool keeps_basis(const lt_shampoo_config *c)
{
    return c->preconditioner != LT_PRECONDITIONER_ROOT && c->preconditioner != LT_PRECONDITIONER_KL;
}

lt_status lt_root_check(const lt_shampoo_config *c, double exponent, const char *optim)
{
    const char *name = lt_root_solver_name((int)c->root_solver);
    if (!name)
        return lt_fail(LT_E_ARG, "%s: invalid root_solver %d", optim, (int)c->root_solver);
    const lt_root_method *m = lt_root_method_of(c->root_solver);
    if (!(keeps_basis(c) ? m->bases : m->roots))
        return lt_fail(
            LT_E_ARG, "%s: root_solver %s computes %s, but the preconditioner needs %s: use eigh",
            optim, name, m->roots ? "roots" : "eigenvectors", m->roots ? "eigenvectors" : "roots");
    if (c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE && c->root_solver != LT_ROOT_EIGH
        && c->preconditioner != LT_PRECONDITIONER_CORRECTED)
        return lt_fail(LT_E_ARG,
                       "%s: root_solver %s computes no eigenvalues, which epsilon_rule "
                       "pseudo_inverse needs: use eigh",
                       optim, name);
    if (exponent > 0 && m->takes && !m->takes(exponent))
        return lt_fail(LT_E_ARG, "%s: root_solver %s: exponent %g is not %s", optim, name, exponent,
                       m->exponents);
    return LT_OK;
}
