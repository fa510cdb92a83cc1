/* The table of solvers, and which of them can do what. */

#include "optim/shampoo/root/root.h"

#include <math.h>

static lt_status check_newton(double exponent)
{
    int p, q;
    if (lt_root_ratio(exponent, &p, &q) && q == 1)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "shampoo: root_solver newton: exponent %g is not 1/p with an integer p",
                   exponent);
}

static lt_status check_higher_order(double exponent)
{
    int p, q;
    if (lt_root_ratio(exponent, &p, &q))
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "shampoo: root_solver higher_order: exponent %g is not q/p with integers q in "
                   "[1,8], p in [1,64]",
                   exponent);
}

static lt_status check_newton_db(double exponent)
{
    if (fabs(exponent - 0.5) < 1e-12 || fabs(exponent - 0.25) < 1e-12)
        return LT_OK;
    return lt_fail(LT_E_ARG, "shampoo: root_solver newton_db: exponent %g is not 1/2 or 1/4",
                   exponent);
}

static lt_status check_rational(double exponent)
{
    if (exponent <= 1)
        return LT_OK;
    return lt_fail(LT_E_ARG, "shampoo: root_solver rational: exponent %g is not in (0,1]",
                   exponent);
}

static const lt_root_method methods[] = {
    [LT_ROOT_EIGH] = {.name = "eigh", .solve = lt_root_eigh, .roots = true, .bases = true},
    [LT_ROOT_NEWTON] = {.name = "newton",
                        .solve = lt_root_newton,
                        .check = check_newton,
                        .roots = true,
                        .tolerance = 0.08},
    [LT_ROOT_HIGHER_ORDER] = {.name = "higher_order",
                              .solve = lt_root_higher_order,
                              .check = check_higher_order,
                              .roots = true,
                              .tolerance = 0.08},
    [LT_ROOT_NEWTON_DB] = {.name = "newton_db",
                           .solve = lt_root_newton_db,
                           .check = check_newton_db,
                           .roots = true,
                           .tolerance = 0.08},
    [LT_ROOT_QR] = {.name = "qr",
                    .solve = lt_root_qr,
                    .bases = true,
                    .needs_old = true,
                    .tolerance = HUGE_VAL}, /* one step a refresh, as it comes */
    [LT_ROOT_TRACKED] = {.name = "tracked",
                         .solve = lt_root_tracked,
                         .bases = true,
                         .needs_old = true,
                         .tolerance = 0.1},
    [LT_ROOT_RATIONAL] = {.name = "rational",
                          .solve = lt_root_rational,
                          .check = check_rational,
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

lt_status lt_root_check(const lt_shampoo_config *c, double exponent)
{
    const char *name = lt_root_solver_name((int)c->root_solver);
    if (!name)
        return lt_fail(LT_E_ARG, "shampoo: root_solver %d is none", (int)c->root_solver);
    const lt_root_method *m = lt_root_method_of(c->root_solver);
    if (!(keeps_basis(c) ? m->bases : m->roots))
        return lt_fail(
            LT_E_ARG, "shampoo: root_solver %s gives %s, the preconditioner keeps %s: take eigh",
            name, m->roots ? "roots" : "eigenvectors", m->roots ? "eigenvectors" : "roots");
    if (c->epsilon_rule == LT_EPSILON_PSEUDO_INVERSE && c->root_solver != LT_ROOT_EIGH)
        return lt_fail(LT_E_ARG,
                       "shampoo: root_solver %s sees no eigenvalues that epsilon_rule "
                       "pseudo_inverse could cut: take eigh",
                       name);
    return exponent > 0 && m->check ? m->check(exponent) : LT_OK;
}
