/* Inverts positive definite matrices by matrix products, several sizes concurrently:
 *
 *   A = [A11 .; A21 A22],  M = A21 X11^T,  S = A22 - M M^T,  X21 = -X22 M X11,  A^-1 = X^T X,
 *
 * where X, lower triangular, is the inverse of Cholesky's factor, and X11 and X22 are those of A11 and S, by the same
 * recursion down to blocks of LEAF rows, which cuSOLVER and cuBLAS factor: first those of all matrices, then the
 * second ones, because these calls, whose panels depend on each other, should be few. Only triangular blocks are
 * inverted, whose condition number is the square root of A's. Du Croz & Higham, "Stability of methods for matrix
 * inversion", IMA J. Numer. Anal. 12, 1992, method 2B. Products are of LEAF rows or columns at a time, which skips
 * the zeros of triangles and half of symmetric results: n^3 operations and a few n^2 LEAF.
 *
 * A product of floats is three in TF32: x = high + low, each of 11 bits, x y = high high + high low + low high with
 * an error of 2^-21 |x y|. Markidis et al., "NVIDIA tensor core programmability, performance & precision", IPDPSW
 * 2018. */

#include "matrices.h"

#include <cublas_v2.h>
#include <cusolverDn.h>

/* Blocks are padded to multiples of PANEL, the block size of LAPACK's xPOTRF (ilaenv.f). */
enum { LEAF = LT_INVERSE_LEAF, PANEL = 64 };

/* A block of all matrices: high part, or the whole, and low part. */
typedef struct block {
    void *high, *low;
    cublasOperation_t op;
} block;

typedef struct gemm_size {
    int64_t m, n, k;
    int count;
} gemm_size;

bool lt_inverse_has_tf32(int64_t n)
{
    return n > LEAF && n % 4 == 0;
}

int64_t lt_inverse_padded_side(int64_t n)
{
    return n < LEAF ? (n + PANEL - 1) / PANEL * PANEL : LEAF;
}

static block block_at(const lt_inverses *v, char *high, char *low, int64_t row, int64_t column)
{
    const size_t size = v->wide ? sizeof(double) : sizeof(float);
    const size_t bytes = (size_t)(column * v->n + row) * size;
    return (block){high + bytes, v->split ? low + bytes : NULL, CUBLAS_OP_N};
}

static block a_block(const lt_inverses *v, int64_t row, int64_t column)
{
    return block_at(v, v->a, v->low, row, column);
}

static block x_block(const lt_inverses *v, int64_t row, int64_t column)
{
    return block_at(v, v->x, v->x_low, row, column);
}

/* Its low parts share the memory of A's: only one of the two is in use. */
static block inverse_block(const lt_inverses *v, int64_t row, int64_t column)
{
    return block_at(v, v->made, v->low, row, column);
}

static block transpose_block(block b)
{
    b.op = CUBLAS_OP_T;
    return b;
}

/* c = alpha a b + beta c. */
static lt_status multiply_strided(const lt_inverses *v, gemm_size e, double alpha, block a, block b,
                                  double beta, void *to)
{
    lt_cuda *c = v->c;
    const int m = (int)e.m, n = (int)e.n, k = (int)e.k, lead = (int)v->n;
    const int64_t apart = v->n * v->n;
    const lt_factor product = lt_make_factor(v->wide, alpha), kept = lt_make_factor(v->wide, beta);
    if (!v->wide)
        LT_CUBLAS_TRY(c, cublasSetMathMode(c->cublas, lt_inverse_has_tf32(v->n)
                                                          ? CUBLAS_TF32_TENSOR_OP_MATH
                                                          : CUBLAS_DEFAULT_MATH));
    LT_WIDE_TRY(LT_CUBLAS_TRY, c, v->wide, cublas, gemmStridedBatched, c->cublas, a.op, b.op, m, n,
                k, (const void *)&product, a.high, lead, apart, b.high, lead, apart,
                (const void *)&kept, to, lead, apart, e.count);
    return LT_OK;
}

