/** For writing a backend: the table a backend folder fills in. */
#ifndef LATHER_EXT_BACKEND_H
#define LATHER_EXT_BACKEND_H

#include "lather/ext/kernels.h"
#include "lather/ext/queues.h"

typedef enum lt_copy_kind { LT_COPY_IN, LT_COPY_OUT, LT_COPY_WITHIN } lt_copy_kind;

/** A device is opened by name: "cuda:1" is ordinal 1 of the backend "cuda". Entries are basic
 *  (never NULL in ref and cpu; NULL elsewhere is LT_E_UNSUPPORTED naming it) or fused (marked;
 *  NULL: the operation composes it from basic ones). All are called by the tape's thread and
 *  queued in order: a call may return before its work is done. Outputs are overwritten; inputs
 *  and outputs do not overlap unless an entry says "in place". Signatures: ext/kernels.h. */
typedef struct lt_backend {
    const char *name; /**< "ref", "cpu", "cuda" */

    /* Device and memory. */
    lt_status (*open)(void **ctx, int ordinal, const lt_device_config *config);
    void (*close)(void *ctx);
    lt_status (*alloc)(void *ctx, size_t bytes, void **out); /**< aligned to 64 bytes */
    void (*free)(void *ctx, void *data, size_t bytes);
    size_t (*taken)(void *ctx); /**< bytes of the device, work memory too; NULL: the pool's */
    lt_status (*copy)(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind);
    lt_status (*sync)(void *ctx);
    bool (*has_fast)(void *ctx, lt_dtype dtype); /**< see lt_device_has_fast() */
    int (*threads)(void *ctx);
    bool host_memory; /**< tensors can be read and written by the host directly */
    size_t reserve;   /**< bytes that cost nothing to allocate until used: the pool takes them
                           at once; 0: none */
    const lt_graph_ops *graphs;   /**< NULL: a step is a plain call */
    const lt_upload_ops *uploads; /**< NULL: copy() and sync() instead */
    const lt_weight_ops *weights; /**< NULL: each pass sees to its copies */

    /* Elementwise, ext/kernels.h part 1. */
    lt_fill_fn *fill;
    lt_unary_fn *cast; /**< copies, converting dtype and strides */
    lt_binary_fn *add, *mul;
    lt_scale_fn *scale;
    lt_unary_fn *relu;
    lt_binary_fn *relu_grad;
    lt_dropout_fn *dropout;
    lt_normalize_fn *normalize;
    lt_pointwise_fn *pointwise; /**< ext/pointwise.h */
    lt_pointwise_grad_fn *pointwise_grad;
    lt_sum_fn *sum;
    lt_count_up_fn *count_up;

    /* Matrix products and convolution. */
    lt_matmul_fn *matmul;
    lt_linear_fn *linear;
    lt_conv2d_fn *conv2d;
    lt_conv2d_grad_x_fn *conv2d_grad_x;
    lt_conv2d_grad_w_fn *conv2d_grad_w;
    lt_conv2d_stats_fn *conv2d_stats;             /**< fused */
    lt_conv2d_grad_x_sums_fn *conv2d_grad_x_sums; /**< fused */
    lt_conv2d_norm_stats_fn *conv2d_norm_stats;   /**< fused */
    lt_conv2d_norm_grad_w_fn *conv2d_norm_grad_w; /**< fused */

    /* Normalisation, ext/norm_kernels.h. */
    lt_batchnorm_stats_fn *batchnorm_stats;
    lt_batchnorm_finish_fn *batchnorm_finish;
    lt_batchnorm_apply_fn *batchnorm_apply;
    lt_batchnorm_grad_stats_fn *batchnorm_grad_stats;
    lt_batchnorm_grad_x_fn *batchnorm_grad_x;
    lt_group_norm_fn *group_norm;
    lt_group_norm_grad_fn *group_norm_grad;

    /* Pooling and loss. */
    lt_maxpool2d_fn *maxpool2d;
    lt_maxpool2d_grad_fn *maxpool2d_grad;
    lt_avgpool2d_fn *avgpool2d, *avgpool2d_grad;
    lt_softmax_xent_fn *softmax_xent;
    lt_softmax_xent_grad_fn *softmax_xent_grad;
    lt_topk_hits_fn *topk_hits;

    /* Lists of tensors: what optimizers do. */
    lt_grad_norm_fn *grad_norm;
    lt_loss_scale_fn *loss_scale;
    lt_sgd_fn *sgd;
    lt_adagrad_fn *adagrad;
    lt_adam_fn *adam;
    lt_lerp_fn *lerp;
    lt_vec_fn *vec;
    lt_vec_lists_fn *vec_lists; /**< fused: memory is passed once */

    /* Matrices of Shampoo. */
    lt_gram_fn *gram;
    lt_mode_product_fn *mode_product;
    lt_eigh_fn *eigh;
    lt_rational_fn *rational;
    lt_qr_fn *qr;
    lt_rotations_fn *rotations;
    lt_frobenius_fn *frobenius;
} lt_backend;

/** What a plugin liblather-NAME.so exports as lt_plugin_NAME: hardware is loaded, not linked. */
typedef struct lt_backend_plugin {
    const char *version; /**< of the library whose headers it was built with */
    size_t table_bytes;  /**< sizeof(lt_backend) */
    const lt_backend *backend;
    const char *(*info)(void); /**< its libraries' versions, for lt_build_info() */
} lt_backend_plugin;

/** The plain loops: every entry filled, and what a CPU-side backend starts as a copy of. */
LT_API const lt_backend *lt_backend_ref(void);

#endif
