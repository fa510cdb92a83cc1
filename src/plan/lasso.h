/* The Lasso on a matrix that is fitted several times. */
#ifndef LT_PLAN_LASSO_H
#define LT_PLAN_LASSO_H

#include "lather/status.h"

/* Rows of a problem. */
typedef struct lt_lasso_rows {
    const double *a, *b; /* [rows,columns], [rows] */
    const int *fold;     /* [rows] */
    int rows, columns;
} lt_lasso_rows;

/* lt_lasso_choose() of rows that were checked. */
LT_MUST_CHECK lt_status lt_lasso_validate(double *penalty, double *error, const lt_lasso_rows *all);

#endif