/* Multiplies blocks of all matrices; adds the two products with low parts for matrices split for TF32. */
static lt_status multiply_split(const lt_inverses *v, gemm_size e, double alpha, block a, block b,
                                double beta, block to)
{
    e.count = v->count;
    LT_TRY(multiply_strided(v, e, alpha, a, b, beta, to.high));
    if (!v->split)
        return LT_OK;
    const block a_low = {a.low, NULL, a.op}, b_low = {b.low, NULL, b.op};
    e.count = v->split;
    LT_TRY(multiply_strided(v, e, alpha, a, b_low, 1, to.high));
    return multiply_strided(v, e, alpha, a_low, b, 1, to.high);
}

/* Splits a block that is a factor of later products. */
static void split_block(const lt_inverses *v, block b, int64_t rows, int64_t columns)
{
    if (v->split)
        lt_blocks_split(v->c->stream[LT_CUDA_MAIN], b.high, b.low, rows, columns, v->n, v->split);
}

/* Returns the end of the panel of `size` rows or columns that begins at `begin`. Elements of X above its diagonal
 * blocks are not read. */
static int64_t panel_end(const lt_inverses *v, int64_t begin, int64_t size)
{
    const int64_t panel = v->wide || !lt_inverse_has_tf32(v->n) ? LEAF / 2 : LEAF;
    return size - begin < panel ? size : begin + panel;
}

/* Computes X's diagonal blocks from A's. */
static lt_status invert_leaves(lt_cuda *c, const lt_leaves *v, bool wide, const lt_leaf_work *w)
{
    const int n = (int)v->side, count = (int)v->count;
    lt_leaves_pad(c->stream[LT_CUDA_MAIN], v, wide, w);
    LT_CUBLAS_TRY(c, cublasSetMathMode(c->cublas, CUBLAS_DEFAULT_MATH));
    const lt_factor one = lt_make_factor(wide, 1);
    LT_WIDE_TRY(LT_CUSOLVER_TRY, c, wide, cusolverDn, potrfBatched, c->cusolver,
                CUBLAS_FILL_MODE_LOWER, n, (void *)w->a_at, n, w->info, count);
    LT_WIDE_TRY(LT_CUBLAS_TRY, c, wide, cublas, trsmBatched, c->cublas, CUBLAS_SIDE_LEFT,
                CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, (const void *)&one,
                (void *)w->a_at, n, (void *)w->x_at, n, count);
    lt_leaves_copy_back(c->stream[LT_CUDA_MAIN], v, wide, w);
    return LT_OK;
}

/* Returns a list's diagonal blocks that begin at row `first`. */
static lt_leaf make_leaf(const lt_inverses *v, int64_t first, int64_t place)
{
    const block a = a_block(v, first, first), x = x_block(v, first, first);
    return (lt_leaf){.a = a.high,
                     .x = x.high,
                     .x_low = v->split ? x.low : x.high,
                     .bad = v->bad,
                     .n = v->n,
                     .rows = v->n - first < LEAF ? v->n - first : LEAF,
                     .first = place,
                     .split = v->split};
}

/* Inverts the diagonal blocks at row `first` of all lists that have one, blocks of equal padded size in one call. */
static lt_status invert_diagonal_blocks(const lt_inverses *v, int lists, int64_t first,
                                        const lt_leaf_work *w)
{
    for (int64_t side = PANEL; side <= LEAF; side += PANEL) {
        lt_leaves leaves = {.side = side, .number = first / LEAF};
        for (int i = 0; i < lists; i++)
            if (v[i].n > first && lt_inverse_padded_side(v[i].n - first) == side) {
                leaves.list[leaves.lists++] = make_leaf(&v[i], first, leaves.count);
                leaves.count += v[i].count;
            }
        if (leaves.lists)
            LT_TRY(invert_leaves(v->c, &leaves, v->wide, w));
    }
    return LT_OK;
}

