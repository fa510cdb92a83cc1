/* Shampoo's matrices: batches of jobs of equal size, and kernels around library calls. */
#ifndef LT_CUDA_MATRICES_H
#define LT_CUDA_MATRICES_H

#include "tensor/backend/cuda/cuda.h"
#include "unfold.h"

#include "lather/ext/fail.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Properties that the jobs of one batched library call have in common. */
typedef struct lt_batch_key {
    int64_t n, rest;
    lt_dtype dtype;
    double alpha, beta;
    bool transpose, by_columns;
} lt_batch_key;
bool lt_batch_key_same(const lt_batch_key *a, const lt_batch_key *b);
/* Sorts jobs stably so that equal keys are adjacent, large ones first; order [count]. Errors: LT_E_NOMEM. */
lt_status lt_batch_sort(const lt_batch_key *key, size_t count, size_t *order);
/* Returns the end of the batch that begins at order[begin], of at most `limit` bytes at `bytes` per job. */
size_t lt_batch_end(const lt_batch_key *key, const size_t *order, size_t begin, size_t count,
                    size_t bytes, size_t limit);

/* Divides one allocation into parts aligned to 256 bytes. */
typedef struct lt_carver {
    char *begin; /* NULL: only counts the bytes */
    size_t used;
} lt_carver;
void *lt_carve(lt_carver *carver, size_t bytes);

/* Calls the function of a library for doubles or for floats, libraryDname() or librarySname(), by TRY: LT_CUBLAS_TRY or
 * LT_CUSOLVER_TRY. Arguments that point to elements are void pointers. */
