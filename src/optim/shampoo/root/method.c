/* The table of solvers, and which of them can do what. */

#include "optim/shampoo/root/root.h"

static lt_status check_rational(double exponent)
{
    if (exponent <= 1)
        return LT_OK;
    return lt_fail(LT_E_ARG, "shampoo: root_solver rational: exponent %g is not in (0,1]",
                   exponent);
}

static const lt_root_method methods[] = {
    [LT_ROOT_EIGH] = {.name = "eigh", .solve = lt_root_eigh, .roots = true, .bases = true},
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
