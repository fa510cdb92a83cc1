/* The largest magnitudes of a vector: the cpu backend's radix select over the bits of |x|, digit by digit
 * (tensor/backend/select.c), with counts that are integers, so that the order of atomic additions does not show. Then
 * each element's place in the output follows from how many before it are above and equal to the threshold.
 * The host decides nothing. */

#include "launch.cuh"

#include <string.h>

namespace
{

enum {
    PASSES = 3,
    BINS = 1 << 11,
    KEYS_OF_THREAD = 32, /* neighbours */
    CHUNK = THREADS * KEYS_OF_THREAD
};

struct magnitudes {
    const void *data;
    lt_dtype dtype;
    int64_t stride, count;
    /* The bits of |x|; all NaNs are one value. */
    __device__ uint32_t key(int64_t i) const
    {
        const float x = lt_element_f32(data, dtype, i * stride);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return min(bits & 0x7fffffffU, 0x7f800001U);
    }
};

struct digit {
    int shift, bits;
};

/* Elements above the threshold and equal to it: of a chunk, then before it. */
struct tally {
    uint32_t above, equal;
};

struct progress {
    uint32_t histogram[BINS];
    uint32_t known;  /* the threshold's higher digits, and zeros */
    uint32_t wanted; /* elements to take of those that agree with it */
};

__global__ void begin_select(progress *p, uint32_t count)
{
    for (int b = threadIdx.x; b < BINS; b += THREADS)
        p->histogram[b] = 0;
    if (threadIdx.x == 0) {
        p->known = 0;
        p->wanted = count;
    }
}

__global__ void count_digits(magnitudes x, digit d, progress *p)
{
    __shared__ uint32_t histogram[BINS];
    const int64_t from = (int64_t)blockIdx.x * CHUNK, to = min(from + CHUNK, x.count);
    const uint32_t known = p->known, mask = (1U << d.bits) - 1;
    for (int b = threadIdx.x; b < BINS; b += THREADS)
        histogram[b] = 0;
    __syncthreads();
    for (int64_t i = from + threadIdx.x; i < to; i += THREADS) {
        const uint32_t key = x.key(i);
        if (((key ^ known) >> d.shift & ~mask) == 0)
            atomicAdd(&histogram[key >> d.shift & mask], 1U);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += THREADS)
        if (histogram[b])
            atomicAdd(&p->histogram[b], histogram[b]);
}

/* One block. */
__global__ void pick_bin(digit d, progress *p)
{
    if (threadIdx.x == 0) {
        uint32_t bin = (1U << d.bits) - 1, wanted = p->wanted;
        for (; p->histogram[bin] < wanted; bin--)
            wanted -= p->histogram[bin];
        p->wanted = wanted;
        p->known |= bin << d.shift;
    }
    __syncthreads();
    for (int b = threadIdx.x; b < BINS; b += THREADS)
        p->histogram[b] = 0;
}

/* The sum of what threads of lower index have. */
__device__ tally sum_before(tally mine)
{
    __shared__ tally all[THREADS];
    __syncthreads(); /* those of a sum before this one were read */
    all[threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        tally sum = {};
        for (int i = 0; i < THREADS; i++) {
            const tally one = all[i];
            all[i] = sum;
            sum.above += one.above;
            sum.equal += one.equal;
        }
    }
    __syncthreads();
    return all[threadIdx.x];
}

__device__ tally count_own(const magnitudes &x, uint32_t threshold)
{
    const int64_t from = (int64_t)blockIdx.x * CHUNK + (int64_t)threadIdx.x * KEYS_OF_THREAD;
    tally own = {};
    for (int64_t i = from; i < min(from + KEYS_OF_THREAD, x.count); i++) {
        const uint32_t key = x.key(i);
        own.above += key > threshold;
        own.equal += key == threshold;
    }
    return own;
}

__global__ void count_chunks(magnitudes x, const progress *p, tally *chunk)
{
    const tally own = count_own(x, p->known), before = sum_before(own);
    if (threadIdx.x != THREADS - 1)
        return;
    chunk[blockIdx.x].above = before.above + own.above;
    chunk[blockIdx.x].equal = before.equal + own.equal;
}

/* One block. */
__global__ void sum_chunks(tally *chunk, int chunks)
{
    const int each = (chunks + THREADS - 1) / THREADS, from = min((int)threadIdx.x * each, chunks);
    const int to = min(from + each, chunks);
    tally own = {};
    for (int c = from; c < to; c++) {
        own.above += chunk[c].above;
        own.equal += chunk[c].equal;
    }
    tally before = sum_before(own);
    for (int c = from; c < to; c++) {
        const tally one = chunk[c];
        chunk[c] = before;
        before.above += one.above;
        before.equal += one.equal;
    }
}

/* Of those equal to the threshold the first p->wanted are taken. */
__global__ void write_places(magnitudes x, const progress *p, const tally *chunk, int32_t *index,
                             int64_t stride)
{
    const int64_t from = (int64_t)blockIdx.x * CHUNK + (int64_t)threadIdx.x * KEYS_OF_THREAD;
    const uint32_t threshold = p->known, wanted = p->wanted;
    tally before = sum_before(count_own(x, threshold));
    before.above += chunk[blockIdx.x].above;
    before.equal += chunk[blockIdx.x].equal;
    for (int64_t i = from; i < min(from + KEYS_OF_THREAD, x.count); i++) {
        const uint32_t key = x.key(i);
        if (key < threshold)
            continue;
        if (key > threshold || before.equal < wanted)
            index[(int64_t)(before.above + min(before.equal, wanted)) * stride] = (int32_t)i;
        before.above += key > threshold;
        before.equal += key == threshold;
    }
}

lt_status topk_select(void *ctx, const lt_view *view, const lt_view *index)
{
    static const digit digits[PASSES] = {{20, 11}, {10, 10}, {0, 10}};
    lt_cuda *c = (lt_cuda *)ctx;
    const magnitudes x = {view->data, view->dtype, view->stride[0], view->shape.dim[0]};
    const int64_t count = index->shape.dim[0];
    void *memory;
    LT_TRY(lt_cuda_begin(c, "topk_select"));
    if (x.dtype == LT_F64 || count < 1 || count > x.count || x.count > INT32_MAX)
        return lt_fail(LT_E_ARG, "topk_select: the %lld largest of %lld %s", (long long)count,
                       (long long)x.count, lt_dtype_name(x.dtype));
    const unsigned chunks = blocks_for(x.count, CHUNK);
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, sizeof(progress) + chunks * sizeof(tally), &memory));
    progress *p = (progress *)memory;
    tally *chunk = (tally *)(p + 1);
    begin_select<<<1, THREADS, 0, main_stream(c)>>>(p, (uint32_t)count);
    for (int pass = 0; pass < PASSES; pass++) {
        count_digits<<<chunks, THREADS, 0, main_stream(c)>>>(x, digits[pass], p);
        pick_bin<<<1, THREADS, 0, main_stream(c)>>>(digits[pass], p);
    }
    count_chunks<<<chunks, THREADS, 0, main_stream(c)>>>(x, p, chunk);
    sum_chunks<<<1, THREADS, 0, main_stream(c)>>>(chunk, (int)chunks);
    write_places<<<chunks, THREADS, 0, main_stream(c)>>>(x, p, chunk, (int32_t *)index->data,
                                                         index->stride[0]);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_select(lt_backend *be)
{
    be->topk_select = topk_select;
}
