/* The reference backend's entries and what they share. A kernel gathers its inputs from views of
 * any strides and dtype into row-major arrays, computes with plain loops, and scatters the result:
 * strides and 16-bit types are dealt with in array.c alone. */
#ifndef LT_REF_REF_H
#define LT_REF_REF_H

#include "base/alloc.h"

#include "lather/ext/backend.h"

/* Elements of a view. */
static inline int64_t lt_ref_count(const lt_view *view)
{
    int64_t count = 1;
    for (int d = 0; d < view->shape.ndim; d++)
        count *= view->shape.dim[d];
    return count;
}

/* True if an optional view is there. */
static inline bool lt_ref_has(const lt_view *view)
{
    return view && view->data;
}

/* Elements first .. first + count - 1 in row-major order, and back; rounding as in scatter. */
void lt_ref_load_f32(const lt_view *view, int64_t first, int64_t count, float *values);
void lt_ref_load_f64(const lt_view *view, int64_t first, int64_t count, double *values);
void lt_ref_store_f32(const lt_view *view, int64_t first, int64_t count, const float *values);
void lt_ref_store_f64(const lt_view *view, int64_t first, int64_t count, const double *values);

/* The elements as a row-major array, or NULL (no memory). Free with lt_free(). */
float *lt_ref_gather_f32(const lt_view *view);
double *lt_ref_gather_f64(const lt_view *view);
/* Sets all elements from a row-major array, rounding to nearest even. Integers: towards zero,
 * saturating, NaN to 0. */
void lt_ref_scatter_f32(const float *values, const lt_view *view);
void lt_ref_scatter_f64(const double *values, const lt_view *view);

/* The same, rounded to dtype if that is 16-bit: a weight as a 16-bit pass reads it. */
float *lt_ref_gather_rounded_f32(const lt_view *view, lt_dtype dtype);
double *lt_ref_gather_rounded_f64(const lt_view *view, lt_dtype dtype);

/* dy[0] + dy[1] if there are two addends, gathered. */
float *lt_ref_gather_pair_f32(const lt_view dy[2]);
double *lt_ref_gather_pair_f64(const lt_view dy[2]);

/* Compiled for float and for double. */
#define LT_REF_BOTH(type, entry) type lt_ref_##entry##_f32, lt_ref_##entry##_f64
LT_REF_BOTH(lt_binary_fn, add);
LT_REF_BOTH(lt_binary_fn, mul);
LT_REF_BOTH(lt_scale_fn, scale);
LT_REF_BOTH(lt_unary_fn, relu);
LT_REF_BOTH(lt_binary_fn, relu_grad);
LT_REF_BOTH(lt_dropout_fn, dropout);
LT_REF_BOTH(lt_normalize_fn, normalize);
LT_REF_BOTH(lt_pointwise_fn, pointwise);
LT_REF_BOTH(lt_pointwise_grad_fn, pointwise_grad);
LT_REF_BOTH(lt_sum_fn, sum);
LT_REF_BOTH(lt_matmul_fn, matmul);
LT_REF_BOTH(lt_linear_fn, linear);
LT_REF_BOTH(lt_conv2d_fn, conv2d);
LT_REF_BOTH(lt_conv2d_grad_x_fn, conv2d_grad_x);
LT_REF_BOTH(lt_conv2d_grad_w_fn, conv2d_grad_w);
LT_REF_BOTH(lt_batchnorm_stats_fn, batchnorm_stats);
LT_REF_BOTH(lt_batchnorm_apply_fn, batchnorm_apply);
LT_REF_BOTH(lt_batchnorm_grad_stats_fn, batchnorm_grad_stats);
LT_REF_BOTH(lt_batchnorm_grad_x_fn, batchnorm_grad_x);
LT_REF_BOTH(lt_group_norm_fn, group_norm);
LT_REF_BOTH(lt_group_norm_grad_fn, group_norm_grad);
LT_REF_BOTH(lt_maxpool2d_fn, maxpool2d);
LT_REF_BOTH(lt_maxpool2d_grad_fn, maxpool2d_grad);
LT_REF_BOTH(lt_avgpool2d_fn, avgpool2d);
LT_REF_BOTH(lt_avgpool2d_fn, avgpool2d_grad);

/* Compiled once: they compute in double and round on store. */
lt_fill_fn lt_ref_fill;
lt_unary_fn lt_ref_cast;
lt_count_up_fn lt_ref_count_up;
lt_batchnorm_finish_fn lt_ref_batchnorm_finish;
lt_softmax_xent_fn lt_ref_softmax_xent;
lt_softmax_xent_grad_fn lt_ref_softmax_xent_grad;
lt_topk_hits_fn lt_ref_topk_hits;
lt_grad_norm_fn lt_ref_grad_norm;
lt_loss_scale_fn lt_ref_loss_scale;
lt_sgd_fn lt_ref_sgd;
lt_adagrad_fn lt_ref_adagrad;
lt_adam_fn lt_ref_adam;
lt_lerp_fn lt_ref_lerp;
lt_vec_fn lt_ref_vec;
lt_gram_fn lt_ref_gram;
lt_mode_product_fn lt_ref_mode_product;
lt_eigh_fn lt_ref_eigh;
lt_rational_fn lt_ref_rational;
lt_qr_fn lt_ref_qr;
lt_rotations_fn lt_ref_rotations;
lt_frobenius_fn lt_ref_frobenius;

#endif
