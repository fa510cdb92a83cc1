/* Square work matrices for the items of a set, and arithmetic on all of them at once. An item takes
 * part while its flag in `active` is set; every call is one call of the backend. */
#ifndef LT_OPTIM_SHAMPOO_ROOT_STACK_H
#define LT_OPTIM_SHAMPOO_ROOT_STACK_H

#include "optim/shampoo/root/root.h"

/* Part of a tensor as a contiguous view, from element at. */
lt_view lt_root_part(const lt_tensor *tensor, int64_t at, lt_shape shape);
/* Diagonal of a square. */
lt_view lt_root_diagonal(const lt_view *square);

/* A vector of any floating dtype to and from doubles on the host. */
lt_status lt_root_read_vector(lt_device *device, const lt_view *from, double *host);
lt_status lt_root_write_vector(lt_device *device, const double *host, const lt_view *to);

enum { LT_STACK_MOST = 7 };

typedef struct lt_stack {
    const lt_root_set *set;
    lt_tensor *buffer[LT_STACK_MOST];
    lt_tensor *one, *norms;
    int64_t *at; /* where each item begins in a buffer */
    bool *active;
    double *number;        /* one per item: what lt_stack_norms() read */
    double *scale, *error; /* the solver's, one per item */
    lt_mode_product_job *product;
    lt_vec_job *vec;
    lt_view *view;
} lt_stack;

/* buffers: how many. Close it also after a failure. */
lt_status lt_stack_open(lt_stack *s, const lt_root_set *set, int buffers);
void lt_stack_close(lt_stack *s);
lt_view lt_stack_view(const lt_stack *s, int buffer, size_t item);
void lt_stack_swap(lt_stack *s, int a, int b);
bool lt_stack_any(const lt_stack *s);

/* to = left right, or left^T right; all different. */
lt_status lt_stack_product(lt_stack *s, int to, int left, int right, bool transpose);
/* to = a * scale[i] * from + b * to; scale NULL: 1. */
lt_status lt_stack_combine(lt_stack *s, int to, double a, const double *scale, int from, double b);
/* to += c I. */
lt_status lt_stack_add_identity(lt_stack *s, int to, double c);
/* to = scale[i] A, to = the item's old matrix, result = scale[i] * from. */
lt_status lt_stack_load(lt_stack *s, int to, const double *scale);
lt_status lt_stack_load_old(lt_stack *s, int to);
lt_status lt_stack_store(lt_stack *s, const double *scale, int from);
/* Frobenius norms of the buffer, or (buffer < 0) of the items' A, to s->number. */
lt_status lt_stack_norms(lt_stack *s, int buffer);

#endif
