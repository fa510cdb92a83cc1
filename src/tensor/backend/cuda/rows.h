/* A 4-D tensor as rows of channels, row r = (n * H + h) * W + w, and its partition for reductions. The partition
 * depends on sizes only, so that sums are the same on every device. */
#ifndef LT_CUDA_ROWS_H
#define LT_CUDA_ROWS_H

#include "host_device.h"

#include "lather/detail/view.h"

enum {
    LT_VECTOR_WIDTH = 8, /* elements of a thread's vector access */
    LT_ROW_THREADS = 256 /* threads of a block */
};

typedef struct lt_rows {
    int64_t height, width, channels, count; /* count: rows */
    int64_t stride[4];                      /* strides of n, c, h, w */
    bool dense;                             /* contiguous channels-last */
} lt_rows;

LT_HD int64_t lt_rows_offset(const lt_rows *rows, int64_t row, int64_t channel)
{
    if (rows->dense)
        return row * rows->channels + channel;
    const int64_t w = row % rows->width, above = row / rows->width;
    return above / rows->height * rows->stride[0] + channel * rows->stride[1]
           + above % rows->height * rows->stride[2] + w * rows->stride[3];
}

/* Returns the number of threads of a block along the channels, each with `width` of them: a power of two. */
LT_HD int lt_row_lanes(int64_t channels, int width)
{
    int lanes = 1;
    /* NOLINTNEXTLINE(bugprone-implicit-widening-of-multiplication-result): at most 32 times 16 */
    while (lanes < 32 && lanes * width < channels)
        lanes *= 2;
    return lanes;
}

/* Partition of a reduction over rows into tiles of channels times chunks of rows: chunk i has rows
 * [i * length, (i + 1) * length), the last fewer. */
typedef struct lt_row_cut {
    int lanes, lines; /* threads along channels and along rows */
    int64_t tiles, chunks, length;
} lt_row_cut;

LT_HD lt_row_cut lt_partition_rows(int64_t count, int64_t channels, int width)
{
    enum { BLOCKS = 1024, SHORTEST = 8 }; /* least rows of a thread */
    lt_row_cut cut;
    cut.lanes = lt_row_lanes(channels, width);
    cut.lines = LT_ROW_THREADS / cut.lanes;
    const int64_t tile = (int64_t)cut.lanes * width, shortest = (int64_t)cut.lines * SHORTEST;
    cut.tiles = (channels + tile - 1) / tile;
    int64_t chunks = BLOCKS / cut.tiles, most = (count + shortest - 1) / shortest;
    chunks = chunks < most ? chunks : most;
    chunks = chunks > 1 ? chunks : 1;
    cut.length = (count + chunks - 1) / chunks;
    cut.chunks = (count + cut.length - 1) / cut.length;
    return cut;
}

/* Count, mean and sum of centred squares of some values. */
typedef struct lt_moments {
    double count, mean, m2;
} lt_moments;

/* Returns the moments of x from sum = sum(x - shift) and square = sum((x - shift)^2). */
LT_HD lt_moments lt_moments_from_sums(double count, double shift, double sum, double square)
{
    lt_moments m;
    const double delta = count > 0 ? sum / count : 0;
    m.count = count;
    m.mean = shift + delta;
    m.m2 = square - sum * delta;
    m.m2 = m.m2 < 0 ? 0 : m.m2; /* rounding; a NaN is kept */
    return m;
}

/* Merges two moments: Chan, Golub & LeVeque, The American Statistician 37, 1983, formula 2.1. */
LT_HD lt_moments lt_moments_merge(lt_moments a, lt_moments b)
{
    if (b.count == 0)
        return a;
    if (a.count == 0)
        return b;
    lt_moments m;
    const double delta = b.mean - a.mean;
    m.count = a.count + b.count;
    const double share = b.count / m.count; /* once: devices take long to divide doubles */
    m.mean = a.mean + delta * share;
    m.m2 = a.m2 + b.m2 + delta * delta * (a.count * share);
    return m;
}

#endif
