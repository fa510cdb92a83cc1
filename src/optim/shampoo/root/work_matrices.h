/* Square work matrices for the items of a set, and arithmetic on all of them at once. An item takes
 * part while its flag in `active` is set; every call is one call of the backend. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_WORK_MATRICES_H
#define LT_OPTIM_SHAMPOO_ROOT_WORK_MATRICES_H

#include "optim/shampoo/root/root.h"

/* Part of a tensor as a contiguous view, from element at. */
lt_view lt_root_part(const lt_tensor *tensor, int64_t at, lt_shape shape);
/* Diagonal of a square. */
lt_view lt_root_diagonal(const lt_view *square);

/* A vector of any floating dtype to and from doubles on the host. */
lt_status lt_root_read_vector(lt_device *device, const lt_view *from, double *host);
lt_status lt_root_write_vector(lt_device *device, const double *host, const lt_view *to);

enum { LT_MAX_WORK_BUFFERS = 7 };

typedef struct lt_work_matrices {
    const lt_root_set *set;
    lt_tensor *buffer[LT_MAX_WORK_BUFFERS];
    lt_tensor *one, *norms;
    int64_t *at; /* where each item begins in a buffer */
    bool *active;
    double *number;        /* one per item: what lt_work_norms() read */
    double *scale, *error; /* the solver's, one per item */
    lt_mode_product_job *product;
    lt_vec_job *vec;
    lt_view *view;
} lt_work_matrices;

/* buffers: how many. Close it also after a failure. */
lt_status lt_work_open(lt_work_matrices *s, const lt_root_set *set, int buffers);
void lt_work_close(lt_work_matrices *s);
lt_view lt_work_view(const lt_work_matrices *s, int buffer, size_t item);
void lt_work_swap(lt_work_matrices *s, int a, int b);
bool lt_work_any_active(const lt_work_matrices *s);

/* to = left right, or left^T right; all different. */
lt_status lt_work_product(lt_work_matrices *s, int to, int left, int right, bool transpose);
/* to = a * scale[i] * from + b * to; scale NULL: 1. */
lt_status lt_work_combine(lt_work_matrices *s, int to, double a, const double *scale, int from,
                          double b);
/* to += c I. */
lt_status lt_work_add_identity(lt_work_matrices *s, int to, double c);
/* to = scale[i] A, to = the item's old matrix, result = scale[i] * from. */
lt_status lt_work_load(lt_work_matrices *s, int to, const double *scale);
lt_status lt_work_load_old(lt_work_matrices *s, int to);
lt_status lt_work_store(lt_work_matrices *s, const double *scale, int from);
/* Frobenius norms of the buffer, or (buffer < 0) of the items' A, to s->number. */
lt_status lt_work_norms(lt_work_matrices *s, int buffer);

#endif
