/* Operations reject inputs that do not fit, with a status and a message with the numbers. */

#include "near.h"
#include "tensor/tensor.h"

#include "lather/detail/sharded.h"
#include "lather/ext/broadcast.h"
#include "lather/ext/op.h"
#include "lather/ops.h"
#include "lather/ops/embedding.h"

#include <math.h>
#include <string.h>

enum { TENSORS = 12 };

/* Tensors for the calls. */
typedef struct bench {
    lt_device *device, *other_device;
    lt_tape *tape;
    lt_tensor *x, *w, *vector, *matrix, *labels, *wrong_labels, *pixels, *one, *large, *rows;
    lt_tensor *hits, *foreign; /* foreign lives on the other device */
} bench;

typedef struct bad_row {
    const char *name;
    lt_tensor *(*call)(const bench *b);
    lt_status want;
    const char *message; /* text that the message must contain */
} bad_row;

/* A call whose inputs do not fit, or only just. */
#define CALL(name, ...)                    \
    static lt_tensor *name(const bench *b) \
    {                                      \
        return __VA_ARGS__;                \
    }                                      \
    _Static_assert(1, "a semicolon follows")

CALL(add_other, lt_add(b->tape, b->vector, b->labels));
CALL(add_null, lt_add(b->tape, b->x, NULL));
CALL(mul_other, lt_mul(b->tape, b->matrix, b->x));
CALL(relu_null, lt_relu(b->tape, NULL));
CALL(conv_channels, lt_conv2d(b->tape, b->x, b->w, NULL, (lt_conv2d_config){.groups = 2}));
CALL(conv_large, lt_conv2d(b->tape, b->x, b->w, NULL, (lt_conv2d_config){.dilation_h = 5}));
CALL(conv_negative, lt_conv2d(b->tape, b->x, b->w, NULL, (lt_conv2d_config){.pad_h = -1}));
CALL(conv_matrix, lt_conv2d(b->tape, b->matrix, b->w, NULL, (lt_conv2d_config){.pad_h = 0}));
CALL(conv_bias, lt_conv2d(b->tape, b->x, b->w, b->vector, (lt_conv2d_config){.pad_h = 0}));

static lt_tensor *transpose(const bench *b, lt_tensor *x, lt_tensor *bias,
                            lt_conv_transpose2d_config config)
{
    lt_tensor *w = lt_reshape(b->tape, b->w, LT_SHAPE(3, 4, 3, 3));
    return lt_conv_transpose2d(b->tape, x, w, bias, config);
}

CALL(transpose_channels,
     lt_conv_transpose2d(b->tape, b->x, b->w, NULL, (lt_conv_transpose2d_config){{0}, 0, 0}));
CALL(transpose_groups, transpose(b, b->x, NULL, (lt_conv_transpose2d_config){{.groups = 2}, 0, 0}));
CALL(transpose_matrix, transpose(b, b->matrix, NULL, (lt_conv_transpose2d_config){{0}, 0, 0}));
CALL(transpose_bias, transpose(b, b->x, b->vector, (lt_conv_transpose2d_config){{0}, 0, 0}));
CALL(transpose_nothing_left,
     transpose(b, b->one, NULL, (lt_conv_transpose2d_config){{.pad_h = 2}, 0, 0}));
CALL(transpose_output_pad,
     transpose(b, b->x, NULL, (lt_conv_transpose2d_config){{.stride_h = 2}, 2, 0}));
CALL(group_norm_groups,
     lt_group_norm(b->tape, b->x, b->vector, b->vector, (lt_group_norm_config){2, 1e-5}));
CALL(group_norm_beta,
     lt_group_norm(b->tape, b->x, b->vector, NULL, (lt_group_norm_config){1, 1e-5}));
CALL(layernorm_gamma, lt_layernorm(b->tape, b->x, b->vector, NULL, (lt_layernorm_config){0}));
CALL(layernorm_beta,
     lt_layernorm(b->tape, b->matrix, b->vector, b->matrix, (lt_layernorm_config){0}));
CALL(layernorm_eps, lt_layernorm(b->tape, b->x, NULL, NULL, (lt_layernorm_config){.eps = -1}));
CALL(layernorm_missing, lt_layernorm(b->tape, NULL, b->vector, NULL, (lt_layernorm_config){0}));

static lt_tensor *layernorm_scalar(const bench *b)
{
    lt_tensor *sum = lt_sum(b->tape, b->x, (lt_reduce_config){0});
    return lt_layernorm(b->tape, sum, NULL, NULL, (lt_layernorm_config){0});
}

