/* Shampoo's matrices: batches of equal jobs, and the kernels around the libraries' calls. */
#ifndef LT_CUDA_MATRICES_H
#define LT_CUDA_MATRICES_H

#include "fold.h"
#include "tensor/backend/cuda/cuda.h"

#include "lather/ext/fail.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The jobs that one call of a library takes together: they agree in these. */
typedef struct lt_batch_key {
    int64_t n, rest;
    lt_dtype dtype;
    double alpha, beta;
    bool transpose, by_columns;
} lt_batch_key;
bool lt_batch_key_same(const lt_batch_key *a, const lt_batch_key *b);
/* Orders jobs so that equal keys are neighbours, else as they were; order has count places.
 * Errors: LT_E_NOMEM. */
lt_status lt_batch_sort(const lt_batch_key *key, size_t count, size_t *order);
/* End of the batch that begins at order[begin], of at most limit bytes if one job takes bytes. */
size_t lt_batch_end(const lt_batch_key *key, const size_t *order, size_t begin, size_t count,
                    size_t bytes, size_t limit);

/* Parts of one piece of memory, each aligned to 256 bytes. */
typedef struct lt_carver {
    char *begin; /* NULL: only counts */
    size_t used;
} lt_carver;
void *lt_carve(lt_carver *carver, size_t bytes);

/* Writes a list to device memory; bytes: a multiple of 8. from may be gone when it returns, in a
 * captured step too. */
void lt_send(lt_cuda_stream stream, void *to, const void *from, size_t bytes);

/* Kernels; count: of a list, blocks: of all its items, wide: they are doubles, else floats. finite NULL: always;
 * else 0 there: zeros are gathered, nothing is scattered. */
void lt_fold_gather(lt_cuda_stream stream, const lt_gather *list, int count, int64_t blocks,
                    bool wide, const int32_t *finite);
void lt_fold_scatter(lt_cuda_stream stream, const lt_gather *list, int count, int64_t blocks,
                     bool wide, const int32_t *finite);
void lt_narrow_products(lt_cuda_stream stream, const lt_narrow *list, int count, int64_t blocks,
                        bool wide);
/* partial: LT_SHORT_PAIRS sums of each block, work memory. */
void lt_short_grams(lt_cuda_stream stream, const lt_short *list, int count, int64_t blocks,
                    double *partial, bool wide, const int32_t *finite);
void lt_short_products(lt_cuda_stream stream, const lt_short *list, int count, int64_t blocks,
                       bool wide, const int32_t *finite);
void lt_mirror_tiles(lt_cuda_stream stream, const lt_mirror *list, int count, int64_t blocks,
                     bool wide, const int32_t *finite);
/* to: alpha and beta, or 0 and 1. */
void lt_coefficients(lt_cuda_stream stream, bool wide, double alpha, double beta,
                     const int32_t *finite, void *to);

/* to[k][i] = from[k * n + i]; bad[k] is set where one is not finite. */
void lt_rows_scatter(lt_cuda_stream stream, const void *from, int count, int64_t n, bool wide,
                     void *const *to, int *bad);

/* Positive definite matrices [n, n] of doubles or floats by columns, each list in a row. Of a, x and made the lower triangles
 * count, and the blocks on the diagonal. */
typedef struct lt_inverses {
    lt_cuda *c;
    int64_t n;
    int count, split;   /* matrices; of these the first, whose factors are a high and a low part */
    bool wide, a_wide;  /* they, and what their terms are made from, are doubles */
    char *a, *x, *made; /* what is to be inverted, and is lost; work memory; the inverses */
    char *low, *x_low;  /* work memory, as large as one of these for matrices that are split */
    int *bad;           /* [count]: becomes not 0 where one is not positive definite */
} lt_inverses;
enum {
    LT_INVERSE_LEAF = 256, /* rows of the blocks on the diagonal that are not cut further */
    LT_INVERSE_LISTS = 64
};
/* Whether products of floats take TF32: with more than one block, and rows that begin at 16 bytes. */
bool lt_inverse_has_tf32(int64_t n);
/* Rows that a matrix's first block on the diagonal is padded to. */
int64_t lt_inverse_side(int64_t n);

