/* Softmax, cross-entropy, their gradients, and top-k counts: one block per row, sums in a fixed order. A label that
 * is not a class makes the loss NaN, because the host cannot check it. */

#include "launch.cuh"
#include "loss.h"

namespace
{

/* A matrix whose rows a block reads: vectors of eight where the elements of a row are adjacent, else one by one. */
template <class T> struct matrix {
    T *data;
    int64_t stride[2], count; /* count: elements of a row */
    __device__ T *at(int64_t n, int64_t k) const
    {
        return data + n * stride[0] + k * stride[1];
    }
};

/* Calls use(k, v, valid) for each element of row n: v[0] to v[valid - 1] are elements k and following, the others
 * -Inf. valid is 8 or 1. If `other` is given, its elements k to k + 7 are aligned too where valid is 8. */
template <class T, class Use>
__device__ void for_row(const matrix<T> &x, int64_t n, const matrix<T> *other, Use use)
{
    const uintptr_t from = (uintptr_t)x.at(n, 0), to = other ? (uintptr_t)other->at(n, 0) : from;
    const bool adjacent = x.stride[1] == 1 && (!other || other->stride[1] == 1);
    const int64_t before = (int64_t)(-from % 16 / sizeof(T));
    const int64_t head = adjacent && (from - to) % 16 == 0 && before < x.count ? before : x.count;
    const int64_t vectors = (x.count - head) / LT_VECTOR_WIDTH;
    float v[LT_VECTOR_WIDTH];
    for (int64_t i = threadIdx.x; i < vectors; i += THREADS) {
        const int64_t k = head + i * LT_VECTOR_WIDTH;
        load_vector(x.at(n, 0) + k, v);
        use(k, v, LT_VECTOR_WIDTH);
    }
    for (int64_t i = threadIdx.x; i < x.count - vectors * LT_VECTOR_WIDTH; i += THREADS) {
        const int64_t k = i < head ? i : i + vectors * LT_VECTOR_WIDTH;
        for (float &one : v)
            one = -INFINITY;
        v[0] = to_float(*x.at(n, k));
        use(k, v, 1);
    }
}

/* Stores what for_row() gave, after a change. */
template <class T>
__device__ void store_row(const matrix<T> &y, int64_t n, int64_t k,
                          const float (&v)[LT_VECTOR_WIDTH], int valid)
{
    if (valid == LT_VECTOR_WIDTH)
        store_vector(y.at(n, k), v);
    else
        store_float(y.at(n, k), v[0]);
}

/* Returns the maximum over the block's threads in every thread; NaN is dropped. */
__device__ float block_max(float x)
{
    __shared__ float warp[THREADS / 32];
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFU, x, step));
    __syncthreads(); /* a largest before this one was read */
    if (threadIdx.x % 32 == 0)
        warp[threadIdx.x / 32] = x;
    __syncthreads();
    for (int i = 0; i < THREADS / 32; i++)
        x = fmaxf(x, warp[i]);
    return x;
}

/* The sum of exp(element - largest) in one pass (Milakov & Gimelshein, "Online normalizer calculation for softmax",
 * 2018). A NaN is in the sum, not in the largest. */
struct exp_sum {
    float top = -INFINITY;
    double sum = 0;
    template <class T> __device__ void add(const float (&v)[LT_VECTOR_WIDTH])
    {
        float largest = v[0], more = 0;
#pragma unroll
        for (int i = 1; i < LT_VECTOR_WIDTH; i++)
            largest = fmaxf(largest, v[i]);
        if (largest > top) {
            sum *= (double)expf(top - largest);
            top = largest;
        }
        const float shift = top == -INFINITY ? 0 : top;
#pragma unroll
        for (int i = 0; i < LT_VECTOR_WIDTH; i++)
            more += exp_for<T>(v[i] - shift);
        sum += (double)more;
    }
    /* Adds the sums of all threads; in every thread. */
    __device__ void finish()
    {
        const float own = top;
        top = block_max(own);
        sum = block_sum_to_all(sum * (double)expf(own - top));
    }
};

