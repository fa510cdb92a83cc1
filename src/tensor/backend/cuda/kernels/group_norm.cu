/* Group normalization: one block sums a group of an image, or a channel; then one thread per element. Sums are in
 * double, in a fixed order. Formulas: detail/norm_kernels.h. */

#include "launch.cuh"

namespace
{

/* Operands of the kernels; NULL or without data if absent. Vectors are f32 and contiguous. */
struct group_job {
    lt_view dy, x, y; /* y: or dx */
    const float *gamma, *beta;
    float *stats, *dgamma, *dbeta;
    double *sums; /* [2,N,groups]: sums of h = gamma * dy, of h * xhat */
    int64_t images, channels, pixels, width, groups, wide, size; /* wide, size: of a group */
    double eps;
};

/* Position of element i of a group, channels innermost as in memory. */
struct element_of {
    int64_t n, c, pixel;
};

__device__ element_of group_element(const group_job &j, int64_t group, int64_t i)
{
    element_of e;
    e.n = group / j.groups;
    e.c = group % j.groups * j.wide + i % j.wide;
    e.pixel = i / j.wide;
    return e;
}

__device__ int64_t element_offset(const group_job &j, const lt_view &v, const element_of &e)
{
    return e.n * v.stride[0] + e.c * v.stride[1] + e.pixel / j.width * v.stride[2]
           + e.pixel % j.width * v.stride[3];
}

__device__ double load_element(const group_job &j, const lt_view &v, const element_of &e)
{
    return (double)lt_element_f32(v.data, v.dtype, element_offset(j, v, e));
}

__device__ double gamma_or_one(const group_job &j, int64_t c)
{
    return j.gamma ? (double)j.gamma[c] : 1.0;
}

/* Return the number of an element's group; its normalized x. */
__device__ int64_t group_index(const group_job &j, const element_of &e)
{
    return e.n * j.groups + e.c / j.wide;
}

__device__ double normalized_x(const group_job &j, const element_of &e)
{
    const int64_t g = group_index(j, e);
    return (load_element(j, j.x, e) - (double)j.stats[g])
           * (double)j.stats[j.images * j.groups + g];
}

__global__ void group_moments(group_job j)
{
    const int64_t group = blockIdx.x;
    double sum = 0, square = 0;
    for (int64_t i = threadIdx.x; i < j.size; i += THREADS)
        sum += load_element(j, j.x, group_element(j, group, i));
    const double mean = block_sum_to_all(sum) / (double)j.size;
    for (int64_t i = threadIdx.x; i < j.size; i += THREADS) {
        const double away = load_element(j, j.x, group_element(j, group, i)) - mean;
        square += away * away;
    }
    square = block_sum(square);
    if (threadIdx.x)
        return;
    j.stats[group] = (float)mean;
    j.stats[j.images * j.groups + group] = (float)(1 / sqrt(square / (double)j.size + j.eps));
}

/* Position of element i of all, channels innermost. */
__device__ element_of element_position(const group_job &j, int64_t i)
{
    element_of e;
    e.c = i % j.channels;
    e.n = i / j.channels / j.pixels;
    e.pixel = i / j.channels % j.pixels;
    return e;
}

__global__ void apply_group_norm(group_job j)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.images * j.channels * j.pixels)
        return;
    const element_of e = element_position(j, i);
    const double y = normalized_x(j, e) * gamma_or_one(j, e.c) + (j.beta ? (double)j.beta[e.c] : 0);
    lt_set_element_f32(j.y.data, j.y.dtype, element_offset(j, j.y, e), (float)y);
}

__global__ void group_grad_sums(group_job j)
{
    const int64_t group = blockIdx.x;
    double sum = 0, product = 0;
    for (int64_t i = threadIdx.x; i < j.size; i += THREADS) {
        const element_of e = group_element(j, group, i);
        const double h = gamma_or_one(j, e.c) * load_element(j, j.dy, e);
        sum += h;
        product += h * normalized_x(j, e);
    }
    sum = block_sum(sum);
    product = block_sum(product);
    if (threadIdx.x)
        return;
    j.sums[group] = sum;
    j.sums[j.images * j.groups + group] = product;
}

