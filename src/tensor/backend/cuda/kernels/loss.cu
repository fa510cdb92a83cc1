/* Softmax, cross-entropy, their gradients, and top-k counts: one block per row, sums in a fixed order. A label that
 * is not a class makes the loss NaN, because the host cannot check it. */

#include "launch.cuh"
#include "loss.h"

namespace
{

struct logits_view {
    const void *data;
    lt_dtype dtype;
    int64_t stride[2];
    __device__ float at(int64_t n, int64_t k) const
    {
        return lt_element_f32(data, dtype, n * stride[0] + k * stride[1]);
    }
};

/* Returns the maximum over the block's threads, or NaN if a value is NaN, in every thread. */
__device__ float block_max(float x)
{
    __shared__ float warp[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xFFFFFFFFU, x, step);
        x = other > x || other != other ? other : x;
    }
    __syncthreads(); /* a largest before this one was read */
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++)
        x = warp[i] > x || warp[i] != warp[i] ? warp[i] : x;
    return x;
}

/* Returns the sum of exp(element - largest) over row n, and its largest element, in every thread. */
__device__ double row_exp_sum(const logits_view &x, int64_t n, int64_t count, float *largest)
{
    float top = -INFINITY;
    for (int64_t k = threadIdx.x; k < count; k += THREADS) {
        const float v = x.at(n, k);
        top = v > top || v != v ? v : top;
    }
    *largest = top = block_max(top);
    double sum = 0;
    for (int64_t k = threadIdx.x; k < count; k += THREADS)
        sum += (double)expf(x.at(n, k) - top);
    return block_sum_to_all(sum);
}

__global__ void softmax_rows(logits_view x, int64_t count, lt_view y)
{
    const int64_t n = blockIdx.x;
    float top;
    const double sum = row_exp_sum(x, n, count, &top);
    for (int64_t k = threadIdx.x; k < count; k += THREADS)
        lt_set_element_f32(y.data, y.dtype, n * y.stride[0] + k * y.stride[1],
                           (float)((double)expf(x.at(n, k) - top) / sum));
}

__global__ void softmax_grad_rows(logits_view dy, logits_view y, int64_t count, lt_view dx)
{
    const int64_t n = blockIdx.x;
    double sum = 0;
    for (int64_t k = threadIdx.x; k < count; k += THREADS)
        sum += (double)dy.at(n, k) * (double)y.at(n, k);
    sum = block_sum_to_all(sum);
    for (int64_t k = threadIdx.x; k < count; k += THREADS)
        lt_set_element_f32(dx.data, dx.dtype, n * dx.stride[0] + k * dx.stride[1],
                           (float)((double)y.at(n, k) * ((double)dy.at(n, k) - sum)));
}

/* Computes each row's lse and loss. */
__global__ void loss_rows(logits_view z, lt_targets t, lt_view lse, double *row_loss)
{
    const int64_t n = blockIdx.x;
    float top;
    const double sum = row_exp_sum(z, n, t.classes, &top), all = (double)top + log(sum);
    if (threadIdx.x == 0)
        lt_set_element(lse.data, lse.dtype, n * lse.stride[0], all);
    double loss = 0;
    for (int64_t k = threadIdx.x; k < t.classes; k += THREADS)
        loss += lt_loss_term(lt_target_probability(&t, n, k), z.at(n, k), (float)all);
    loss = block_sum(loss);
    if (threadIdx.x == 0)
        row_loss[n] = lt_target_is_class(&t, n) ? loss : (double)NAN;
}

/* Returns the number of rows that are not ignored, in thread 0; for one block. */
__device__ double count_unignored_rows(lt_targets t)
{
    double count = 0;
    for (int64_t n = threadIdx.x; n < t.rows; n += THREADS)
        count += lt_target_is_ignored(&t, n) ? 0 : 1;
    return block_sum(count);
}

/* One block. */
__global__ void loss_mean(const double *row_loss, lt_targets t, lt_view loss)
{
    double sum = 0;
    for (int64_t n = threadIdx.x; n < t.rows; n += THREADS)
        sum += row_loss[n];
    sum = block_sum(sum);
    const double rows = count_unignored_rows(t);
    if (threadIdx.x == 0)
        lt_set_element(loss.data, loss.dtype, 0, rows > 0 ? sum / rows : 0);
}

/* One block: the factor of all rows' gradients. */
__global__ void loss_grad_factor(lt_targets t, lt_view dloss, double *factor)
{
    const double rows = count_unignored_rows(t);
    if (threadIdx.x == 0)
        *factor = rows > 0 ? lt_element(dloss.data, dloss.dtype, 0) / rows : 0;
}

