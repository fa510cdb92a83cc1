/* Kernels of composed attention: one warp per row of scores, sums in double. Formulas: detail/attention_kernels.h. */

#include "attention.h"
#include "warp.cuh"

#include <math.h>

namespace
{

/* Position in the view of an element of the items' matrices. */
struct head_place {
    int64_t item, head, t, c;
};

__device__ head_place find_head_place(const lt_heads &h, int64_t item, int64_t row, int64_t c)
{
    const int64_t length = h.view.shape.dim[1];
    const int64_t shared = h.view.shape.dim[2] / h.groups; /* heads of k and v */
    head_place p;
    p.item = item / shared;
    p.head = item % shared * h.groups + row / length;
    p.t = row % length;
    p.c = c;
    return p;
}

__device__ int64_t head_offset(const lt_heads &h, const head_place &p)
{
    return p.item * h.view.stride[0] + p.t * h.view.stride[1] + p.head * h.view.stride[2]
           + p.c * h.view.stride[3];
}

__device__ int64_t head_element(const lt_heads &h, int64_t i)
{
    const int64_t d = h.view.shape.dim[3], rows = h.groups * h.view.shape.dim[1];
    const int64_t row = i / d, item = row / rows;
    return head_offset(h, find_head_place(h, h.first + item, row - item * rows, i - row * d));
}

int64_t heads_count(const lt_heads *h)
{
    return h->items * h->groups * h->view.shape.dim[1] * h->view.shape.dim[3];
}

__global__ void gather_heads(lt_heads from, int64_t count, float *to)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    to[i] = lt_element_f32(from.view.data, from.view.dtype, head_element(from, i));
}

__global__ void scatter_heads(const float *from, int64_t count, lt_heads to)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= count)
        return;
    lt_set_element_f32(to.view.data, to.view.dtype, head_element(to, i), from[i]);
}

/* The row of this warp: its scores, and its item and row number. */
struct score_row {
    float *scores;
    int64_t item, row, seen;
    bool there;
    float scale;
};

__device__ score_row warp_score_row(const lt_scores &s)
{
    const int64_t i = row_of_warp();
    score_row r;
    r.there = i < s.items * s.count;
    r.item = i / s.count;
    r.row = s.first + i % s.count;
    r.scores = s.data + i * s.keys;
    r.seen = lt_scores_visible_keys(&s, r.row);
    r.scale = (float)s.scale;
    r.item += s.first_item;
    return r;
}

/* Rounded before the maximum is subtracted, in both passes, so that the largest one less itself is 0. */
__device__ float scaled_score(const score_row &r, int64_t k)
{
    return fmaf(r.scores[k], r.scale, 0.0f);
}

__global__ void softmax_scores(lt_scores s, float *lse)
{
    const score_row r = warp_score_row(s);
    float top = -INFINITY;
    double sum = 0;
    if (!r.there)
        return;
    for (int64_t k = threadIdx.x % WARP; k < r.seen; k += WARP) {
        const float x = scaled_score(r, k);
        top = x > top || x != x ? x : top;
    }
    top = warp_max(top);
    for (int64_t k = threadIdx.x % WARP; k < r.seen; k += WARP)
        sum += (double)expf(scaled_score(r, k) - top);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        lse[r.item * s.rows + r.row] = (float)((double)top + log(sum));
    const float share = (float)(1 / sum);
    for (int64_t k = threadIdx.x % WARP; k < s.keys; k += WARP)
        r.scores[k] = k < r.seen ? expf(scaled_score(r, k) - top) * share : 0;
}

/* Returns the row's sum of dy * y. */
__device__ float row_sum_dy_y(const lt_heads &dy, const lt_heads &y, const score_row &r)
{
    const int64_t d = dy.view.shape.dim[3];
    double sum = 0;
    for (int64_t c = threadIdx.x % WARP; c < d; c += WARP) {
        const head_place p = find_head_place(dy, r.item, r.row, c);
        sum += (double)lt_element_f32(dy.view.data, dy.view.dtype, head_offset(dy, p))
               * (double)lt_element_f32(y.view.data, y.view.dtype, head_offset(y, p));
    }
    return (float)warp_sum(sum);
}

__global__ void scores_to_slopes(lt_scores s, const float *lse, lt_heads dy, lt_heads y,
                                 float *slope)
{
    const score_row r = warp_score_row(s);
    if (!r.there)
        return;
    const float sum = row_sum_dy_y(dy, y, r), away = lse[r.item * s.rows + r.row];
    float *row = slope + (r.scores - s.data);
    for (int64_t k = threadIdx.x % WARP; k < s.keys; k += WARP) {
        const float p = k < r.seen ? expf(scaled_score(r, k) - away) : 0;
        r.scores[k] = p;
        row[k] = k < r.seen ? r.scale * p * (row[k] - sum) : 0;
    }
}

} /* namespace */

void lt_heads_gather(lt_cuda_stream stream, const lt_heads *from, float *to)
{
    const int64_t count = heads_count(from);
    gather_heads<<<blocks_for(count, THREADS), THREADS, 0, stream>>>(*from, count, to);
}

void lt_heads_scatter(lt_cuda_stream stream, const float *from, const lt_heads *to)
{
    const int64_t count = heads_count(to);
    scatter_heads<<<blocks_for(count, THREADS), THREADS, 0, stream>>>(from, count, *to);
}

void lt_scores_softmax(lt_cuda_stream stream, const lt_scores *s, float *lse)
{
    softmax_scores<<<blocks_for(s->items * s->count, WARPS), THREADS, 0, stream>>>(*s, lse);
}

void lt_scores_slope(lt_cuda_stream stream, const lt_scores *s, const float *lse,
                     const lt_heads *dy, const lt_heads *y, float *slope)
{
    scores_to_slopes<<<blocks_for(s->items * s->count, WARPS), THREADS, 0, stream>>>(*s, lse, *dy,
                                                                                     *y, slope);
}