template <class T> __global__ void softmax_rows(matrix<T> x, matrix<T> y)
{
    const int64_t n = blockIdx.x;
    exp_sum s;
    for_row(x, n, &y, [&](int64_t, float(&v)[LT_VECTOR_WIDTH], int) { s.add<T>(v); });
    s.finish();
    for_row(x, n, &y, [&](int64_t k, float(&v)[LT_VECTOR_WIDTH], int valid) {
        for (float &one : v)
            one = (float)((double)expf(one - s.top) / s.sum);
        store_row(y, n, k, v, valid);
    });
}

template <class T> __global__ void softmax_grad_rows(matrix<T> dy, matrix<T> y, matrix<T> dx)
{
    const int64_t n = blockIdx.x;
    double sum = 0;
    for (int64_t k = threadIdx.x; k < y.count; k += THREADS)
        sum += (double)to_float(*dy.at(n, k)) * (double)to_float(*y.at(n, k));
    sum = block_sum_to_all(sum);
    for (int64_t k = threadIdx.x; k < y.count; k += THREADS)
        store_float(dx.at(n, k), (float)((double)to_float(*y.at(n, k))
                                         * ((double)to_float(*dy.at(n, k)) - sum)));
}

/* Computes each row's lse and loss. With a class index the loss follows from sums over the row; soft targets are
 * read in a second pass. */
