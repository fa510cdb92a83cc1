/* Tables of functions whose gradients are checked in double on ref. */
#ifndef LT_TESTS_GRADIENTS_H
#define LT_TESTS_GRADIENTS_H

#include "lather/ext/gradcheck.h"
#include "lather/ops.h"

enum { MAX_INPUTS = 4, MAX_CONSTANTS = 2 };

/* Values of an input. */
typedef enum fill {
    UNIFORM,   /* -1..1 */
    FAR,       /* at least 0.1 away from 0 */
    TWO_SIDED, /* alternately near -1 and near 1, also after batch norm */
    NEAR_ONE,  /* 0.8..1.2 */
    SMALL,     /* -0.1..0.1 */
    DISTINCT,  /* differences of at least 0.005 */
    GRID,      /* multiples of 2^-6: exact in every floating dtype, also after steps of 2^-6 */
    INDICES,   /* i32, 0..2 */
    LABELS     /* INDICES, with some LT_IGNORED_LABEL */
} fill;

typedef struct input {
    lt_shape shape;
    fill fill;
} input;

typedef struct grad_row {
    const char *name;
    lt_gradcheck_fn *f; /* context: lt_tensor *[MAX_CONSTANTS] */
    int inputs, constants;
    input in[MAX_INPUTS];
    input constant[MAX_CONSTANTS];
    double step; /* 0: the default */
    bool eval;   /* running statistics in batch norm, no dropout */
    bool broken; /* control: the check must reject this row */
} grad_row;

/* Defines a row's function of the tape t and the inputs `in`. */
#define FUNCTION(name, ...)                                           \
    static lt_tensor *name(lt_tape *t, lt_tensor *const *in, void *c) \
    {                                                                 \
        (void)c;                                                      \
        return __VA_ARGS__;                                           \
    }                                                                 \
    _Static_assert(1, "a semicolon follows")

/* Returns y^2 + 3y, whose readers of y have one order on the tape: that in which arguments are evaluated is the compiler's. */
static inline lt_tensor *read_by_two(lt_tape *t, lt_tensor *y)
{
    lt_tensor *square = lt_mul(t, y, y);
    return lt_add(t, square, lt_scale(t, y, 3));
}

/* A file's table: returns row i, or NULL past the end. */
typedef const grad_row *grad_rows_fn(size_t i);
grad_rows_fn math_rows, pointwise_rows, product_rows, norm_rows, pool_rows, attention_rows,
    shape_rows, select_rows, loss_rows;

#endif