#define LT_WIDE_TRY(TRY, c, wide, library, name, ...) \
    do {                                              \
        if (wide)                                     \
            TRY(c, library##D##name(__VA_ARGS__));    \
        else                                          \
            TRY(c, library##S##name(__VA_ARGS__));    \
    } while (0)

/* A factor in host memory, for such a call. */
typedef union lt_factor {
    double wide;
    float narrow;
} lt_factor;
static inline lt_factor lt_make_factor(bool wide, double x)
{
    lt_factor f;
    if (wide)
        f.wide = x;
    else
        f.narrow = (float)x;
    return f;
}

/* Copies a list to device memory as parameters of kernels; bytes: a multiple of 8. `from` may be freed afterwards,
 * also during a capture. */
void lt_send_list(lt_cuda_stream stream, void *to, const void *from, size_t bytes);

/* Kernels on lists of `count` items with `blocks` blocks together. wide: elements are doubles, else floats. finite:
 * NULL, or a flag in device memory; where it is 0, zeros are gathered and nothing is scattered. */
void lt_unfolding_gather(lt_cuda_stream stream, const lt_gather *list, int count, int64_t blocks,
                         bool wide, const int32_t *finite);
void lt_unfolding_scatter(lt_cuda_stream stream, const lt_gather *list, int count, int64_t blocks,
                          bool wide, const int32_t *finite);
void lt_narrow_products(lt_cuda_stream stream, const lt_narrow *list, int count, int64_t blocks,
                        bool wide);
/* partial: workspace of LT_SHORT_PAIRS sums per block. */
void lt_short_grams(lt_cuda_stream stream, const lt_short *list, int count, int64_t blocks,
                    double *partial, bool wide, const int32_t *finite);
void lt_short_products(lt_cuda_stream stream, const lt_short *list, int count, int64_t blocks,
                       bool wide, const int32_t *finite);
void lt_mirror_tiles(lt_cuda_stream stream, const lt_mirror *list, int count, int64_t blocks,
                     bool wide, const int32_t *finite);
/* Writes alpha and beta to `to`, or 0 and 1 where *finite is 0. */
void lt_coefficients(lt_cuda_stream stream, bool wide, double alpha, double beta,
                     const int32_t *finite, void *to);

/* to[k][i] = from[k * n + i]; sets bad[k] if an element is not finite. */
void lt_rows_scatter(lt_cuda_stream stream, const void *from, int count, int64_t n, bool wide,
                     void *const *to, int *bad);

/* Positive definite matrices [n, n], column-major, contiguous in each array. Only lower triangles and diagonal blocks
 * of a, x and made are used. */
typedef struct lt_inverses {
    lt_cuda *c;
    int64_t n;
    int count, split;   /* number of matrices; of the first ones, stored as a high and a low part */
    bool wide, a_wide;  /* they are doubles; the matrices of their terms are */
    char *a, *x, *made; /* matrices, which are overwritten; workspace; inverses */
    char *low, *x_low;  /* low parts of split matrices */
    int *bad;           /* [count]: nonzero for a matrix that is not positive definite */
} lt_inverses;
enum {
    LT_INVERSE_LEAF = 256, /* rows of the diagonal blocks at which the recursion ends */
    LT_INVERSE_LISTS = 64
};
/* Returns whether products of floats use TF32: for more than one diagonal block and columns aligned to 16 bytes. */
bool lt_inverse_has_tf32(int64_t n);
/* Returns the padded size of a matrix's first diagonal block. */
int64_t lt_inverse_padded_side(int64_t n);

/* Workspace for one padded diagonal block of each matrix. */
typedef struct lt_leaf_work {
    void *a, *x, **a_at, **x_at;
    int *info;
} lt_leaf_work;
/* Inverts all lists together, all of doubles or all of floats, the largest n first, after lt_term_begin(). */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
lt_status lt_inverses_run(const lt_inverses *list, int lists, const lt_leaf_work *work);

/* One diagonal block of each matrix of a list; and those of several lists, padded to equal squares. */
typedef struct lt_leaf {
    void *a, *x, *x_low; /* blocks of the first matrix */
    int *bad;
    int64_t n, rows, first, split; /* first: index of its first square */
} lt_leaf;
typedef struct lt_leaves {
    lt_leaf list[LT_INVERSE_LISTS];
    int64_t lists, count, side, number; /* number: of the diagonal block, from 0 */
} lt_leaves;
/* Copies lower triangles to a, padded with ones on the diagonal, sets x to identity matrices, and writes the lists of
 * addresses. */
void lt_leaves_pad(lt_cuda_stream stream, const lt_leaves *v, bool wide, const lt_leaf_work *to);
/* Copies x back to the matrices, in two parts if they are split, and merges the infos into bad. */
void lt_leaves_copy_back(lt_cuda_stream stream, const lt_leaves *v, bool wide,
                         const lt_leaf_work *from);
/* Splits blocks [rows, columns], column-major, in place: high = x rounded to TF32, low = x - high. */
void lt_blocks_split(lt_cuda_stream stream, float *high, float *low, int64_t rows, int64_t columns,
                     int64_t n, int count);

/* A term of a sum of inverses. */
typedef struct lt_term {
    const void *a;
    double *sum;
    int *failed; /* 1 + number of the first term that is not positive definite; 0: none */
    double shift, weight;
    const double *scale;  /* unit of the shift; NULL: 1 */
    int64_t number, head; /* head: 1 for a list's first term of a sum */
    int64_t next,
        begins; /* distance to the sum's next term, or 0; begins: 1 for the sum's first term */
} lt_term;
/* Result of a sum: y = scale^(1 - exponent) sum + scale^-exponent constant I. */
typedef struct lt_sum_end {
    void *y;
    double constant, exponent;
    const double *scale; /* NULL: 1; else a failure sets y's first element to NaN */
    int64_t terms;       /* 0: the sum is 0 and its memory uninitialized */
} lt_sum_end;
/* a = the term's a + shift I, lower triangles. Split matrices: blocks that are factors before a product changes them
 * are split here. */
void lt_term_begin(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v);
/* sum += weight * inverse, lower triangles, unless a term of the sum is bad. */
void lt_terms_add(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v);
/* Computes the results; the sums, of which rows <= columns are read, are contiguous. */
void lt_sums_store(lt_cuda_stream stream, const double *sum, const lt_sum_end *to, int count,
                   int64_t n, bool wide, const int *failed);

/* rank[j]: rank of column j by descending diagonal. to: the columns in that order, contiguous. */
void lt_columns_sort(lt_cuda_stream stream, const void *a, int64_t n, bool wide, int *rank,
                     void *to);
/* sign[k] = sign of r[k,k]. */
void lt_columns_signs(lt_cuda_stream stream, const void *r, int64_t n, bool wide, double *sign);
void lt_columns_restore(lt_cuda_stream stream, const void *from, int64_t n, bool wide,
                        const int *rank, const double *sign, void *q);

/* Returns LT_OK for f32 and f64, else LT_E_UNSUPPORTED. */
static inline lt_status lt_check_matrix_dtype(const lt_cuda *c, lt_dtype dtype)
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