/* After X11, of k columns from `first`: computes M, the Schur complement of the next m rows, and M X11 in place of
 * A21. */
static lt_status begin_second_half(const lt_inverses *v, int64_t first, int64_t k, int64_t m)
{
    const int64_t next = first + k;
    if (first) /* else lt_term_begin() has split it */
        split_block(v, a_block(v, next, first), m, k);
    for (int64_t j = 0, end; j < k; j = end) {
        end = panel_end(v, j, k);
        LT_TRY(multiply_split(v, (gemm_size){m, end - j, end, 0}, 1, a_block(v, next, first),
                              transpose_block(x_block(v, first + j, first)), 0,
                              inverse_block(v, next, first + j)));
    }
    split_block(v, inverse_block(v, next, first), m, k);
    for (int64_t j = 0, end; j < m; j = end) {
        end = panel_end(v, j, m);
        const block rows = inverse_block(v, next + j, first);
        LT_TRY(multiply_split(v, (gemm_size){m - j, end - j, k, 0}, -1, rows, transpose_block(rows),
                              1, a_block(v, next + j, next + j)));
    }
    for (int64_t j = 0, end; j < k; j = end) {
        end = panel_end(v, j, k);
        LT_TRY(multiply_split(v, (gemm_size){m, end - j, k - j, 0}, 1,
                              inverse_block(v, next, first + j), x_block(v, first + j, first + j),
                              0, a_block(v, next, first + j)));
    }
    return LT_OK;
}

/* After X22: computes X21. */
static lt_status finish_second_half(const lt_inverses *v, int64_t first, int64_t k, int64_t m)
{
    const int64_t next = first + k;
    split_block(v, a_block(v, next, first), m, k);
    for (int64_t j = 0, end; j < m; j = end) {
        end = panel_end(v, j, m);
        LT_TRY(multiply_split(v, (gemm_size){end - j, k, end, 0}, -1, x_block(v, next + j, next),
                              a_block(v, next, first), 0, x_block(v, next + j, first)));
    }
    split_block(v, x_block(v, next, first), m, k);
    return LT_OK;
}

/* The recursion's work between two diagonal blocks, the first of which ends at row `done`: finishes second halves
 * that end there, from small to large, then begins the second half after the first half that ends there. First halves
 * have LEAF times a power of 2 rows. */
static lt_status combine_halves(const lt_inverses *v, int64_t done)
{
    for (int64_t k = LEAF; k < v->n; k *= 2) {
        const int64_t first = (done - 1) / (2 * k) * (2 * k), next = first + k;
        if (done == next && done < v->n)
            return begin_second_half(v, first, k, v->n - next < k ? v->n - next : k);
        if (done > next)
            LT_TRY(finish_second_half(v, first, k, done - next));
    }
    return LT_OK;
}

/* Computes the lower blocks of X^T X: X is 0 above the diagonal. */
static lt_status multiply_xt_x(const lt_inverses *v)
{
    const int64_t n = v->n;
    for (int64_t row = 0, end; row < n; row = end) {
        end = panel_end(v, row, n);
        LT_TRY(multiply_split(v, (gemm_size){end - row, end, n - row, 0}, 1,
                              transpose_block(x_block(v, row, row)), x_block(v, row, 0), 0,
                              inverse_block(v, row, 0)));
    }
    return LT_OK;
}

lt_status lt_inverses_run(const lt_inverses *v, int lists, const lt_leaf_work *work)
{
    for (int64_t first = 0; first < v->n; first += LEAF) {
        LT_TRY(invert_diagonal_blocks(v, lists, first, work));
        for (int i = 0; i < lists; i++)
            if (v[i].n > first)
                LT_TRY(combine_halves(&v[i], v[i].n - first < LEAF ? v[i].n : first + LEAF));
    }
    for (int i = 0; i < lists; i++)
        LT_TRY(multiply_xt_x(&v[i]));
    return LT_OK;
}
