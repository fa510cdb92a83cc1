/* Shampoo's matrices: batches of equal jobs, and the kernels around the libraries' calls. */
#ifndef LT_CUDA_MATRICES_H
#define LT_CUDA_MATRICES_H

#include "cuda.h"
#include "fold.h"

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

/* to[k] = from[k] (transposed), between lists of pointers and matrices in a row. */
void lt_squares_gather(lt_cuda_stream stream, void *const *from, int count, int64_t n, bool wide,
                       void *to, bool transpose);
void lt_squares_scatter(lt_cuda_stream stream, const void *from, int count, int64_t n, bool wide,
                        void *const *to, bool transpose);
/* to[k][i] = from[k * n + i]; bad[k] is set where one is not finite. */
void lt_rows_scatter(lt_cuda_stream stream, const void *from, int count, int64_t n, bool wide,
                     void *const *to, int *bad);

/* How inverses are computed: in double; by three products of TF32 for each of floats; by one. */
typedef enum lt_inverse_kind {
    LT_INVERSE_DOUBLE,
    LT_INVERSE_FLOAT,
    LT_INVERSE_TF32,
    LT_INVERSE_KINDS
} lt_inverse_kind;

/* Matrices [n, n] of one kind, each list in a row. */
typedef struct lt_inverses {
    lt_cuda *c;
    lt_inverse_kind kind;
    int64_t n;
    int count;
    char *a, *x, *made; /* what is to be inverted, and is lost; I; the inverses: rows <= columns */
    char *low, *x_low;  /* work memory as large as one of these; if it is split only */
    void **a_leaf, **x_leaf; /* [leaves, count]: where blocks on the diagonal of a and x begin */
    int *info;               /* [leaves, count]: not 0 where one is not positive definite */
} lt_inverses;
/* Rows of the blocks on the diagonal that are not cut further. */
enum { LT_INVERSE_LEAF = 256 };
int64_t lt_inverse_leaves(int64_t n);
/* Whether products of floats take TF32: with more than one block, and rows that begin at 16 bytes. */
bool lt_inverse_has_tf32(int64_t n);
/* Whether factors of products are a high and a low part. */
bool lt_inverse_is_split(const lt_inverses *v);
/* Elements from a matrix's beginning to that of its block on the diagonal. */
size_t lt_inverse_leaf(int64_t n, int64_t leaf);
/* a, x and what of x_low it does not write are as lt_term_begin() leaves them. */
lt_status lt_inverses_run(const lt_inverses *v);
/* In place, of blocks [rows, columns] by columns, of matrices of n^2 elements: high = what TF32 holds of x, low = the rest. */
void lt_blocks_split(lt_cuda_stream stream, float *high, float *low, int64_t rows, int64_t columns,
                     int64_t n, int count);

/* A term of a sum of inverses; those of a sum are neighbours. */
typedef struct lt_term {
    const void *a;
    double *sum;
    int *failed; /* 1 + the term's number, of the first that is not positive definite */
    double shift, weight;
    const double *scale;    /* the shift's unit; NULL: 1 */
    int64_t number, begins; /* begins: 1 for a sum's first term, before which nothing is in it */
} lt_term;
/* What becomes of a sum: y = scale^(1 - exponent) sum + scale^-exponent constant I. */
typedef struct lt_sum_end {
    void *y;
    double constant, exponent;
    const double *scale; /* NULL: 1; else y's first element is NaN after a failure */
} lt_sum_end;
/* Of v, for rows <= columns: a = the term's a + shift I; x = I, but for the blocks that products make. Zeros in the rest,
 * and there in x_low. a_wide: the terms' are of doubles. */
void lt_term_begin(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v, bool a_wide);
/* sum += weight * inverse[k], both for rows <= columns, unless info[leaf * count + k] tells of a failure. */
void lt_terms_add(lt_cuda_stream stream, const lt_term *term, int count, int64_t n, bool wide,
                  const void *inverse, const int *info);
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
lt_status lt_matrix_dtype(const lt_cuda *c, lt_dtype dtype);

void lt_cuda_install_products_of_matrices(lt_backend *be);
void lt_cuda_install_functions_of_matrices(lt_backend *be);
void lt_cuda_install_rational(lt_backend *be);
void lt_cuda_install_small_matrices(lt_backend *be);
void lt_cuda_install_norms_of_matrices(lt_backend *be);
void lt_cuda_install_ritz(lt_backend *be);

/* All of them. */
static inline void lt_cuda_install_matrices(lt_backend *be)
{
    lt_cuda_install_products_of_matrices(be);
    lt_cuda_install_functions_of_matrices(be);
    lt_cuda_install_rational(be);
    lt_cuda_install_small_matrices(be);
    lt_cuda_install_norms_of_matrices(be);
    lt_cuda_install_ritz(be);
}

#ifdef __cplusplus
}
#endif

#endif