__global__ void channel_grad_sums(group_job j)
{
    double sum = 0, product = 0;
    element_of e;
    e.c = blockIdx.x;
    for (int64_t i = threadIdx.x; i < j.images * j.pixels; i += THREADS) {
        e.n = i / j.pixels;
        e.pixel = i % j.pixels;
        const double dy = load_element(j, j.dy, e);
        sum += dy;
        product += dy * normalized_x(j, e);
    }
    sum = block_sum(sum);
    product = block_sum(product);
    if (threadIdx.x)
        return;
    if (j.dgamma)
        j.dgamma[e.c] = (float)product;
    if (j.dbeta)
        j.dbeta[e.c] = (float)sum;
}

__global__ void group_norm_dx(group_job j)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= j.images * j.channels * j.pixels)
        return;
    const element_of e = element_position(j, i);
    const int64_t g = group_index(j, e), all = j.images * j.groups;
    const double h = gamma_or_one(j, e.c) * load_element(j, j.dy, e);
    const double away = (j.sums[g] + normalized_x(j, e) * j.sums[all + g]) / (double)j.size;
    const double dx = (double)j.stats[all + g] * (h - away);
    lt_set_element_f32(j.y.data, j.y.dtype, element_offset(j, j.y, e), (float)dx);
}

group_job make_job(const lt_group_norm_config *config, const lt_view *x, const lt_view *gamma,
                   const lt_view *stats)
{
    group_job j = {};
    j.x = *x;
    j.gamma = float_data(gamma);
    j.stats = float_data(stats);
    j.images = x->shape.dim[0];
    j.channels = x->shape.dim[1];
    j.width = x->shape.dim[3];
    j.pixels = x->shape.dim[2] * j.width;
    j.groups = config->groups;
    j.wide = j.channels / j.groups;
    j.size = j.wide * j.pixels;
    j.eps = config->eps;
    return j;
}

unsigned blocks_for_all_elements(const group_job &j)
{
    return blocks_for(j.images * j.channels * j.pixels, THREADS);
}

lt_status group_norm(void *ctx, const lt_group_norm_config *config, const lt_view *x,
                     const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                     const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "group_norm"));
    LT_TRY(check_not_f64(c, {x}));
    LT_TRY(check_dtype(c, LT_F32, {gamma, beta, stats}));
    group_job j = make_job(config, x, gamma, stats);
    j.beta = float_data(beta);
    j.y = *y;
    group_moments<<<(unsigned)(j.images * j.groups), THREADS, 0, main_stream(c)>>>(j);
    apply_group_norm<<<blocks_for_all_elements(j), THREADS, 0, main_stream(c)>>>(j);
    return lt_cuda_end(c);
}

lt_status group_norm_grad(void *ctx, const lt_group_norm_config *config,
                          const lt_group_norm_grad *g)
{
    lt_cuda *c = (lt_cuda *)ctx;
    void *memory;
    LT_TRY(lt_cuda_begin(c, "group_norm_grad"));
    LT_TRY(check_not_f64(c, {g->x}));
    LT_TRY(check_dtype(c, LT_F32, {g->gamma, g->stats, g->dgamma, g->dbeta}));
    group_job j = make_job(config, g->x, g->gamma, g->stats);
    j.dy = *g->dy;
    j.dgamma = float_data(g->dgamma);
    j.dbeta = float_data(g->dbeta);
    const int64_t groups = j.images * j.groups;
    LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, 2 * (size_t)groups * sizeof(double), &memory));
    j.sums = (double *)memory;
    if (j.dgamma || j.dbeta)
        channel_grad_sums<<<(unsigned)j.channels, THREADS, 0, main_stream(c)>>>(j);
    if (g->dx) {
        j.y = *g->dx;
        group_grad_sums<<<(unsigned)groups, THREADS, 0, main_stream(c)>>>(j);
        group_norm_dx<<<blocks_for_all_elements(j), THREADS, 0, main_stream(c)>>>(j);
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_group_norm(lt_backend *be)
{
    be->group_norm = group_norm;
    be->group_norm_grad = group_norm_grad;
}
