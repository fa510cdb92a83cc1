/* Square work matrices for the items of a set, and batched arithmetic on them. Operations apply to items whose flag
 * in `active` is set; each is one backend call. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_WORK_MATRICES_H
#define LT_OPTIM_SHAMPOO_ROOT_WORK_MATRICES_H

#include "optim/shampoo/root/root.h"

/* Returns a contiguous view of part of a tensor, from element at. */
lt_view lt_root_part_view(const lt_tensor *tensor, int64_t at, lt_shape shape);
/* Returns the diagonal of a square matrix as a vector. */
lt_view lt_root_diagonal_view(const lt_view *square);
/* Sets the diagonal of a matrix of zeros to one, which is [1]. */
lt_status lt_root_set_identity(const lt_device *device, const lt_tensor *one, lt_view zeros);

/* Read a vector of any floating dtype into doubles on the host; write one from them. */
lt_status lt_root_read_vector(lt_device *device, const lt_view *from, double *host);
lt_status lt_root_write_vector(lt_device *device, const double *host, const lt_view *to);

enum { LT_MAX_WORK_BUFFERS = 7 };

typedef struct lt_work_matrices {
    const lt_root_set *set;
    lt_tensor *buffer[LT_MAX_WORK_BUFFERS];
    lt_tensor *one, *norms;
    int64_t *at; /* first element of each item in a buffer */
    bool *active;
    double *number;        /* one per item, read by lt_work_read_norms() */
    double *scale, *error; /* one per item: the solver's scaling factor and its last error */
    lt_mode_product_job *product;
    lt_vec_job *vec;
    lt_view *view;
} lt_work_matrices;

/* Allocates `buffers` matrices per item. Close it after a failure too. */
lt_status lt_work_open(lt_work_matrices *s, const lt_root_set *set, int buffers);
void lt_work_close(lt_work_matrices *s);
lt_view lt_work_view(const lt_work_matrices *s, int buffer, size_t item);
void lt_work_swap(lt_work_matrices *s, int a, int b);
bool lt_work_any_active(const lt_work_matrices *s);

/* Computes to = left right, or left^T right; three different buffers. */
lt_status lt_work_product(lt_work_matrices *s, int to, int left, int right, bool transpose);
/* Computes to = a * scale[i] * from + b * to for each item i; scale NULL: 1. */
lt_status lt_work_combine(lt_work_matrices *s, int to, double a, const double *scale, int from,
                          double b);
/* Computes to += c I. */
lt_status lt_work_add_identity(lt_work_matrices *s, int to, double c);
/* Load: to = scale[i] A. Load old: to = the item's old result. Store: result = scale[i] * from. */
lt_status lt_work_load_scaled(lt_work_matrices *s, int to, const double *scale);
lt_status lt_work_load_old(lt_work_matrices *s, int to);
lt_status lt_work_store_results(lt_work_matrices *s, const double *scale, int from);
/* Reads the Frobenius norms of a buffer, or (buffer < 0) of the items' A, to s->number. */
lt_status lt_work_read_norms(lt_work_matrices *s, int buffer);

#endif
