/* Inverses of positive definite matrices by matrix products, many of one size together:
 *
 *   A = [A11 .; A21 A22],  M = A21 X11^T,  S = A22 - M M^T,  X21 = -X22 M X11,  A^-1 = X^T X,
 *
 * where X, lower triangular, is the inverse of Cholesky's factor, and X11 and X22 are those of A11 and S, by the same
 * rule down to blocks of LEAF rows, which cuSOLVER and cuBLAS factor. 2 n^3 operations, all but n LEAF^2 of them in
 * products; a factor and a solve by the libraries take 10/3 n^3 outside of the tensor cores. Only triangular blocks
 * are inverted, whose condition is the root of A's. Du Croz & Higham, "Stability of methods for matrix inversion",
 * IMA J. Numer. Anal. 12, 1992, method 2B.
 *
 * Products of floats are three of TF32's: x = high + low, each of 11 bits, x y = high high + high low + low high but
 * for 2^-21 |x y|. Markidis et al., "NVIDIA tensor core programmability, performance & precision", IPDPSW 2018. */

#include "matrices.h"

#include <cublas_v2.h>
#include <cusolverDn.h>

enum { LEAF = LT_INVERSE_LEAF };

/* Blocks of all matrices: high part or all, and low part. */
typedef struct block {
    char *high, *low;
    cublasOperation_t op;
} block;

typedef struct extent {
    int64_t m, n, k;
} extent;

bool lt_inverse_has_tf32(int64_t n)
{
    return n > LEAF && n % 4 == 0;
}

static bool has_tf32(const lt_inverses *v)
{
    return v->kind != LT_INVERSE_DOUBLE && lt_inverse_has_tf32(v->n);
}

bool lt_inverse_is_split(const lt_inverses *v)
{
    return has_tf32(v) && v->kind == LT_INVERSE_FLOAT;
}

static size_t size_of(const lt_inverses *v)
{
    return v->kind == LT_INVERSE_DOUBLE ? sizeof(double) : sizeof(float);
}

static block at(const lt_inverses *v, char *high, char *low, int64_t row, int64_t column)
{
    const size_t bytes = (size_t)(column * v->n + row) * size_of(v);
    return (block){high + bytes, low ? low + bytes : NULL, CUBLAS_OP_N};
}

static block of_a(const lt_inverses *v, int64_t row, int64_t column)
{
    return at(v, v->a, v->low, row, column);
}

static block of_x(const lt_inverses *v, int64_t row, int64_t column)
{
    return at(v, v->x, v->x_low, row, column);
}

/* Its low parts lie where those of A do: one of the two is in use. */
static block of_made(const lt_inverses *v, int64_t row, int64_t column)
{
    return at(v, v->made, v->low, row, column);
}

static block transposed(block b)
{
    b.op = CUBLAS_OP_T;
    return b;
}

/* c = alpha a b + beta c. */
static lt_status multiply(const lt_inverses *v, extent e, double alpha, block a, block b,
                          double beta, char *c)
{
    const int m = (int)e.m, n = (int)e.n, k = (int)e.k, lead = (int)v->n;
    const int64_t apart = v->n * v->n;
    if (v->kind == LT_INVERSE_DOUBLE) {
        LT_CUBLAS_TRY(v->c, cublasDgemmStridedBatched(v->c->cublas, a.op, b.op, m, n, k, &alpha,
                                                      (const double *)a.high, lead, apart,
                                                      (const double *)b.high, lead, apart, &beta,
                                                      (double *)c, lead, apart, v->count));
        return LT_OK;
    }
    const float alpha_f = (float)alpha, beta_f = (float)beta;
    LT_CUBLAS_TRY(v->c, cublasSetMathMode(v->c->cublas, has_tf32(v) ? CUBLAS_TF32_TENSOR_OP_MATH
                                                                    : CUBLAS_DEFAULT_MATH));
    LT_CUBLAS_TRY(v->c, cublasSgemmStridedBatched(v->c->cublas, a.op, b.op, m, n, k, &alpha_f,
                                                  (const float *)a.high, lead, apart,
                                                  (const float *)b.high, lead, apart, &beta_f,
                                                  (float *)c, lead, apart, v->count));
    return LT_OK;
}

/* The same of split factors: small products first. */
static lt_status product(const lt_inverses *v, extent e, double alpha, block a, block b,
                         double beta, char *c)
{
    if (!lt_inverse_is_split(v))
        return multiply(v, e, alpha, a, b, beta, c);
    const block a_low = {a.low, NULL, a.op}, b_low = {b.low, NULL, b.op};
    LT_TRY(multiply(v, e, alpha, a_low, b, beta, c));
    LT_TRY(multiply(v, e, alpha, a, b_low, 1, c));
    return multiply(v, e, alpha, a, b, 1, c);
}

