/* Rotary positions: one block per position of a sequence. Angles are in double, because they are large at late
 * positions. Formula: ops/attention.h. */

#include "launch.cuh"

#include <math.h>

namespace
{

/* x, y: [B,T,heads,d]. */
struct rotary_job {
    lt_view x, y;
    double base;
    int64_t first, pairs, heads;
    bool interleaved, inverse;
};

struct turn {
    float cosine, sine;
};

__device__ turn compute_turn(const rotary_job &j, int64_t position, int64_t pair)
{
    const double rate = pow(j.base, -(double)pair / (double)j.pairs);
    /* In half turns: sines of large angles in radians would use local memory. */
    const double half_turns = (double)position * rate / 3.14159265358979323846;
    turn t;
    t.cosine = (float)cospi(half_turns);
    t.sine = (float)(j.inverse ? -sinpi(half_turns) : sinpi(half_turns));
    return t;
}

/* Rotates one pair. x_at, y_at: offsets of the head. */
__device__ void rotate_pair(const rotary_job &j, int64_t x_at, int64_t y_at, int64_t pair, turn t)
{
    const int64_t a = j.interleaved ? 2 * pair : pair, b = j.interleaved ? a + 1 : a + j.pairs;
    const float u = lt_element_f32(j.x.data, j.x.dtype, x_at + a * j.x.stride[3]);
    const float v = lt_element_f32(j.x.data, j.x.dtype, x_at + b * j.x.stride[3]);
    lt_set_element_f32(j.y.data, j.y.dtype, y_at + a * j.y.stride[3], u * t.cosine - v * t.sine);
    lt_set_element_f32(j.y.data, j.y.dtype, y_at + b * j.y.stride[3], v * t.cosine + u * t.sine);
}

/* The angles of THREADS pairs at a time are computed once for all heads. No barrier is needed before the next THREADS
 * pairs: then all threads computed an angle, and each reads only its own. */
__global__ void rotate_rows(rotary_job j)
{
    __shared__ turn shared[THREADS];
    const int64_t n = blockIdx.y, t = blockIdx.x;
    const int64_t x_row = n * j.x.stride[0] + t * j.x.stride[1];
    const int64_t y_row = n * j.y.stride[0] + t * j.y.stride[1];
    for (int64_t first = 0; first < j.pairs; first += THREADS) {
        const int64_t count = min(j.pairs - first, (int64_t)THREADS);
        if (threadIdx.x < count)
            shared[threadIdx.x] = compute_turn(j, j.first + t, first + threadIdx.x);
        __syncthreads();
        for (int64_t i = threadIdx.x; i < count * j.heads; i += THREADS) {
            const int64_t head = i / count, pair = i - head * count;
            rotate_pair(j, x_row + head * j.x.stride[2], y_row + head * j.y.stride[2], first + pair,
                        shared[pair]);
        }
    }
}

lt_status rotary(void *ctx, const lt_rotary_config *config, bool inverse, const lt_view *x,
                 const lt_view *y)
{
    const int64_t most = 65535; /* blocks in a grid's second dimension */
    lt_cuda *c = (lt_cuda *)ctx;
    rotary_job j = {*x,
                    *y,
                    config->base,
                    config->first,
                    x->shape.dim[3] / 2,
                    x->shape.dim[2],
                    config->interleaved,
                    inverse};
    LT_TRY(lt_cuda_begin(c, "rotary"));
    LT_TRY(check_not_f64(c, {x}));
    LT_TRY(check_dtype(c, x->dtype, {y}));
    for (int64_t n = 0; n < x->shape.dim[0]; n += most) {
        const int64_t rows = x->shape.dim[0] - n < most ? x->shape.dim[0] - n : most;
        const int64_t bytes = n * (int64_t)lt_dtype_size(x->dtype);
        j.x.data = (char *)x->data + bytes * x->stride[0];
        j.y.data = (char *)y->data + bytes * y->stride[0];
        const dim3 grid((unsigned)x->shape.dim[1], (unsigned)rows);
        rotate_rows<<<grid, THREADS, 0, main_stream(c)>>>(j);
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_rotary(lt_backend *be)
{
    be->rotary = rotary;
}
