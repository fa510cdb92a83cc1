/* Kernels around the libraries' matrix calls. Sums are taken in double, in a fixed order. */

#include "matrices.h"
#include "tensor/backend/cuda/kernels/launch.cuh"

#include <string.h>

namespace
{

const int64_t MOST_BLOCKS = 4096; /* limit per matrix; threads loop over more elements */

dim3 grid_for(int64_t elements, int count)
{
    const int64_t blocks = (elements + THREADS - 1) / THREADS;
    return dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS), (unsigned)count);
}

/* Loops over this thread's elements of the block's matrix. */
#define EACH_ELEMENT(i, elements)                                 \
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, \
                 step_ = (int64_t)gridDim.x * THREADS;            \
         i < (elements); i += step_)

/* Row and column of element i of [n, n]. */
struct cell {
    int64_t row, column;
};

__device__ cell find_cell(int64_t i, int64_t n)
{
    cell c;
    c.row = lt_quotient(i, n, n * n < INT32_MAX);
    c.column = i - c.row * n;
    return c;
}

/* Returns the block's item and its range of elements. */
__device__ lt_gather block_item(const lt_gather *list, int count, int64_t *begin, int64_t *end)
{
    const lt_gather v =
        list[lt_find_item_of_block(&list->first_block, sizeof *list, count, blockIdx.x)];
    *begin = (blockIdx.x - v.first_block) * LT_GATHER_BLOCK;
    *end = min(*begin + LT_GATHER_BLOCK, v.elements);
    return v;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    unfolding_gather(const lt_gather *list, int count, const int32_t *finite)
{
    int64_t begin, end;
    const lt_gather v = block_item(list, count, &begin, &end);
    const bool take = !finite || *finite;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        ((T *)v.matrix)[i] =
            take ? ((const T *)v.unfolding.data)[lt_unfolding_offset(&v.unfolding, i)] : (T)0;
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    unfolding_scatter(const lt_gather *list, int count, const int32_t *finite)
{
    int64_t begin, end;
    const lt_gather v = block_item(list, count, &begin, &end);
    if (finite && !*finite)
        return;
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        ((T *)v.unfolding.data)[lt_unfolding_offset(&v.unfolding, i)] = ((const T *)v.matrix)[i];
}

template <class T> struct alignas(16) narrow {
    T at[LT_NARROW];
};

/* A warp computes several rows, which share its loads of x. Bound by reading m. */
template <class T>
__global__ void __launch_bounds__(THREADS) narrow_products(const lt_narrow *list, int count)
{
    enum { WARP = 32, ROWS = LT_NARROW_ROWS * WARP / THREADS };
    const lt_narrow v =
        list[lt_find_item_of_block(&list->first_block, sizeof *list, count, blockIdx.x)];
    const int64_t first = (blockIdx.x - v.first_block) * LT_NARROW_ROWS + threadIdx.x / WARP * ROWS;
    narrow<T> sum[ROWS] = {};
    for (int64_t j = threadIdx.x % WARP; j < v.n; j += WARP) {
        const narrow<T> x = ((const narrow<T> *)v.x)[j];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const T m = ((const T *)v.m)[min(first + r, v.n - 1) * v.n + j];
            for (int k = 0; k < LT_NARROW; k++)
                sum[r].at[k] += m * x.at[k];
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < LT_NARROW; k++)
            for (int step = WARP / 2; step > 0; step /= 2)
                sum[r].at[k] += __shfl_xor_sync(0xFFFFFFFFU, sum[r].at[k], step);
        if (threadIdx.x % WARP == 0 && first + r < v.n)
            ((narrow<T> *)v.y)[first + r] = sum[r];
    }
}

template <class T>
__global__ void write_coefficients(double alpha, double beta, const int32_t *finite, T *to)
{
    const bool take = !finite || *finite;
    to[0] = take ? (T)alpha : (T)0;
    to[1] = take ? (T)beta : (T)1;
}

template <class T> __global__ void rows_scatter(const T *from, int64_t n, void *const *to, int *bad)
{
    const T *mine = from + blockIdx.y * n;
    T *out = (T *)to[blockIdx.y];
    EACH_ELEMENT(i, n)
    {
        out[i] = mine[i];
        if (!isfinite(mine[i]))
            bad[blockIdx.y] = 1;
    }
}

/* Rounds to TF32, which has 10 bits of fraction, to nearest even. */
__device__ float round_to_tf32(float x)
{
    uint32_t bits;
    if (x != x) /* the sum below would overflow for a NaN of all ones */
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns an element of a split matrix rounded to TF32 and stores the rest in *low; else x. */
template <class T> __device__ T split_high_part(T x, T *low, bool split)
{
    if (!split)
        return x;
    const T high = (T)round_to_tf32((float)x);
    *low = x - high;
    return high;
}

__global__ void blocks_split(float *high, float *low, int64_t rows, int64_t columns, int64_t n)
{
    float *to = high + blockIdx.y * n * n, *rest = low + blockIdx.y * n * n;
    EACH_ELEMENT(i, rows * columns)
    {
        const int64_t column = lt_quotient(i, rows, rows * columns < INT32_MAX);
        const int64_t place = column * n + i - column * rows;
        to[place] = split_high_part(to[place], rest + place, true);
    }
}

/* Returns whether an element is in A21 of a first half that begins at row 0, which no product changes before it is a
 * factor: the row's block is at or after a power of 2 and the column's block before it. */
__device__ bool is_in_first_half(cell c)
{
    const int64_t row = c.column / LT_INVERSE_LEAF, column = c.row / LT_INVERSE_LEAF;
    return column < row && (column ^ row) > column;
}

template <class A, class T>
__global__ void term_begin(const lt_term *term, int64_t n, int split, T *l, T *low)
{
    const lt_term t = term[blockIdx.y];
    const int64_t first = blockIdx.y * n * n;
    const A *a = (const A *)t.a;
    const double shift = t.scale ? t.shift * *t.scale : t.shift;
    EACH_ELEMENT(i, n * n)
    {
        const cell c = find_cell(i, n);
        if (c.row > c.column)
            continue;
        const T x = (T)((double)a[i] + (c.row == c.column ? shift : 0.0));
        l[first + i] =
            split_high_part(x, low + first + i, (int)blockIdx.y < split && is_in_first_half(c));
    }
}

__device__ lt_leaf block_leaf(const lt_leaves &v)
{
    return v.list[lt_find_item_of_block(&v.list->first, sizeof *v.list, v.lists, blockIdx.y)];
}

template <class T>
__global__ void leaves_take(const __grid_constant__ lt_leaves v, T *a, T *x, void **a_at,
                            void **x_at)
{
    const lt_leaf l = block_leaf(v);
    const T *from = (const T *)l.a + (blockIdx.y - l.first) * l.n * l.n;
    const int64_t place = blockIdx.y * v.side * v.side;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        a_at[blockIdx.y] = a + place;
        x_at[blockIdx.y] = x + place;
    }
    EACH_ELEMENT(i, v.side * v.side)
    {
        const cell c = find_cell(i, v.side);
        const T unit = c.row == c.column ? (T)1 : (T)0;
        if (c.row <= c.column)
            a[place + i] = c.column < l.rows ? from[c.row * l.n + c.column] : unit;
        x[place + i] = unit;
    }
}

template <class T>
__global__ void leaves_put(const __grid_constant__ lt_leaves v, const T *x, const int *info)
{
    const lt_leaf l = block_leaf(v);
    const int64_t k = blockIdx.y - l.first, square = v.side * v.side;
    T *to = (T *)l.x + k * l.n * l.n, *low = (T *)l.x_low + k * l.n * l.n;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        l.bad[k] = (v.number > 0 && l.bad[k]) || info[blockIdx.y];
    EACH_ELEMENT(i, square)
    {
        const cell c = find_cell(i, v.side);
        const int64_t place = c.row * l.n + c.column;
        if (c.row < l.rows && c.column < l.rows)
            to[place] = split_high_part(x[blockIdx.y * square + i], low + place, k < l.split);
    }
}

/* Returns whether the term's inverse was found, and records a sum's first failure. */
__device__ bool has_inverse(const lt_term &t, int bad)
{
    if (bad && blockIdx.x == 0 && threadIdx.x == 0 && *t.failed == 0)
        *t.failed = 1 + (int)t.number;
    return !bad;
}

/* The blocks of a sum's first term add all of its terms, in their order. */
template <class T>
__global__ void terms_add(const lt_term *term, int64_t n, const T *inverse, const int *bad)
{
    const int first = (int)blockIdx.y;
    double *sum = term[first].sum;
    if (!term[first].head)
        return;
    for (int64_t k = first, step = 1; step; step = term[k].next, k += step)
        if (!has_inverse(term[k], bad[k]))
            return;
    EACH_ELEMENT(i, n * n)
    {
        const cell c = find_cell(i, n);
        if (c.row > c.column)
            continue;
        double some = term[first].begins ? 0 : sum[i];
        for (int64_t k = first, step = 1; step; step = term[k].next, k += step)
            some += term[k].weight * (double)inverse[k * n * n + i];
        sum[i] = some;
    }
}

template <class T>
__global__ void sums_store(const double *sum, const lt_sum_end *to, int64_t n, const int *failed)
{
    const double *mine = sum + blockIdx.y * n * n;
    const lt_sum_end t = to[blockIdx.y];
    T *out = (T *)t.y;
    if (failed[blockIdx.y]) {
        if (t.scale && blockIdx.x == 0 && threadIdx.x == 0)
            out[0] = (T)NAN;
        return;
    }
    const double root = t.scale ? pow(*t.scale, -t.exponent) : 1;
    const double factor = t.scale ? *t.scale * root : 1, constant = t.constant * root;
    EACH_ELEMENT(i, n * n)
    {
        const cell c = find_cell(i, n);
        const int64_t from = c.row <= c.column ? i : c.column * n + c.row;
        const double some = t.terms ? factor * mine[from] : 0.0;
        out[i] = (T)(some + (c.row == c.column ? constant : 0.0));
    }
}

/* Stable; n^2 comparisons cost little compared with the factorization. */
template <class T> __global__ void rank_columns(const T *a, int64_t n, int *rank)
{
    EACH_ELEMENT(j, n)
    {
        const T mine = a[j * (n + 1)];
        int before = 0;
        for (int64_t k = 0; k < n; k++) {
            const T other = a[k * (n + 1)];
            before += other > mine || (other == mine && k < j);
        }
        rank[j] = before;
    }
}

template <class T> __global__ void sort_columns(const T *a, int64_t n, const int *rank, T *to)
{
    EACH_ELEMENT(i, n * n)
    {
        const cell c = find_cell(i, n);
        to[rank[c.column] * n + c.row] = a[i];
    }
}

template <class T> __global__ void read_signs(const T *r, int64_t n, double *sign)
{
    EACH_ELEMENT(k, n)
    sign[k] = r[k * (n + 1)] < 0 ? -1.0 : 1.0;
}

template <class T>
__global__ void restore_columns(const T *from, int64_t n, const int *rank, const double *sign, T *q)
{
    EACH_ELEMENT(i, n * n)
    {
        const cell c = find_cell(i, n);
        const int k = rank[c.column];
        q[i] = (T)sign[k] * from[k * n + c.row];
    }
}

/* Lists are sent to the device as parameters of a kernel that stores them: it reads no host memory when it runs, so
 * that a captured step contains them. */
enum { PACKET_WORDS = 3072 };

struct packet {
    uint64_t word[PACKET_WORDS];
};
static_assert(sizeof(lt_leaves) + 64 <= MAX_PARAMETERS, "they fit into a kernel's parameters");
static_assert(sizeof(packet) + 64 <= MAX_PARAMETERS, "a packet fits into a kernel's parameters");

__global__ void __launch_bounds__(THREADS)
    store_packet(const __grid_constant__ packet from, uint64_t *to, int words)
{
    for (int i = (int)(blockIdx.x * THREADS + threadIdx.x); i < words; i += THREADS * gridDim.x)
        to[i] = from.word[i];
}

} /* namespace */