CALL(rmsnorm_gamma, lt_rmsnorm(b->tape, b->x, b->vector, (lt_layernorm_config){0}));
CALL(gelu_kind, lt_gelu(b->tape, b->x, (lt_gelu_kind)2));
CALL(swiglu_shape, lt_swiglu(b->tape, b->x, b->matrix));
CALL(drop_path_all, lt_drop_path(b->tape, b->x, 1));
CALL(drop_path_scalar, lt_drop_path(b->tape, lt_sum(b->tape, b->x, (lt_reduce_config){0}), 0.5));
CALL(matmul_inner,
     lt_matmul(b->tape, b->matrix, b->matrix, (lt_matmul_config){.transpose_a = false}));
CALL(linear_inner, lt_linear(b->tape, b->x, b->matrix, NULL));
CALL(reshape_count, lt_reshape(b->tape, b->matrix, LT_SHAPE(4, -1)));
CALL(sum_dimension, lt_sum(b->tape, b->matrix, (lt_reduce_config){.dims = 4}));
CALL(dropout_all, lt_dropout(b->tape, b->x, 1));
CALL(pool_large, lt_maxpool2d(b->tape, b->x, (lt_pool2d_config){.kernel_h = 7, .kernel_w = 2}));
CALL(pool_pad, lt_maxpool2d(b->tape, b->x, (lt_pool2d_config){2, 2, 1, 1, 2, 0}));
CALL(avg_matrix,
     lt_avgpool2d(b->tape, b->matrix, (lt_pool2d_config){.kernel_h = 2, .kernel_w = 2}));

static lt_tensor *norm(const bench *b, lt_tensor *x, lt_tensor *gamma, double eps)
{
    lt_batchnorm2d_args args = {gamma, b->vector, b->vector, b->vector, NULL, NULL};
    return lt_batchnorm2d(b->tape, x, args, (lt_batchnorm2d_config){.eps = eps, .momentum = 0.1});
}

static lt_tensor *norm_batches(const bench *b)
{
    lt_batchnorm2d_args args = {b->vector, b->vector, b->vector, b->vector, NULL, b->vector};
    return lt_batchnorm2d(b->tape, b->x, args, (lt_batchnorm2d_config){.eps = 1e-5});
}

CALL(norm_gamma, norm(b, b->x, b->matrix, 1e-5));
CALL(norm_missing, norm(b, b->x, NULL, 1e-5));
CALL(norm_eps, norm(b, b->x, b->vector, 0));
CALL(norm_one_value, norm(b, b->one, b->vector, 1e-5));
CALL(xent_range, lt_softmax_xent(b->tape, b->matrix, b->wrong_labels, 0));
CALL(xent_smoothing, lt_softmax_xent(b->tape, b->matrix, b->labels, 1.5));
CALL(xent_shape, lt_softmax_xent(b->tape, b->x, b->labels, 0));
CALL(xent_dtype, lt_softmax_xent(b->tape, b->matrix, b->pixels, 0));
CALL(normalize_deviation,
     lt_normalize(b->tape, b->pixels, &(lt_normalize_config){.deviation = {1, 0, 1, 1}}));
CALL(linear_in_out,
     lt_linear_as(b->tape, b->matrix, b->matrix, NULL, (lt_linear_config){.in_out = true}));
CALL(xent_rows, lt_softmax_xent(b->tape, b->vector, b->labels, 0));
CALL(permute_twice, lt_permute(b->tape, b->x, (int[]){0, 2, 2, 1}));
CALL(permute_outside, lt_permute(b->tape, b->matrix, (int[]){1, 2}));
CALL(slice_dimension, lt_slice(b->tape, b->matrix, -3, 0, 1));
CALL(slice_behind, lt_slice(b->tape, b->matrix, -1, 2, 2));
CALL(slice_nothing, lt_slice(b->tape, b->matrix, 0, 1, 0));
CALL(concat_other, lt_concat(b->tape, (lt_tensor *[]){b->x, b->w}, 2, 0));
CALL(concat_null, lt_concat(b->tape, (lt_tensor *[]){b->x, NULL}, 2, 0));

static lt_tensor *concat_many(const bench *b)
{
    lt_tensor *x[] = {b->x, b->x, b->x, b->x, b->x, b->x, b->x};
    return lt_concat(b->tape, x, 8, 0);
}

CALL(concat_dimension, lt_concat(b->tape, (lt_tensor *[]){b->x, b->x}, 2, 4));
CALL(concat_below, lt_concat(b->tape, (lt_tensor *[]){b->x, b->x}, 2, -5));
CALL(concat_first, lt_concat(b->tape, (lt_tensor *[]){b->x, b->x}, 2, -4));
CALL(concat_last, lt_concat(b->tape, (lt_tensor *[]){b->x, b->x}, 2, 3));
CALL(pad_before, lt_pad_rows(b->tape, b->one, -1, 1, 0));
CALL(pad_to_end, lt_pad_rows(b->tape, b->one, 1, 2, 0));
CALL(pad_nothing, lt_pad_rows(b->tape, b->one, 0, 1, 0));
CALL(pad_too_far, lt_pad_rows(b->tape, b->one, 1, 1, 0));
CALL(expand_other, lt_expand(b->tape, b->one, LT_SHAPE(2, 4, 5, 5)));
CALL(embedding_range, lt_embedding(b->tape, b->wrong_labels, b->matrix));
CALL(embedding_dtype, lt_embedding(b->tape, b->vector, b->matrix));
CALL(embedding_table, lt_embedding(b->tape, b->labels, b->vector));

