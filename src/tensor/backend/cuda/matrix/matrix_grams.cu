/* Gram matrices and products along a dimension of a few elements, and the second half of gram matrices that were
 * computed in tiles. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels/launch.cuh"

namespace
{

enum { WARPS = THREADS / 32 };

template <class T> __device__ lt_short block_short_job(const T *list, int count)
{
    return list[lt_find_item_of_block(&list->first_block, sizeof *list, count, blockIdx.x)];
}

/* Columns of a block. */
struct range {
    int64_t begin, end;
};

__device__ range block_columns(const lt_short &v)
{
    range r;
    r.begin = (blockIdx.x - v.first_block) * LT_SHORT_COLUMNS;
    r.end = min(r.begin + LT_SHORT_COLUMNS, v.from.rest);
    return r;
}

template <class T> struct column {
    T at[LT_SHORT];
};

/* Loads a column, padded with 0. */
template <class T> __device__ column<T> load_column(const lt_short &v, int64_t i)
{
    const T *from = (const T *)v.from.data + lt_unfolding_offset(&v.from, i);
    column<T> x;
#pragma unroll
    for (int r = 0; r < LT_SHORT; r++)
        x.at[r] = r < v.from.n ? from[r * v.from_step] : (T)0;
    return x;
}

/* A thread sums a few columns in T, warps add these in a fixed order, and further sums are in double. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    short_gram(const lt_short *list, int count, double *partial)
{
    __shared__ T of_warp[WARPS][LT_SHORT_PAIRS];
    const lt_short v = block_short_job(list, count);
    const range mine = block_columns(v);
    T sum[LT_SHORT_PAIRS] = {};
    for (int64_t i = mine.begin + threadIdx.x; i < mine.end; i += THREADS) {
        const column<T> x = load_column<T>(v, i);
#pragma unroll
        for (int a = 0, k = 0; a < LT_SHORT; a++)
#pragma unroll
            for (int b = 0; b <= a; b++, k++)
                sum[k] += x.at[a] * x.at[b];
    }
#pragma unroll
    for (int k = 0; k < LT_SHORT_PAIRS; k++) {
        for (int step = 16; step > 0; step /= 2)
            sum[k] += __shfl_xor_sync(0xFFFFFFFFU, sum[k], step);
        if (threadIdx.x % 32 == 0)
            of_warp[threadIdx.x / 32][k] = sum[k];
    }
    __syncthreads();
    if (threadIdx.x < LT_SHORT_PAIRS) {
        double all = 0;
        for (int w = 0; w < WARPS; w++)
            all += (double)of_warp[w][threadIdx.x];
        partial[(int64_t)blockIdx.x * LT_SHORT_PAIRS + threadIdx.x] = all;
    }
}

/* One block per job, one thread per element of the triangle; adds the blocks' sums in order. */
template <class T>
__global__ void __launch_bounds__(LT_SHORT_PAIRS)
    short_gram_finish(const lt_short *list, const double *partial, const int32_t *finite)
{
    const lt_short &v = list[blockIdx.x];
    const int64_t n = v.from.n;
    int row = 0, column = (int)threadIdx.x;
    if (finite && !*finite)
        return;
    while (column > row)
        column -= ++row;
    if (row >= n)
        return;
    double sum = 0;
    for (int64_t b = v.first_block; b < v.first_block + v.blocks; b++)
        sum += partial[b * LT_SHORT_PAIRS + threadIdx.x];
    T *f = (T *)v.matrix;
    const double old = v.beta == 0 ? 0 : v.beta * (double)f[row * n + column];
    f[row * n + column] = f[column * n + row] = (T)(v.alpha * sum + old);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    short_product(const lt_short *list, int count, const int32_t *finite)
{
    __shared__ T m[LT_SHORT][LT_SHORT];
    const lt_short v = block_short_job(list, count);
    const range mine = block_columns(v);
    const int n = (int)v.from.n, row = (int)threadIdx.x / LT_SHORT, at = threadIdx.x % LT_SHORT;
    if (finite && !*finite)
        return;
    if (row < LT_SHORT)
        m[row][at] = row < n && at < n
                         ? ((const T *)v.matrix)[v.transpose ? at * n + row : row * n + at]
                         : (T)0;
    __syncthreads();
    for (int64_t i = mine.begin + threadIdx.x; i < mine.end; i += THREADS) {
        const column<T> x = load_column<T>(v, i);
        T *to = (T *)v.to.data + lt_unfolding_offset(&v.to, i);
#pragma unroll
        for (int a = 0; a < LT_SHORT; a++) {
            T y = 0;
#pragma unroll
            for (int b = 0; b < LT_SHORT; b++)
                y += m[a][b] * x.at[b];
            if (a < n)
                to[a * v.to_step] = y;
        }
    }
}

/* Transposes through shared memory, so that both accesses are by rows. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    mirror_tiles(const lt_mirror *list, int count, const int32_t *finite)
{
    enum { SIDE = LT_MIRROR_SIDE, ROWS = THREADS / SIDE };
    __shared__ T square[SIDE][SIDE + 1]; /* one more column: columns are in different banks */
    const lt_mirror v =
        list[lt_find_item_of_block(&list->first_block, sizeof *list, count, blockIdx.x)];
    const lt_mirror_square s = lt_mirror_square_at(&v, blockIdx.x - v.first_block);
    const int right = threadIdx.x % SIDE, down = threadIdx.x / SIDE;
    T *f = (T *)v.f;
    if (finite && !*finite)
        return;
    for (int i = down; i < s.rows; i += ROWS)
        if (right < s.columns)
            square[i][right] = f[(s.row + i) * v.n + s.column + right];
    __syncthreads();
    for (int i = down; i < s.columns; i += ROWS)
        if (right < s.rows)
            f[(s.column + i) * v.n + s.row + right] = square[right][i];
}

} /* namespace */

extern "C" {

void lt_short_grams(lt_cuda_stream stream, const lt_short *list, int count, int64_t blocks,
                    double *partial, bool wide, const int32_t *finite)
{
    WIDE_OR_NOT(wide, short_gram<T><<<(unsigned)blocks, THREADS, 0, stream>>>(list, count, partial);
                short_gram_finish<T>
                <<<(unsigned)count, LT_SHORT_PAIRS, 0, stream>>>(list, partial, finite))
}

void lt_short_products(lt_cuda_stream stream, const lt_short *list, int count, int64_t blocks,
                       bool wide, const int32_t *finite)
{
    WIDE_OR_NOT(wide,
                short_product<T><<<(unsigned)blocks, THREADS, 0, stream>>>(list, count, finite))
}

void lt_mirror_tiles(lt_cuda_stream stream, const lt_mirror *list, int count, int64_t blocks,
                     bool wide, const int32_t *finite)
{
    WIDE_OR_NOT(wide,
                mirror_tiles<T><<<(unsigned)blocks, THREADS, 0, stream>>>(list, count, finite))
}
}