extern "C" {

void lt_unfolding_gather(lt_cuda_stream stream, const lt_gather *list, int count, int64_t blocks,
                         bool wide, const int32_t *finite)
{
    WIDE_OR_NOT(wide,
                unfolding_gather<T><<<(unsigned)blocks, THREADS, 0, stream>>>(list, count, finite))
}

void lt_unfolding_scatter(lt_cuda_stream stream, const lt_gather *list, int count, int64_t blocks,
                          bool wide, const int32_t *finite)
{
    WIDE_OR_NOT(wide,
                unfolding_scatter<T><<<(unsigned)blocks, THREADS, 0, stream>>>(list, count, finite))
}

void lt_narrow_products(lt_cuda_stream stream, const lt_narrow *list, int count, int64_t blocks,
                        bool wide)
{
    WIDE_OR_NOT(wide, narrow_products<T><<<(unsigned)blocks, THREADS, 0, stream>>>(list, count))
}

void lt_coefficients(lt_cuda_stream stream, bool wide, double alpha, double beta,
                     const int32_t *finite, void *to)
{
    WIDE_OR_NOT(wide, write_coefficients<T><<<1, 1, 0, stream>>>(alpha, beta, finite, (T *)to))
}

void lt_rows_scatter(lt_cuda_stream stream, const void *from, int count, int64_t n, bool wide,
                     void *const *to, int *bad)
{
    WIDE_OR_NOT(wide, rows_scatter<T>
                <<<grid_for(n, count), THREADS, 0, stream>>>((const T *)from, n, to, bad))
}

void lt_term_begin(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v)
{
    const dim3 grid = grid_for(v->n * v->n, v->count);
    if (v->a_wide)
        term_begin<double, double>
            <<<grid, THREADS, 0, stream>>>(term, v->n, v->split, (double *)v->a, (double *)v->low);
    else
        WIDE_OR_NOT(v->wide, term_begin<float, T>
                    <<<grid, THREADS, 0, stream>>>(term, v->n, v->split, (T *)v->a, (T *)v->low))
}

void lt_leaves_pad(lt_cuda_stream stream, const lt_leaves *v, bool wide, const lt_leaf_work *to)
{
    const dim3 grid = grid_for(v->side * v->side, (int)v->count);
    WIDE_OR_NOT(wide, leaves_take<T>
                <<<grid, THREADS, 0, stream>>>(*v, (T *)to->a, (T *)to->x, to->a_at, to->x_at))
}

void lt_leaves_copy_back(lt_cuda_stream stream, const lt_leaves *v, bool wide,
                         const lt_leaf_work *from)
{
    const dim3 grid = grid_for(v->side * v->side, (int)v->count);
    WIDE_OR_NOT(wide,
                leaves_put<T><<<grid, THREADS, 0, stream>>>(*v, (const T *)from->x, from->info))
}

void lt_blocks_split(lt_cuda_stream stream, float *high, float *low, int64_t rows, int64_t columns,
                     int64_t n, int count)
{
    blocks_split<<<grid_for(rows * columns, count), THREADS, 0, stream>>>(high, low, rows, columns,
                                                                          n);
}

void lt_terms_add(lt_cuda_stream stream, const lt_term *term, const lt_inverses *v)
{
    const dim3 grid = grid_for(v->n * v->n, v->count);
    WIDE_OR_NOT(v->wide,
                terms_add<T><<<grid, THREADS, 0, stream>>>(term, v->n, (const T *)v->made, v->bad))
}

void lt_sums_store(lt_cuda_stream stream, const double *sum, const lt_sum_end *to, int count,
                   int64_t n, bool wide, const int *failed)
{
    WIDE_OR_NOT(wide,
                sums_store<T><<<grid_for(n * n, count), THREADS, 0, stream>>>(sum, to, n, failed))
}

void lt_columns_sort(lt_cuda_stream stream, const void *a, int64_t n, bool wide, int *rank,
                     void *to)
{
    WIDE_OR_NOT(
        wide, rank_columns<T><<<grid_for(n, 1), THREADS, 0, stream>>>((const T *)a, n, rank);
        sort_columns<T><<<grid_for(n * n, 1), THREADS, 0, stream>>>((const T *)a, n, rank, (T *)to))
}

void lt_columns_signs(lt_cuda_stream stream, const void *r, int64_t n, bool wide, double *sign)
{
    WIDE_OR_NOT(wide, read_signs<T><<<grid_for(n, 1), THREADS, 0, stream>>>((const T *)r, n, sign))
}

void lt_columns_restore(lt_cuda_stream stream, const void *from, int64_t n, bool wide,
                        const int *rank, const double *sign, void *q)
{
    WIDE_OR_NOT(wide, restore_columns<T><<<grid_for(n * n, 1), THREADS, 0, stream>>>(
                          (const T *)from, n, rank, sign, (T *)q))
}
}

extern "C" void lt_send_list(lt_cuda_stream stream, void *to, const void *from, size_t bytes)
{
    const size_t most = sizeof(packet);
    for (size_t at = 0; at < bytes; at += most) {
        packet p;
        const size_t some = bytes - at < most ? bytes - at : most;
        const int words = (int)(some / sizeof(uint64_t));
        memcpy(p.word, (const char *)from + at, some);
        store_packet<<<blocks_for(words, THREADS), THREADS, 0, stream>>>(
            p, (uint64_t *)((char *)to + at), words);
    }
}