static lt_tensor *norm_add(const bench *b, lt_tensor *residual)
{
    lt_batchnorm2d_args args = {b->vector, b->vector, b->vector, b->vector, residual, NULL};
    return lt_batchnorm2d(b->tape, b->x, args, (lt_batchnorm2d_config){.eps = 1e-5});
}

static lt_tensor *attention(const bench *b, lt_tensor *k, lt_tensor *v)
{
    return lt_attention(b->tape, b->rows, k, v, (lt_attention_config){.heads = 1});
}

CALL(conv_outputs,
     lt_conv2d(b->tape, b->x,
               lt_slice(b->tape, lt_reshape(b->tape, b->w, LT_SHAPE(12, 1, 3, 3)), 0, 0, 4), NULL,
               (lt_conv2d_config){.groups = 3}));
CALL(norm_matrix, norm(b, b->matrix, b->vector, 1e-5));
CALL(norm_residual, norm_add(b, b->one));
CALL(norm_residual_dtype, norm_add(b, b->pixels));

static lt_tensor *norm_1d_residual(const bench *b)
{
    lt_batchnorm2d_args args = {b->vector, b->vector, b->vector, b->vector, b->x, NULL};
    return lt_batchnorm1d(b->tape, b->matrix, args, (lt_batchnorm2d_config){.eps = 1e-5});
}

CALL(smooth_l1_beta, lt_smooth_l1_loss(b->tape, b->x, b->x, -0.5, LT_LOSS_MEAN));
CALL(cast_bytes, lt_cast(b->tape, lt_tape_variable(b->tape, b->matrix), LT_U8));
CALL(embedding_missing, lt_embedding(b->tape, b->labels, NULL));
CALL(group_norm_gamma,
     lt_group_norm(b->tape, b->x, b->vector, b->matrix, (lt_group_norm_config){1, 1e-5}));
CALL(upsample_mode,
     lt_upsample(b->tape, b->x, (lt_upsample_config){(lt_upsample_mode)2, 4, 4, false}));
CALL(upsample_corners,
     lt_upsample(b->tape, b->x, (lt_upsample_config){LT_UPSAMPLE_NEAREST, 4, 4, true}));
CALL(pad_mode, lt_pad(b->tape, b->x, (lt_pad_config){.mode = (lt_pad_mode)3}));
CALL(scatter_src, lt_scatter_add(b->tape, b->vector, 0, b->labels, b->vector));
CALL(scatter_missing, lt_scatter_add(b->tape, b->vector, 0, b->labels, NULL));
CALL(linear_missing, lt_linear(b->tape, b->matrix, NULL, NULL));
CALL(linear_bias, lt_linear(b->tape, b->matrix, b->matrix, b->vector));
CALL(nll_missing, lt_nll_loss(b->tape, NULL, b->labels, NULL, LT_LOSS_MEAN));
CALL(cross_entropy_missing,
     lt_cross_entropy(b->tape, NULL, b->labels, NULL, (lt_cross_entropy_config){0}));
CALL(mse_reduction, lt_mse_loss(b->tape, b->x, b->x, (lt_loss_reduction)3));
CALL(bce_reduction, lt_bce_with_logits(b->tape, b->x, b->x, (lt_loss_reduction)3));
CALL(focal_alpha, lt_sigmoid_focal_loss(b->tape, b->x, b->x, 1.25, 2, LT_LOSS_MEAN));
CALL(focal_gamma, lt_sigmoid_focal_loss(b->tape, b->x, b->x, 0.25, -2, LT_LOSS_MEAN));
CALL(triplet_shape, lt_triplet_margin_loss(b->tape, (lt_tensor *[]){b->matrix, b->matrix, b->x}, 1,
                                           false, LT_LOSS_MEAN));
CALL(matmul_missing, lt_matmul(b->tape, b->matrix, NULL, (lt_matmul_config){0}));
CALL(normalize_floats,
     lt_normalize(b->tape, b->x, &(lt_normalize_config){.deviation = {1, 1, 1, 1}}));
CALL(pool_window,
     lt_maxpool2d(b->tape, b->large, (lt_pool2d_config){.kernel_h = 16, .kernel_w = 17}));
