/* Non-negative least squares. */

#include "plan/active_set.h"
#include "plan/dense.h"

#include "lather/ext/fail.h"
#include "lather/fit.h"

lt_status lt_nnls(double *x, double *norm, const double *a, int rows, int columns, const double *b)
{
    lt_active_set s;
    LT_TRY(lt_dense_check("nnls", a, rows, columns, b));
    LT_TRY(lt_active_set_new(&s, a, rows, columns, b, false));
    s.positive = true;
    const lt_status st = lt_active_set_solve(&s);
    if (!st)
        lt_active_set_read(&s, x);
    if (!st && norm)
        *norm = lt_dense_residual(a, rows, columns, b, x, 0);
    lt_active_set_free(&s);
    return st;
}
