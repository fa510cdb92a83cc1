/* Statistics of batch norm from sums that a convolution took along.
 *
 * sum(x^2) - mean * sum(x) loses digits where the mean is far from 0 (Chan, Golub & LeVeque, The
 * American Statistician 37, 1983, section 1). That shows in its result; such a channel, which is rare
 * behind a convolution, is read once more and summed around its first value, by the same block: a
 * launch more, or a choice of the host, would cost every step. */

#include "norm.cuh"
#include "norm_sums.h"

namespace
{

/* The moments of one channel, read again by all threads of the block; right in thread 0. */
template <class T> __device__ lt_moments read_again(const tensor4<const T> &y, int64_t channel)
{
    float shift[1], v[1];
    double sum = 0, square = 0;
    y.load(0, channel, shift);
    for (int64_t row = threadIdx.x; row < y.rows.count; row += THREADS) {
        y.load(row, channel, v);
        const double d = (double)v[0] - (double)shift[0];
        sum += d;
        square += d * d;
    }
    sum = block_sum(sum);
    square = block_sum(square);
    return lt_moments_of((double)y.rows.count, (double)shift[0], sum, square);
}

/* A block for each channel. */
template <class T>
__global__ void moments_of_sums(tensor4<const T> y, const float *sum, const float *squares,
                                float *stats)
{
    const int64_t channel = blockIdx.x, channels = y.rows.channels;
    lt_moments m =
        lt_moments_of_sums((double)y.rows.count, (double)sum[channel], (double)squares[channel]);
    if (lt_moments_cancel(m))
        m = read_again(y, channel);
    if (threadIdx.x)
        return;
    stats[channel] = (float)m.count;
    stats[channels + channel] = (float)m.mean;
    stats[2 * channels + channel] = (float)m.m2;
}

} /* namespace */

extern "C" lt_status lt_cuda_moments_of_sums(lt_cuda *c, const lt_view *y, const float *sum,
                                             const float *squares, const lt_view *stats)
{
    LT_TRY(want_dtype(c, stats, LT_F32));
    WITH_TYPE(c, y->dtype,
              moments_of_sums<T><<<(unsigned)y->shape.dim[1], THREADS, 0, main_stream(c)>>>(
                  tensor_of<const T>(y), sum, squares, (float *)stats->data))
    return LT_OK;
}