CALL(var_correction, lt_var(b->tape, b->matrix, (lt_reduce_config){.dims = 1}, (double)INFINITY));
CALL(softmax_scalar, lt_softmax(b->tape, lt_sum(b->tape, b->x, (lt_reduce_config){0})));
CALL(xent_missing, lt_softmax_xent(b->tape, b->matrix, NULL, 0));
CALL(where_missing, lt_where(b->tape, b->pixels, NULL, b->x));
CALL(attention_dtype, attention(b, lt_cast(b->tape, b->rows, LT_F64), b->rows));
CALL(attention_dtype_v, attention(b, b->rows, lt_cast(b->tape, b->rows, LT_F64)));
CALL(other_device, lt_add(b->tape, b->matrix, b->foreign));

/* --- Operations of several ranks: arguments are checked before anything is sent --- */

static lt_process_group alone = {.rank = 0, .size = 1}, pair = {.rank = 1, .size = 2},
                        three = {.rank = 0, .size = 3};

CALL(sharded_rows, lt_embedding_sharded(b->tape, b->labels, b->matrix, (lt_embedding_shard){4, 5}));
CALL(sharded_id,
     lt_embedding_sharded(b->tape, b->wrong_labels, b->matrix, (lt_embedding_shard){0, 3}));

static lt_tensor *sharded_far(const bench *b)
{
    const lt_backend *host = b->device->backend;
    lt_backend far = *host;
    far.host_memory = false;
    b->device->backend = &far;
    lt_tensor *y = lt_embedding_sharded(b->tape, b->labels, b->matrix, (lt_embedding_shard){0, 3});
    b->device->backend = host;
    return y;
}

CALL(scatter_rows, lt_group_reducescatter(b->tape, b->matrix, &three));
CALL(column_missing, lt_linear_column_parallel(b->tape, b->matrix, NULL, NULL, &pair, 4));
CALL(column_bias, lt_linear_column_parallel(b->tape, b->matrix, b->matrix, b->vector, &pair, 4));

static lt_tensor *sharded_norm(const bench *b, lt_tensor *x, double eps)
{
    return lt_layernorm_sharded(b->tape, x, b->vector, b->vector,
                                (lt_sharded_norm_config){.row = &pair, .features = 6, .eps = eps});
}

CALL(sharded_norm_dtype, sharded_norm(b, lt_cast(b->tape, b->matrix, LT_BF16), 0));
CALL(sharded_norm_eps, sharded_norm(b, b->matrix, -1e-3));

static lt_tensor *summa(const bench *b, lt_tensor *x, lt_tensor *w, lt_process_group *column,
                        int64_t in)
{
    return lt_linear_summa(b->tape, x, w, NULL,
                           (lt_summa_config){.row = &pair, .column = column, .in = in, .out = 4});
}

CALL(summa_missing, summa(b, b->matrix, NULL, &pair, 6));
CALL(summa_grid, summa(b, b->matrix, b->matrix, &three, 6));
CALL(summa_small, summa(b, b->matrix, b->matrix, &pair, 1));
CALL(summa_dtype, summa(b, lt_cast(b->tape, b->matrix, LT_BF16), b->matrix, &pair, 6));

static lt_tensor *sharded_xent(const bench *b, lt_tensor *x, lt_process_group *row, int64_t rows)
{
    return lt_softmax_xent_sharded(
        b->tape, x, b->wrong_labels,
        (lt_sharded_xent_config){.row = row, .classes = 3 * row->size, .rows = rows});
}

CALL(sharded_xent_dtype, sharded_xent(b, lt_cast(b->tape, b->matrix, LT_BF16), &pair, 0));
CALL(sharded_xent_rows, sharded_xent(b, b->matrix, &pair, -1));
CALL(sharded_xent_label, sharded_xent(b, b->matrix, &alone, 0));

static lt_tensor *sharded_hits(const bench *b, lt_tensor *logits, int64_t classes)
{
    return lt_tape_fail(
        b->tape, lt_topk_hits_sharded(logits, b->labels, b->hits,
                                      (lt_sharded_xent_config){.row = &pair, .classes = classes}));
}

static lt_tensor *sharded_hits_freed(const bench *b)
{
    lt_tape_reset(b->tape, LT_PASS_EVAL);
    lt_tensor *logits = lt_softmax(b->tape, b->matrix);
    lt_tape_drop(b->tape, logits);
    return sharded_hits(b, logits, 6);
}

CALL(sharded_hits_shape, sharded_hits(b, b->matrix, 8));
CALL(sharded_hits_dtype, sharded_hits(b, lt_cast(b->tape, b->matrix, LT_BF16), 6));

/* --- A custom operation --- */

static const lt_op own_op = {.name = "own", .infer = lt_op_infer_broadcast};