/* What is to be a factor of products. */
static void split(const lt_inverses *v, block b, int64_t rows, int64_t columns)
{
    if (lt_inverse_is_split(v))
        lt_blocks_split(v->c->stream[LT_CUDA_MAIN], (float *)b.high, (float *)b.low, rows, columns,
                        v->n, v->count);
}

/* X's block on the diagonal, from A's; it was I. */
static lt_status invert_leaf(const lt_inverses *v, int64_t first, int64_t rows)
{
    lt_cuda *c = v->c;
    const int n = (int)rows, lead = (int)v->n;
    const int64_t place = first / LEAF * v->count;
    void **a = v->a_leaf + place, **x = v->x_leaf + place;
    LT_CUBLAS_TRY(c, cublasSetMathMode(c->cublas, CUBLAS_DEFAULT_MATH));
    if (v->kind == LT_INVERSE_DOUBLE) {
        const double one = 1;
        LT_CUSOLVER_TRY(c, cusolverDnDpotrfBatched(c->cusolver, CUBLAS_FILL_MODE_LOWER, n,
                                                   (double **)a, lead, v->info + place, v->count));
        LT_CUBLAS_TRY(c, cublasDtrsmBatched(c->cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                            CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, &one,
                                            (const double *const *)a, lead, (double *const *)x,
                                            lead, v->count));
    } else {
        const float one = 1;
        LT_CUSOLVER_TRY(c, cusolverDnSpotrfBatched(c->cusolver, CUBLAS_FILL_MODE_LOWER, n,
                                                   (float **)a, lead, v->info + place, v->count));
        LT_CUBLAS_TRY(c, cublasStrsmBatched(c->cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER,
                                            CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, &one,
                                            (const float *const *)a, lead, (float *const *)x, lead,
                                            v->count));
    }
    split(v, of_x(v, first, first), rows, rows);
    return LT_OK;
}

/* The first part of a block: a power of 2 times LEAF, at least half of its rows. */
static int64_t first_part(int64_t rows)
{
    int64_t part = LEAF;
    while (2 * part < rows)
        part *= 2;
    return part;
}

/* X's rows [first, first + rows) up to the diagonal, from A's Schur complement there. */
static lt_status invert_factor(const lt_inverses *v, int64_t first, int64_t rows)
{
    if (rows <= LEAF)
        return invert_leaf(v, first, rows);
    const int64_t k = first_part(rows), m = rows - k, next = first + k;
    const block a = of_a(v, next, first), x = of_x(v, first, first), x21 = of_x(v, next, first);
    const block made = of_made(v, next, first);
    LT_TRY(invert_factor(v, first, k));
    split(v, a, m, k);
    LT_TRY(product(v, (extent){m, k, k}, 1, a, transposed(x), 0, made.high));
    split(v, made, m, k);
    LT_TRY(product(v, (extent){m, m, k}, -1, made, transposed(made), 1, of_a(v, next, next).high));
    LT_TRY(product(v, (extent){m, k, k}, 1, made, x, 0, a.high));
    LT_TRY(invert_factor(v, next, m));
    split(v, a, m, k);
    LT_TRY(product(v, (extent){m, k, m}, -1, of_x(v, next, next), a, 0, x21.high));
    split(v, x21, m, k);
    return LT_OK;
}

/* The lower blocks of X^T X: rows of X above a block of columns are 0 there. */
static lt_status square(const lt_inverses *v)
{
    const int64_t n = v->n, quarter = n / 4 / LEAF * LEAF;
    const int64_t most = quarter > LEAF ? quarter : LEAF;
    for (int64_t row = 0, rows; row < n; row += rows) {
        rows = n - row < 3 * most / 2 ? n - row : most;
        LT_TRY(product(v, (extent){rows, row + rows, n - row}, 1, transposed(of_x(v, row, row)),
                       of_x(v, row, 0), 0, of_made(v, row, 0).high));
    }
    return LT_OK;
}

int64_t lt_inverse_leaves(int64_t n)
{
    return (n + LEAF - 1) / LEAF;
}

size_t lt_inverse_leaf(int64_t n, int64_t leaf)
{
    return (size_t)(leaf * LEAF * (n + 1));
}

lt_status lt_inverses_run(const lt_inverses *v)
{
    LT_TRY(invert_factor(v, 0, v->n));
    return square(v);
}