__global__ void loss_grad(logits_view z, lt_targets t, const double *row_factor, lt_view lse,
                          lt_view dx)
{
    const int64_t n = blockIdx.x;
    double total = 0;
    for (int64_t k = threadIdx.x; k < t.classes; k += THREADS)
        total += lt_target_probability(&t, n, k);
    total = block_sum_to_all(total);
    const double factor = *row_factor;
    const float l = lt_element_f32(lse.data, lse.dtype, n * lse.stride[0]);
    for (int64_t k = threadIdx.x; k < t.classes; k += THREADS) {
        const double p = total == 0 ? 0 : (double)expf(z.at(n, k) - l);
        const double g = factor * (p * total - lt_target_probability(&t, n, k));
        lt_set_element_f32(dx.data, dx.dtype, n * dx.stride[0] + k * dx.stride[1], (float)g);
    }
}

/* Counts are integers, so their sum does not depend on the order of additions. */
__global__ void count_hits(logits_view z, const int32_t *labels, int64_t label_stride,
                           int64_t classes, unsigned long long *hits, int64_t hits_stride,
                           bool with_rows)
{
    enum { TOP = 5 };
    const int64_t n = blockIdx.x, label = labels[n * label_stride];
    const bool is_class = label >= 0 && label < classes;
    const float own = is_class ? z.at(n, label) : 0;
    double rank = 0;
    for (int64_t k = threadIdx.x; k < classes; k += THREADS) {
        const float v = z.at(n, k);
        rank += v != v ? (double)classes : (double)lt_ranks_before_label(v, k, own, label);
    }
    rank = block_sum(rank);
    if (threadIdx.x == 0 && with_rows && label != LT_IGNORED_LABEL)
        atomicAdd(&hits[2 * hits_stride], 1ULL);
    if (threadIdx.x > 0 || !is_class || rank >= (double)classes)
        return;
    if (rank == 0)
        atomicAdd(&hits[0], 1ULL);
    if (rank < TOP)
        atomicAdd(&hits[hits_stride], 1ULL);
}

logits_view make_logits_view(const lt_view *x)
{
    logits_view z;
    z.data = x->data;
    z.dtype = x->dtype;
    z.stride[0] = x->stride[0];
    z.stride[1] = x->stride[1];
    return z;
}

lt_targets make_targets(double smoothing, const lt_view *logits, const lt_view *labels)
{
    lt_targets t;
    t.values = labels->data;
    t.dtype = labels->dtype;
    t.rows = logits->shape.dim[0];
    t.classes = logits->shape.dim[1];
    t.stride[0] = labels->stride[0];
    t.stride[1] = labels->stride[1];
    t.soft = labels->shape.ndim == 2;
    t.smoothing = smoothing;
    return t;
}

lt_status softmax(void *ctx, const lt_view *x, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "softmax"));
    softmax_rows<<<(unsigned)x->shape.dim[0], THREADS, 0, main_stream(c)>>>(make_logits_view(x),
                                                                            x->shape.dim[1], *y);
    return lt_cuda_end(c);
}

lt_status softmax_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "softmax_grad"));
    softmax_grad_rows<<<(unsigned)y->shape.dim[0], THREADS, 0, main_stream(c)>>>(
        make_logits_view(dy), make_logits_view(y), y->shape.dim[1], *dx);
    return lt_cuda_end(c);
}

lt_status softmax_xent(void *ctx, double smoothing, const lt_view *logits, const lt_view *labels,
                       const lt_view *lse, const lt_view *loss)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_targets t = make_targets(smoothing, logits, labels);
    void *row_loss;
    LT_TRY(lt_cuda_begin(c, "softmax_xent"));
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, (size_t)t.rows * sizeof(double), &row_loss));
    loss_rows<<<(unsigned)t.rows, THREADS, 0, main_stream(c)>>>(make_logits_view(logits), t, *lse,
                                                                (double *)row_loss);
    loss_mean<<<1, THREADS, 0, main_stream(c)>>>((const double *)row_loss, t, *loss);
    return lt_cuda_end(c);
}

lt_status softmax_xent_grad(void *ctx, double smoothing, const lt_view *dloss,
                            const lt_view *logits, const lt_view *labels, const lt_view *lse,
                            const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const lt_targets t = make_targets(smoothing, logits, labels);
    void *factor;
    LT_TRY(lt_cuda_begin(c, "softmax_xent_grad"));
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, sizeof(double), &factor));
    loss_grad_factor<<<1, THREADS, 0, main_stream(c)>>>(t, *dloss, (double *)factor);
    loss_grad<<<(unsigned)t.rows, THREADS, 0, main_stream(c)>>>(make_logits_view(logits), t,
                                                                (const double *)factor, *lse, *dx);
    return lt_cuda_end(c);
}

lt_status topk_hits(void *ctx, const lt_view *logits, const lt_view *labels, const lt_view *hits)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "topk_hits"));
    count_hits<<<(unsigned)logits->shape.dim[0], THREADS, 0, main_stream(c)>>>(
        make_logits_view(logits), (const int32_t *)labels->data, labels->stride[0],
        logits->shape.dim[1], (unsigned long long *)hits->data, hits->stride[0],
        hits->shape.dim[0] > 2);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_loss(lt_backend *be)
{
    be->softmax = softmax;
    be->softmax_grad = softmax_grad;
    be->softmax_xent = softmax_xent;
    be->softmax_xent_grad = softmax_xent_grad;
    be->topk_hits = topk_hits;
}