CALL(own_broadcast, lt_op_run(b->tape, &own_op, (lt_tensor *[]){b->x, b->matrix}, 2, NULL));
CALL(own_missing, lt_op_run(b->tape, &own_op, (lt_tensor *[]){b->x, NULL}, 2, NULL));

/* clang-format off */
static const bad_row rows[] = {
    {"add: extents that differ", add_other, LT_E_SHAPE, "a [3] and b [2] do not broadcast"},
    {"add: b is missing", add_null, LT_E_SHAPE, "add: b is NULL"},
    {"mul: shapes that do not broadcast", mul_other, LT_E_SHAPE, "mul"},
    {"relu: its input is missing", relu_null, LT_E_ARG, "relu"},
    {"conv2d: channels that do not fit the groups", conv_channels, LT_E_SHAPE,
     "has 3 channels, w [4,3,3,3] needs 6"},
    {"conv2d: a filter larger than the image", conv_large, LT_E_SHAPE, "larger than x [2,3,5,5]"},
    {"conv2d: negative padding", conv_negative, LT_E_ARG, "padding -1"},
    {"conv2d: x is a matrix", conv_matrix, LT_E_SHAPE, "want 4 dimensions"},
    {"conv2d: a bias of another length", conv_bias, LT_E_SHAPE, "b [3], want [4]"},
    {"conv_transpose2d: channels of x and w differ", transpose_channels, LT_E_SHAPE,
     "x [2,3,5,5] has 3 channels, w [4,3,3,3] needs 4"},
    {"conv_transpose2d: channels that do not divide into groups", transpose_groups, LT_E_SHAPE,
     "3 channels do not divide into 2 groups"},
    {"conv_transpose2d: x is a matrix", transpose_matrix, LT_E_SHAPE, "want 4 dimensions"},
    {"conv_transpose2d: a bias of another length", transpose_bias, LT_E_SHAPE, "b [3], want [4]"},
    {"conv_transpose2d: more padding than values", transpose_nothing_left, LT_E_SHAPE, "give an empty output"},
    {"conv_transpose2d: output padding as large as the stride", transpose_output_pad, LT_E_ARG,
     "output padding 2x0, want below stride 2x1"},
    {"group_norm: channels that do not divide", group_norm_groups, LT_E_ARG, "3 channels, 2 groups"},
    {"batchnorm2d: a count of floats", norm_batches, LT_E_ARG, "batches f32 [3], want i64 []"},
    {"group_norm: gamma without beta", group_norm_beta, LT_E_ARG, "one of gamma and beta is NULL"},
    {"layernorm: gamma of another length", layernorm_gamma, LT_E_SHAPE, "layernorm: gamma is [3], want [5]"},
    {"layernorm: beta is a matrix", layernorm_beta, LT_E_SHAPE, "layernorm: beta is [2,3], want [3]"},
    {"layernorm: a negative eps", layernorm_eps, LT_E_ARG, "eps -1, want > 0"},
    {"layernorm: its input is missing", layernorm_missing, LT_E_ARG, "layernorm"},
    {"layernorm: x is a scalar", layernorm_scalar, LT_E_SHAPE, "x [], want a last dimension"},
    {"rmsnorm: gamma of another length", rmsnorm_gamma, LT_E_SHAPE, "rmsnorm: gamma is [3], want [5]"},
    {"gelu: a kind that is not there", gelu_kind, LT_E_ARG, "gelu: kind 2, want 0 or 1"},
    {"swiglu: shapes that do not broadcast", swiglu_shape, LT_E_SHAPE, "swiglu"},
    {"drop_path: nothing would be left", drop_path_all, LT_E_ARG, "p 1"},
    {"drop_path: x has no samples", drop_path_scalar, LT_E_SHAPE, "drop_path: x has 0 dimensions"},
    {"matmul: inner extents differ", matmul_inner, LT_E_SHAPE, "[2,3]"},
    {"linear: x is an image", linear_inner, LT_E_SHAPE, "[2,3,5,5]"},
    {"reshape: a count that does not divide", reshape_count, LT_E_SHAPE, "[2,3]"},
    {"sum: a dimension that is not there", sum_dimension, LT_E_ARG, "0x4"},
    {"dropout: nothing would be left", dropout_all, LT_E_ARG, "p 1"},
    {"maxpool2d: a kernel larger than the image", pool_large, LT_E_SHAPE, "7x2"},
    {"maxpool2d: padding of more than half the kernel", pool_pad, LT_E_ARG, "padding 2x0"},
    {"avgpool2d: x is a matrix", avg_matrix, LT_E_SHAPE, "want 4 dimensions"},
    {"batchnorm2d: gamma of another shape", norm_gamma, LT_E_SHAPE, "gamma is [2,3], want [3]"},
    {"batchnorm2d: no gamma", norm_missing, LT_E_ARG, "gamma is NULL"},
    {"batchnorm2d: eps 0", norm_eps, LT_E_ARG, "eps 0"},
    {"batchnorm2d: one value per channel", norm_one_value, LT_E_SHAPE, "one value per channel"},
    {"softmax_xent: a label out of range", xent_range, LT_E_ARG, "label 3"},
    {"softmax_xent: smoothing above 1", xent_smoothing, LT_E_ARG, "smoothing 1.5"},
    {"softmax_xent: logits are images", xent_shape, LT_E_SHAPE, "[2,3,5,5]"},
    {"softmax_xent: labels are bytes", xent_dtype, LT_E_SHAPE, "u8"},
    {"softmax_xent: labels are more than rows", xent_rows, LT_E_SHAPE, "labels i32 [2] for logits [3]"},
    {"linear: w as [in,out] that does not fit", linear_in_out, LT_E_SHAPE, "want [..,C] and [C,K]"},
    {"permute: a dimension twice", permute_twice, LT_E_ARG, "order[2] is 2 for x [2,3,5,5], want each of 0..3"},
    {"permute: a dimension that is not there", permute_outside, LT_E_ARG, "order[1] is 2"},
    {"slice: a dimension that is not there", slice_dimension, LT_E_ARG, "dimension -3 of x [2,3], want one of its 2"},
    {"slice: past the end", slice_behind, LT_E_ARG, "2 elements from 2 exceed x [2,3], of size 3 in dimension 1"},
    {"slice: of nothing", slice_nothing, LT_E_ARG, "0 elements from 1 exceed x [2,3]"},
    {"concat: other extents differ too", concat_other, LT_E_SHAPE, "x[0] [2,3,5,5] and x[1] [4,3,3,3]"},
    {"concat: a tensor is missing", concat_null, LT_E_ARG, "x[1] of 2 is NULL"},
    {"concat: too many tensors", concat_many, LT_E_ARG, "8 tensors, want 1 to 7"},
    {"concat: a dimension that is not there", concat_dimension, LT_E_ARG, "dimension 4 of x[0] [2,3,5,5]"},
    {"concat: a dimension before the first", concat_below, LT_E_ARG, "dimension -5 of x[0] [2,3,5,5]"},
    {"concat: the first dimension fits", concat_first, LT_OK, ""},
    {"concat: the last dimension fits", concat_last, LT_OK, ""},
    {"pad_rows: rows before the beginning", pad_before, LT_E_SHAPE, "x [1,3,1,1] at row -1 exceeds 1 rows"},
    {"pad_rows: the last row fits", pad_to_end, LT_OK, ""},
    {"pad_rows: all rows fit", pad_nothing, LT_OK, ""},
    {"pad_rows: rows beyond the end", pad_too_far, LT_E_SHAPE, "x [1,3,1,1] at row 1 exceeds 1 rows"},
    {"expand: an extent that is not 1", expand_other, LT_E_SHAPE, "x [1,3,1,1] does not expand to [2,4,5,5]"},
    {"embedding: an id past the table", embedding_range, LT_E_ARG, "id 3 at position 0, want 0..1"},
    {"embedding: ids are floats", embedding_dtype, LT_E_SHAPE, "ids f32 [3]"},
    {"embedding: the table is a vector", embedding_table, LT_E_SHAPE, "w [3]"},
    {"normalize: a deviation of 0", normalize_deviation, LT_E_ARG, "normalize"},
    {"conv2d: outputs that do not divide into groups", conv_outputs, LT_E_SHAPE,
     "the outputs of w [4,1,3,3] do not divide into 3 groups"},
    {"batchnorm2d: x is a matrix", norm_matrix, LT_E_SHAPE, "batchnorm2d: x [2,3], want 4 dimensions"},
    {"batchnorm2d: a residual of another shape", norm_residual, LT_E_SHAPE,
     "batchnorm2d: residual f32 [1,3,1,1], x is f32 [2,3,5,5]"},
    {"batchnorm2d: a residual of bytes", norm_residual_dtype, LT_E_SHAPE,
     "batchnorm2d: residual u8 [2,3,5,5], x is f32 [2,3,5,5]"},
    {"batchnorm1d: a residual of another shape", norm_1d_residual, LT_E_SHAPE,
     "batchnorm1d: residual [2,3,5,5], x is [2,3]"},
    {"smooth_l1_loss: a negative beta", smooth_l1_beta, LT_E_ARG, "smooth_l1_loss: beta -0.5, want >= 0"},
    {"cast: a variable to bytes", cast_bytes, LT_E_SHAPE, "cast: f32 to u8 has no gradient"},
    {"embedding: no table", embedding_missing, LT_E_ARG, "embedding: w is NULL"},
    {"group_norm: beta of another length", group_norm_gamma, LT_E_SHAPE, "group_norm: beta is [2,3], want [3]"},
    {"upsample: a mode that is not there", upsample_mode, LT_E_ARG, "upsample: mode 2, want nearest"},
    {"upsample: nearest with aligned corners", upsample_corners, LT_E_ARG, "upsample: mode 0 with align_corners"},
    {"pad: a mode that is not there", pad_mode, LT_E_ARG, "pad: mode 3, want 0 to 2"},
    {"scatter_add: src of another shape", scatter_src, LT_E_SHAPE, "scatter_add: src [3], want index's shape [2]"},
    {"scatter_add: no src", scatter_missing, LT_E_SHAPE, "scatter_add: src NULL, want index's shape [2]"},
    {"linear: no weight", linear_missing, LT_E_ARG, "linear: w is NULL"},
    {"linear: a bias of another length", linear_bias, LT_E_SHAPE, "linear: b [3], want [2]"},
    {"nll_loss: x is missing", nll_missing, LT_E_ARG, "nll_loss: x is NULL"},
    {"cross_entropy: logits are missing", cross_entropy_missing, LT_E_ARG, "cross_entropy: logits is NULL"},
    {"mse_loss: a reduction that is not there", mse_reduction, LT_E_ARG, "mse_loss: reduction 3, want 0 to 2"},
    {"bce_with_logits: a reduction that is not there", bce_reduction, LT_E_ARG, "reduction 3, want 0 to 2"},
    {"sigmoid_focal_loss: alpha above 1", focal_alpha, LT_E_ARG, "sigmoid_focal_loss: alpha 1.25 and gamma 2,"},
    {"sigmoid_focal_loss: a negative gamma", focal_gamma, LT_E_ARG, "sigmoid_focal_loss: alpha 0.25 and gamma -2,"},
    {"triplet_margin_loss: an input of another shape", triplet_shape, LT_E_SHAPE,
     "triplet_margin_loss: anchor [2,3] and input 2 [2,3,5,5]"},
    {"matmul: b is missing", matmul_missing, LT_E_ARG, "matmul: b is NULL"},
    {"normalize: floats", normalize_floats, LT_E_SHAPE, "normalize: x is f32 [2,3,5,5], want u8 [N,C,H,W] with C <= 4"},
    {"maxpool2d: a window of more than 256", pool_window, LT_E_ARG, "maxpool2d: kernel 16x17 has more than 256 elements"},
    {"var: an infinite correction", var_correction, LT_E_ARG, "var: correction inf, want a number"},
    {"softmax: of a scalar", softmax_scalar, LT_E_SHAPE, "softmax: x [], want a last dimension of at least 1"},
    {"softmax_xent: labels are missing", xent_missing, LT_E_SHAPE, "softmax_xent: logits [2,3], want [..,K], and labels"},
    {"where: a is missing", where_missing, LT_E_ARG, "where: a is NULL"},
    {"attention: k of another dtype", attention_dtype, LT_E_ARG, "attention: k is f64, want q's f32"},
    {"attention: v of another dtype", attention_dtype_v, LT_E_ARG, "attention: v is f64, want q's f32"},
    {"add: of two devices", other_device, LT_E_ARG, "add: input 1 is on another device"},
    {"embedding_sharded: rows past the table", sharded_rows, LT_E_SHAPE,
     "embedding_sharded: 2 rows from row 4 exceed the table's 5"},
    {"embedding_sharded: an id past the table", sharded_id, LT_E_ARG,
     "embedding_sharded: id 3 at position 0, want 0..2"},
    {"embedding_sharded: a device without host memory", sharded_far, LT_E_UNSUPPORTED,
     "embedding_sharded: needs host memory, "},
    {"reducescatter: fewer rows than ranks", scatter_rows, LT_E_SHAPE,
     "group_reducescatter: x [2,3] has fewer rows than the 3 ranks"},
    {"linear_column_parallel: no weight", column_missing, LT_E_ARG, "linear_column_parallel: w is NULL"},
    {"linear_column_parallel: a bias of another length", column_bias, LT_E_SHAPE,
     "linear_column_parallel: b [3], want [2]"},
    {"layernorm_sharded: bf16", sharded_norm_dtype, LT_E_UNSUPPORTED,
     "layernorm_sharded: x is bf16, want all f32 or all f64"},
    {"layernorm_sharded: a negative eps", sharded_norm_eps, LT_E_ARG, "layernorm_sharded: eps -0.001, want >= 0"},
    {"linear_summa: no weight", summa_missing, LT_E_ARG, "linear_summa: w is NULL"},
    {"linear_summa: a grid that is not square", summa_grid, LT_E_ARG,
     "linear_summa: a row of 2 ranks and a column of 3, want a square grid"},
    {"linear_summa: fewer inputs than ranks", summa_small, LT_E_SHAPE,
     "linear_summa: 1 inputs and 4 outputs, fewer than rows of the 2 x 2 grid"},
    {"linear_summa: x of another dtype", summa_dtype, LT_E_UNSUPPORTED, "linear_summa: x is bf16, w f32; want both"},
    {"softmax_xent_sharded: bf16", sharded_xent_dtype, LT_E_UNSUPPORTED,
     "softmax_xent_sharded: x is bf16, labels i32, on "},
    {"softmax_xent_sharded: a negative number of rows", sharded_xent_rows, LT_E_ARG,
     "softmax_xent_sharded: got -1 rows in all, want >= 0"},
    {"softmax_xent_sharded: a label that is not a class", sharded_xent_label, LT_E_ARG,
     "softmax_xent_sharded: label 3 of row 0 is not one of 3 classes"},
    {"topk_hits_sharded: logits of another width", sharded_hits_shape, LT_E_SHAPE,
     "topk_hits_sharded: logits [2,3], labels [2] on rank 1 of 2, want [M,4] of the 8 classes"},
    {"topk_hits_sharded: bf16", sharded_hits_dtype, LT_E_UNSUPPORTED, "topk_hits_sharded: logits are bf16 on "},
    {"topk_hits_sharded: freed logits", sharded_hits_freed, LT_E_ARG, "topk_hits_sharded: the logits were freed"},
    {"own operation: b does not broadcast", own_broadcast, LT_E_SHAPE,
     "own: b [2,3] does not broadcast to a's shape [2,3,5,5]"},
    {"own operation: b is missing", own_missing, LT_E_SHAPE, "own: b [] does not broadcast to a's shape [2,3,5,5]"},
};
/* clang-format on */

