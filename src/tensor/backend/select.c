/* Top-k by magnitude: a radix select over the bits of |x|, whose order as integers is that of the
 * magnitudes. Three passes count digits of 11, 10 and 10 bits, highest first, of the elements that match the
 * known digits of the threshold; a fourth writes the positions. Alabi, Blelloch, Gordon and Steinbach, "Fast
 * k-selection algorithms for graphics processing units", JEA 17, 2012, section 3.2. Chunks are counted in
 * integers, so the result does not depend on the threads. */

#include "tensor/backend/select.h"

#include "base/alloc.h"
#include "base/parallel.h"

#include "lather/ext/fail.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 17, PASSES = 3, BINS = 1 << 11, COPIES = 4 };

#define INFINITE 0x7f800000U

static const struct digit {
    int shift, bits;
} digits[PASSES] = {{20, 11}, {10, 10}, {0, 10}};

/* Number of a chunk's elements above the threshold, and equal to it; position of its first result. */
typedef struct chunk_count {
    int64_t above, equal, first;
} chunk_count;

typedef struct job {
    const float *x;
    uint32_t known; /* the threshold's known higher digits, followed by zeros */
    struct digit digit;
    chunk_count *chunk;
    uint32_t *histogram; /* [chunks, BINS] */
    uint32_t *index;
} job;

/* Returns the bits of |x|, an integer in the order of magnitudes; all NaNs become one value above infinity. */
static inline uint32_t magnitude_key(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0x7fffffffU;
    return bits < INFINITE + 1 ? bits : INFINITE + 1;
}

static int64_t count_chunks(int64_t n)
{
    return (n + CHUNK - 1) / CHUNK;
}

size_t lt_select_workspace(int64_t n)
{
    return (size_t)count_chunks(n) * (sizeof(chunk_count) + BINS * sizeof(uint32_t));
}

/* Fills the histogram of the highest digit, from all elements. Consecutive elements often fall into one bin,
 * so they use different copies of it. */
static void fill_first_histogram(const job *j, int64_t begin, int64_t end, uint32_t *histogram)
{
    uint32_t copy[COPIES][BINS];
    memset(copy, 0, sizeof copy);
    int64_t i = begin;
    for (; i + COPIES <= end; i += COPIES)
        for (int c = 0; c < COPIES; c++)
            copy[c][magnitude_key(j->x[i + c]) >> j->digit.shift]++;
    for (; i < end; i++)
        copy[0][magnitude_key(j->x[i]) >> j->digit.shift]++;
    for (int b = 0; b < BINS; b++)
        histogram[b] = copy[0][b] + copy[1][b] + copy[2][b] + copy[3][b];
}

static void fill_digit_histogram(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const job *j = context;
    const int higher = j->digit.shift + j->digit.bits;
    const uint32_t mask = (1U << j->digit.bits) - 1;
    uint32_t *histogram = j->histogram + chunk * BINS;
    if (higher == digits[0].shift + digits[0].bits) {
        fill_first_histogram(j, begin, end, histogram);
        return;
    }
    memset(histogram, 0, BINS * sizeof *histogram);
    for (int64_t i = begin; i < end; i++) {
        const uint32_t key = magnitude_key(j->x[i]);
        if (key >> higher == j->known >> higher)
            histogram[key >> j->digit.shift & mask]++;
    }
}

/* Returns the bin of the wanted-th largest element; *wanted becomes its rank in the bin. */
static uint32_t find_threshold_bin(const job *j, int64_t chunks, int64_t *wanted)
{
    for (uint32_t b = 1U << j->digit.bits; b-- > 0;) {
        int64_t all = 0;
        for (int64_t c = 0; c < chunks; c++)
            all += j->histogram[c * BINS + b];
        if (*wanted <= all)
            return b;
        *wanted -= all;
    }
    return 0; /* not reached: wanted is at most the number counted */
}

static void count_above_bin(const job *j, int64_t chunks, uint32_t bin)
{
    for (int64_t c = 0; c < chunks; c++) {
        const uint32_t *histogram = j->histogram + c * BINS;
        for (uint32_t b = bin + 1; b < 1U << j->digit.bits; b++)
            j->chunk[c].above += histogram[b];
        j->chunk[c].equal = histogram[bin];
    }
}

/* Computes where the chunks write. Of the elements equal to the threshold the first `equal` are taken. */
static void assign_output_offsets(const job *j, int64_t chunks, int64_t equal)
{
    int64_t first = 0;
    for (int64_t c = 0; c < chunks; c++) {
        chunk_count *k = &j->chunk[c];
        k->equal = k->equal < equal ? k->equal : equal;
        equal -= k->equal;
        k->first = first;
        first += k->above + k->equal;
    }
}

static void write_selected_indices(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    const job *j = context;
    int64_t equal = j->chunk[chunk].equal, left = j->chunk[chunk].above + equal;
    uint32_t *to = j->index + j->chunk[chunk].first;
    for (int64_t i = begin; i < end && left; i++) {
        const uint32_t key = magnitude_key(j->x[i]);
        if (key < j->known || (key == j->known && !equal))
            continue;
        equal -= key == j->known;
        left--;
        *to++ = (uint32_t)i;
    }
}

static lt_status check_count(int64_t n, int64_t count)
{
    if (count >= 1 && count <= n && n <= UINT32_MAX)
        return LT_OK;
    return lt_fail(LT_E_ARG, "select: cannot select the %lld largest of %lld elements",
                   (long long)count, (long long)n);
}

lt_status lt_select_topk(const float *x, int64_t n, int64_t count, uint32_t *index, void *workspace)
{
    LT_TRY(check_count(n, count));
    const int64_t chunks = count_chunks(n);
    job j = {.x = x, .index = index, .chunk = workspace};
    j.histogram = (uint32_t *)(j.chunk + chunks);
    memset(j.chunk, 0, (size_t)chunks * sizeof *j.chunk);
    for (int pass = 0; pass < PASSES; pass++) {
        j.digit = digits[pass];
        lt_parallel(n, CHUNK, fill_digit_histogram, &j);
        const uint32_t bin = find_threshold_bin(&j, chunks, &count);
        count_above_bin(&j, chunks, bin);
        j.known |= bin << j.digit.shift;
    }
    assign_output_offsets(&j, chunks, count);
    lt_parallel(n, CHUNK, write_selected_indices, &j);
    return LT_OK;
}

typedef struct ranked {
    double magnitude; /* infinite for a NaN, too */
    bool is_nan;
    uint32_t index;
} ranked;

/* Orders NaN first, then by descending magnitude, then by ascending index. */
static int compare_magnitudes(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->is_nan != y->is_nan)
        return x->is_nan ? -1 : 1;
    if (x->magnitude > y->magnitude || x->magnitude < y->magnitude)
        return x->magnitude > y->magnitude ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_indices(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

lt_status lt_select_topk_f64(const double *x, int64_t n, int64_t count, uint32_t *index)
{
    LT_TRY(check_count(n, count));
    ranked *all = NULL;
    LT_TRY(LT_ALLOC(&all, n));
    for (int64_t i = 0; i < n; i++)
        all[i] = (ranked){isnan(x[i]) ? (double)INFINITY : fabs(x[i]), isnan(x[i]), (uint32_t)i};
    qsort(all, (size_t)n, sizeof *all, compare_magnitudes);
    for (int64_t i = 0; i < count; i++)
        index[i] = all[i].index;
    qsort(index, (size_t)count, sizeof *index, compare_indices);
    lt_free(all);
    return LT_OK;
}
