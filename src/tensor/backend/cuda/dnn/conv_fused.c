/* Convolutions with a part of batch norm fused to them. The alternative of each is composed of other entries: used
 * with --fused off, where cuDNN has no engine, and where it is faster. */

#include "conv_plan.h"
#include "tensor/backend/cuda/kernels.h"
#include "tensor/backend/cuda/norm_sums.h"

lt_view lt_conv_row_view(const lt_view *rows, int i)
{
    lt_view v = *rows;
    const int64_t channels = rows->shape.dim[rows->shape.ndim - 1];
    v.shape = LT_SHAPE(1, channels, 1, 1);
    for (int d = 0; d < 4; d++)
        v.stride[d] = d == 1 ? 1 : channels;
    v.data = (char *)rows->data + (size_t)(i * channels) * lt_dtype_size(rows->dtype);
    return v;
}

lt_operand lt_conv_vector_operand(const lt_view *view, lt_dtype dtype, bool written)
{
    return (lt_operand){.view = view, .dtype = dtype, .fits = true, .written = written};
}

static size_t bytes_of_sums(const lt_conv_call *call)
{
    return (size_t)call->problem.y[1] * sizeof(float);
}

void lt_conv_set_sums_memory(lt_conv_call *call, int slot, const lt_view *row)
{
    for (int i = 0; i < 2; i++) {
        call->work[slot + i] = bytes_of_sums(call);
        if (i == 1 && !row) /* followed by the workspace of lt_cuda_moments_from_sums() */
            call->work[slot + i] =
                lt_cuda_pad_bytes(bytes_of_sums(call)) + (size_t)call->problem.y[1] * LT_SUMS_BYTES;
        if (row)
            call->operand[slot + i] = lt_conv_vector_operand(&row[i], LT_F32, true);
    }
}

typedef struct stats_call {
    const lt_view *stats;
    bool *sums;
} stats_call;

lt_status lt_conv_finish_sums(lt_cuda *c, const lt_conv_call *call, int slot, const lt_view *stats,
                              bool *sums)
{
    if (sums) {
        *sums = true;
        return LT_OK;
    }
    char *squares = call->memory[slot + 1];
    return lt_cuda_moments_from_sums(c, &call->operand[LT_CONV_Y].use, call->memory[slot],
                                     (const float *)squares,
                                     squares + lt_cuda_pad_bytes(bytes_of_sums(call)), stats);
}

static lt_status run_unfused_stats(lt_cuda *c, const lt_conv_call *call)
{
    const stats_call *s = call->context;
    if (s->sums)
        *s->sums = false;
    LT_TRY(lt_cuda_table()->conv2d(c, call->config, call->x, call->w, NULL, call->y));
    return lt_cuda_table()->batchnorm_stats(c, call->y, s->stats);
}

static lt_status finish_stats(lt_cuda *c, const lt_conv_call *call)
{
    const stats_call *s = call->context;
    return lt_conv_finish_sums(c, call, LT_CONV_SUM, s->stats, s->sums);
}

static lt_status conv2d_stats(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                              const lt_view *w, const lt_view *y, const lt_view *stats, bool *sums)
{
    lt_cuda *c = ctx;
    const stats_call context = {stats, sums};
    const lt_view row[] = {lt_conv_row_view(stats, 1), lt_conv_row_view(stats, 2)};
    lt_conv_call call = lt_conv_make_call(LT_CONV_STATS, config, x, w, y);
    call.context = &context;
    call.fused = true;
    call.after = finish_stats;
    call.other = run_unfused_stats;
    lt_conv_use_space_to_depth(&call);
    lt_conv_set_sums_memory(&call, LT_CONV_SUM, sums ? row : NULL);
    if (!lt_conv_may_fuse(&call.problem))
        return run_unfused_stats(c, &call);
    LT_TRY(lt_cuda_begin(c, "conv2d_stats"));
    LT_TRY(lt_conv_run(c, &call));
    return lt_cuda_end(c);
}

typedef struct sums_call {
    const lt_batchnorm_before *norm;
    const lt_view *sums;
} sums_call;

static lt_status run_unfused_grad_sums(lt_cuda *c, const lt_conv_call *call)
{
    const sums_call *s = call->context;
    const lt_batchnorm_grad in = {
        .dy = {*call->x}, .x = s->norm->x, .coef = s->norm->coef, .relu = true};
    LT_TRY(lt_cuda_table()->conv2d_grad_x(c, call->config, call->y, call->w, call->x));
    return lt_cuda_table()->batchnorm_grad_stats(c, &in, NULL, s->sums);
}

static lt_status conv2d_grad_x_sums(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                                    const lt_view *w, const lt_batchnorm_before *norm,
                                    const lt_view *dx, const lt_view *sums)
{
    lt_cuda *c = ctx;
    const sums_call context = {norm, sums};
    const lt_view vector[] = {/* LT_CONV_MEAN to LT_CONV_DBETA */
                              lt_conv_row_view(norm->coef, 0),  lt_conv_row_view(norm->coef, 1),
                              lt_conv_row_view(norm->gamma, 0), lt_conv_row_view(norm->beta, 0),
                              lt_conv_row_view(sums, 1),        lt_conv_row_view(sums, 0)};
    lt_conv_call call = lt_conv_make_call(LT_CONV_SUMS, config, dx, w, dy);
    call.context = &context;
    call.fused = true;
    call.other = run_unfused_grad_sums;
    call.operand[LT_CONV_NORM_X] = (lt_operand){
        .view = norm->x, .dtype = dy->dtype, .fits = lt_view_is_channels_last(norm->x)};
    for (int i = LT_CONV_MEAN; i <= LT_CONV_DBETA; i++)
        call.operand[i] =
            lt_conv_vector_operand(&vector[i - LT_CONV_MEAN], LT_F32, i >= LT_CONV_DGAMMA);
    for (int i = LT_CONV_A; i <= LT_CONV_C; i++)
        call.work[i] = (size_t)dx->shape.dim[1] * sizeof(float);
    if (!lt_conv_may_fuse(&call.problem))
        return run_unfused_grad_sums(c, &call);
    LT_TRY(lt_cuda_begin(c, "conv2d_grad_x_sums"));
    LT_TRY(lt_conv_run(c, &call));
    return lt_cuda_end(c);
}

void lt_cuda_install_fused_convs(lt_backend *be)
{
    be->conv2d_stats = conv2d_stats;
    be->conv2d_grad_x_sums = conv2d_grad_x_sums;
}