/* Work memory for a block on the diagonal of each matrix, of so many that their sides fit. */
typedef struct lt_leaf_work {
    void *a, *x, **a_at, **x_at;
    int *info;
} lt_leaf_work;
/* All lists in step, of doubles or of floats, the largest n first: a is as lt_term_begin() leaves it. */
lt_status lt_inverses_run(const lt_inverses *list, int lists, const lt_leaf_work *work);

/* A block on the diagonal of each matrix of a list; and those of several lists, padded to squares in a row. */
typedef struct lt_leaf {
    void *a, *x, *x_low; /* of the first matrix */
    int *bad;
    int64_t n, rows, first, split; /* first: its place among all */
} lt_leaf;
typedef struct lt_leaves {
    lt_leaf list[LT_INVERSE_LISTS];
    int64_t lists, count, side, number; /* number 0: the matrices' first blocks */
} lt_leaves;
/* a: their lower triangles and units on the rest of the diagonal; x: unit matrices; and where each of them begins. */
void lt_leaves_take(lt_cuda_stream stream, const lt_leaves *v, bool wide, const lt_leaf_work *to);
/* What became of x back to where the blocks belong, in parts where they are split, and the infos to bad. */
void lt_leaves_put(lt_cuda_stream stream, const lt_leaves *v, bool wide, const lt_leaf_work *from);
/* In place, of blocks [rows, columns] by columns, of matrices of n^2 elements: high = what TF32 holds of x, low = the rest. */
void lt_blocks_split(lt_cuda_stream stream, float *high, float *low, int64_t rows, int64_t columns,
                     int64_t n, int count);

/* A term of a sum of inverses. */
typedef struct lt_term {
    const void *a;
    double *sum;
    int *failed; /* 1 + the term's number, of the first that is not positive definite */
    double shift, weight;
    const double *scale;  /* the shift's unit; NULL: 1 */
    int64_t number, head; /* head: 1 for the first that a list has of its sum */
    int64_t next, begins; /* places to the sum's next, or 0; 1: nothing is in the sum before */
} lt_term;
/* What becomes of a sum: y = scale^(1 - exponent) sum + scale^-exponent constant I. */
typedef struct lt_sum_end {
    void *y;
    double constant, exponent;
    const double *scale; /* NULL: 1; else y's first element is NaN after a failure */
    int64_t terms;       /* 0: none, and the sum's memory is not set */
} lt_sum_end;
/* a = the term's a + shift I, lower triangles; in parts where the first blocks of columns, which no product changes before, are
 * factors. */
void lt_term_begin(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v);
/* sum += weight * inverse, lower triangles, unless one of a sum's is bad. */
void lt_terms_add(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v);
/* The sums, of which rows <= columns are read, lie in a row. */
void lt_sums_store(lt_cuda_stream stream, const double *sum, const lt_sum_end *to, int count,
                   int64_t n, bool wide, const int *failed);

/* rank[j]: place of column j by falling diagonal. to: the columns in that order, one after another. */
void lt_columns_sort(lt_cuda_stream stream, const void *a, int64_t n, bool wide, int *rank,
                     void *to);
/* sign[k]: of r[k,k]. */
void lt_columns_signs(lt_cuda_stream stream, const void *r, int64_t n, bool wide, double *sign);
void lt_columns_restore(lt_cuda_stream stream, const void *from, int64_t n, bool wide,
                        const int *rank, const double *sign, void *q);

/* LT_OK for f32 and f64, what the kernels are for. */
static inline lt_status lt_matrix_dtype(const lt_cuda *c, lt_dtype dtype)
{
    if (dtype == LT_F32 || dtype == LT_F64)
        return LT_OK;
    return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s: no kernel for %s", c->ordinal, c->operation,
                   lt_dtype_name(dtype));
}

#ifdef __cplusplus
}
#endif

#endif
