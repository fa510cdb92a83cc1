/* The table of solvers, and which of them can do what. */

#include "optim/shampoo/root/root.h"

static const lt_root_method methods[] = {
    [LT_ROOT_EIGH] = {.name = "eigh", .solve = lt_root_eigh, .roots = true, .bases = true},
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

lt_status lt_root_check(const lt_shampoo_config *c, double exponent)
{
    const char *name = lt_root_solver_name((int)c->root_solver);
    (void)exponent;
    if (!name)
        return lt_fail(LT_E_ARG, "shampoo: root_solver %d is none", (int)c->root_solver);
    return LT_OK;
}