template <class T>
__global__ void loss_rows(matrix<T> z, lt_targets t, lt_view lse, double *row_loss)
{
    const int64_t n = blockIdx.x;
    const bool smooth = !t.soft && t.smoothing != 0;
    exp_sum s;
    double logits = 0, loss = 0;
    for_row(z, n, (const matrix<T> *)NULL, [&](int64_t, float(&v)[LT_VECTOR_WIDTH], int valid) {
        s.add<T>(v);
        float more = v[0];
        for (int i = 1; i < valid && smooth; i++)
            more += v[i];
        logits += smooth ? (double)more : 0;
    });
    s.finish();
    const double all = (double)s.top + log(s.sum);
    for (int64_t k = threadIdx.x; k < t.classes && t.soft; k += THREADS)
        loss += lt_loss_term(lt_target_probability(&t, n, k), to_float(*z.at(n, k)), (float)all);
    loss = t.soft ? block_sum(loss) : 0;
    logits = smooth ? block_sum(logits) : 0;
    if (threadIdx.x > 0)
        return;
    lt_set_element(lse.data, lse.dtype, n * lse.stride[0], all);
    if (!lt_target_is_class(&t, n)) {
        loss = (double)NAN;
    } else if (!t.soft && !lt_target_is_ignored(&t, n)) {
        const double own = (double)to_float(*z.at(n, lt_target_label(&t, n)));
        loss = lt_hard_loss(&t, own, logits, all);
    }
    row_loss[n] = loss;
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

/* Gradient with soft targets, which need not sum to 1. */
template <class T>
__device__ void soft_loss_grad(const matrix<T> &z, const lt_targets &t, double factor, float lse,
                               const matrix<T> &dx)
{
    const int64_t n = blockIdx.x;
    double total = 0;
    for (int64_t k = threadIdx.x; k < t.classes; k += THREADS)
        total += lt_target_probability(&t, n, k);
    total = block_sum_to_all(total);
    for (int64_t k = threadIdx.x; k < t.classes; k += THREADS) {
        const double p = total == 0 ? 0 : (double)expf(to_float(*z.at(n, k)) - lse);
        store_float(dx.at(n, k), (float)(factor * (p * total - lt_target_probability(&t, n, k))));
    }
}

template <class T>
__global__ void loss_grad(matrix<T> z, lt_targets t, const double *row_factor, lt_view lse,
                          matrix<T> dx)
{
    const int64_t n = blockIdx.x;
    const float l = lt_element_f32(lse.data, lse.dtype, n * lse.stride[0]);
    if (t.soft) {
        soft_loss_grad(z, t, *row_factor, l, dx);
        return;
    }
    const int64_t label = lt_target_label(&t, n);
    const bool ignored = lt_target_is_ignored(&t, n);
    const float factor = (float)*row_factor, other = (float)(t.smoothing / (double)t.classes);
    const float own = (float)(1 - t.smoothing);
    for_row(z, n, &dx, [&](int64_t k, float(&v)[LT_VECTOR_WIDTH], int valid) {
#pragma unroll
        for (int i = 0; i < LT_VECTOR_WIDTH; i++)
            v[i] = exp_for<T>(v[i] - l) - other;
        if (k <= label && label < k + valid)
#pragma unroll
            for (int i = 0; i < LT_VECTOR_WIDTH; i++)
                v[i] -= k + i == label ? own : 0;
#pragma unroll
        for (int i = 0; i < LT_VECTOR_WIDTH; i++)
            v[i] = ignored ? 0 : factor * v[i];
        store_row(dx, n, k, v, valid);
    });
}

/* Counts are integers, so their sum does not depend on the order of additions. */
template <class T>
__global__ void count_hits(matrix<T> z, const int32_t *labels, int64_t label_stride,
                           unsigned long long *hits, int64_t hits_stride, bool with_rows)
{
    enum { TOP = 5 };
    const int64_t n = blockIdx.x, label = labels[n * label_stride];
    const bool is_class = label >= 0 && label < z.count;
    const float own = is_class ? to_float(*z.at(n, label)) : 0;
    int before = 0;
    bool any_nan = false;
    for_row(z, n, (const matrix<T> *)NULL, [&](int64_t k, float(&v)[LT_VECTOR_WIDTH], int valid) {
        const int ties = (int)max((int64_t)-1, min(label - k, (int64_t)valid));
#pragma unroll
        for (int i = 0; i < LT_VECTOR_WIDTH; i++) {
            before += v[i] > own || (i < ties && v[i] == own);
            any_nan = any_nan || v[i] != v[i];
        }
    });
    const double rank = block_sum(any_nan ? (double)z.count : (double)before);
    if (threadIdx.x == 0 && with_rows && label != LT_IGNORED_LABEL)
        atomicAdd(&hits[2 * hits_stride], 1ULL);
    if (threadIdx.x > 0 || !is_class || rank >= (double)z.count)
        return;
    if (rank == 0)
        atomicAdd(&hits[0], 1ULL);
    if (rank < TOP)
        atomicAdd(&hits[hits_stride], 1ULL);
}

template <class T> matrix<T> make_matrix(const lt_view *x)
{
    const matrix<T> z = {(T *)x->data, {x->stride[0], x->stride[1]}, x->shape.dim[1]};
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
    WITH_TYPE(c, x->dtype, {
        softmax_rows<T><<<(unsigned)x->shape.dim[0], THREADS, 0, main_stream(c)>>>(
            make_matrix<T>(x), make_matrix<T>(y));
    })
    return lt_cuda_end(c);
}

lt_status softmax_grad(void *ctx, const lt_view *dy, const lt_view *y, const lt_view *dx)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "softmax_grad"));
    WITH_TYPE(c, y->dtype, {
        softmax_grad_rows<T><<<(unsigned)y->shape.dim[0], THREADS, 0, main_stream(c)>>>(
            make_matrix<T>(dy), make_matrix<T>(y), make_matrix<T>(dx));
    })
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
    WITH_TYPE(c, logits->dtype, {
        loss_rows<T><<<(unsigned)t.rows, THREADS, 0, main_stream(c)>>>(make_matrix<T>(logits), t,
                                                                       *lse, (double *)row_loss);
    })
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
    WITH_TYPE(c, logits->dtype, {
        loss_grad<T><<<(unsigned)t.rows, THREADS, 0, main_stream(c)>>>(
            make_matrix<T>(logits), t, (const double *)factor, *lse, make_matrix<T>(dx));
    })
    return lt_cuda_end(c);
}

lt_status topk_hits(void *ctx, const lt_view *logits, const lt_view *labels, const lt_view *hits)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "topk_hits"));
    WITH_TYPE(c, logits->dtype, {
        count_hits<T><<<(unsigned)logits->shape.dim[0], THREADS, 0, main_stream(c)>>>(
            make_matrix<T>(logits), (const int32_t *)labels->data, labels->stride[0],
            (unsigned long long *)hits->data, hits->stride[0], hits->shape.dim[0] > 2);
    })
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