static lt_tensor *make(lt_device *device, lt_dtype dtype, lt_shape shape)
{
    lt_tensor *t = NULL;
    assert_ok(lt_tensor_new(&t, device, dtype, shape));
    return t;
}

static void check_on(const char *device, const bad_row *row)
{
    bench b = {0};
    if (lt_device_open(&b.device, device, &(lt_device_config){.threads = 1}))
        return; /* a build without it */
    assert_ok(lt_device_open(&b.other_device, "ref", NULL));
    assert_ok(lt_tape_new(&b.tape, b.device));
    b.x = make(b.device, LT_F32, LT_SHAPE(2, 3, 5, 5));
    b.w = make(b.device, LT_F32, LT_SHAPE(4, 3, 3, 3));
    b.vector = make(b.device, LT_F32, LT_SHAPE(3));
    b.matrix = make(b.device, LT_F32, LT_SHAPE(2, 3));
    b.labels = make(b.device, LT_I32, LT_SHAPE(2));
    b.wrong_labels = make(b.device, LT_I32, LT_SHAPE(2));
    b.pixels = make(b.device, LT_U8, LT_SHAPE(2, 3, 5, 5));
    b.one = make(b.device, LT_F32, LT_SHAPE(1, 3, 1, 1));
    b.large = make(b.device, LT_F32, LT_SHAPE(1, 1, 17, 17));
    b.rows = make(b.device, LT_F32, LT_SHAPE(1, 2, 4));
    b.hits = make(b.device, LT_I64, LT_SHAPE(2));
    b.foreign = make(b.other_device, LT_F32, LT_SHAPE(2, 3));
    assert_ok(lt_tensor_fill(b.wrong_labels, 3));

    lt_tape_reset(b.tape, LT_PASS_TRAIN);
    (void)lt_fail(LT_E_ARG, "that of an earlier call");
    lt_tensor *y = row->call(&b);
    lt_status st = lt_tape_status(b.tape);
    char message[256];
    strncpy(message, lt_error_message(), sizeof message - 1);
    message[sizeof message - 1] = 0;

    lt_tape_free(&b.tape);
    lt_tensor **all[TENSORS] = {
        &b.x,      &b.w,   &b.vector, &b.matrix, &b.labels,  &b.wrong_labels,
        &b.pixels, &b.one, &b.large,  &b.rows,   &b.foreign, &b.hits};
    for (int i = 0; i < TENSORS; i++)
        lt_tensor_free(all[i]);
    lt_device_close(&b.device);
    lt_device_close(&b.other_device);

    assert_int_equal(!y, row->want != LT_OK);
    assert_int_equal(st, row->want);
    if (st && (!strstr(message, row->message) || strchr(message, '\n')))
        fail_msg("%s: '%s' does not contain '%s'", device, message, row->message);
}

static void check_row(void **state)
{
    check_on("ref", *state);
    check_on("cpu", *state);
}

int main(void)
{
    struct CMUnitTest tests[COUNT_OF(rows)];
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, check_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
