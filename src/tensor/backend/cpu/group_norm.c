/* Group normalisation on channels-last views, one job per image, with the kernels of batch normalisation: the moments
 * of a group are merged from those of its channels (Chan, Golub & LeVeque, "Algorithms for computing the sample
 * variance", The American Statistician 37, 1983). Sums over images run in their order, so that results do not depend
 * on the number of threads. Formulas: detail/norm_kernels.h. */

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"

/* Rows of an image's workspace, each [C]. The moments kernel uses the row after each result as scratch. */
enum { MEAN, MEAN_WORK, M2, M2_WORK, FORWARD_ROWS };
enum { SCALE = MEAN_WORK, SHIFT = M2_WORK };
enum { SUM, PRODUCT, GROUP_MEAN, GAMMA_RSTD, SLOPE, OFFSET, BACKWARD_ROWS };

typedef struct job {
    const lt_cpu_kernels *kernels;
    lt_cpu_store store;
    const lt_group_norm_config *config;
    const lt_view *x, *y;
    const lt_group_norm_grad *grad;
    const float *gamma, *beta; /* NULL: 1 and 0 */
    float *stats, *work;       /* work: [N][rows][C] */
    int64_t images, rows, channels;
} job;

static bool has_fast_kernel(const lt_view *v, lt_dtype dtype)
{
    return lt_cpu_is_fast_dtype(dtype) && lt_cpu_is_channels_last(v, dtype);
}

static job make_job(const lt_cpu *cpu, const lt_group_norm_config *config, const lt_view *x,
                    const lt_view *gamma, const lt_view *stats)
{
    const lt_shape s = x->shape;
    return (job){.kernels = cpu->kernels,
                 .store = lt_cpu_store_from_dtype(x->dtype),
                 .config = config,
                 .x = x,
                 .gamma = gamma ? gamma->data : NULL,
                 .stats = stats->data,
                 .images = s.dim[0],
                 .rows = s.dim[2] * s.dim[3],
                 .channels = s.dim[1]};
}

static float *get_workspace(lt_cpu *cpu, const job *j, int rows)
{
    return lt_cpu_scratch(cpu, LT_CPU_PARTIAL,
                          (size_t)(j->images * rows * j->channels) * sizeof(float));
}

static void *image_address(const job *j, const lt_view *v, int64_t n)
{
    return v ? (char *)v->data + (size_t)(n * j->rows * j->channels) * lt_dtype_size(v->dtype)
             : NULL;
}

static double gamma_at(const job *j, int64_t c)
{
    return j->gamma ? (double)j->gamma[c] : 1;
}

/* Merges the moments of a group's channels: M2 is their sum plus the spread of their means. */
static void finish_group_stats(const job *j, float *w, int64_t n, int64_t group)
{
    const int64_t group_size = j->channels / j->config->groups, all = j->images * j->config->groups;
    const int64_t begin = group * group_size, at = n * j->config->groups + group;
    double mean = 0, m2 = 0;
    for (int64_t c = begin; c < begin + group_size; c++)
        mean += (double)w[MEAN * j->channels + c] / (double)group_size;
    for (int64_t c = begin; c < begin + group_size; c++) {
        const double distance = (double)w[MEAN * j->channels + c] - mean;
        m2 += (double)w[M2 * j->channels + c] + distance * distance * (double)j->rows;
    }
    const double rstd = 1 / sqrt(m2 / (double)(j->rows * group_size) + j->config->eps);
    j->stats[at] = (float)mean;
    j->stats[all + at] = (float)rstd;
    for (int64_t c = begin; c < begin + group_size; c++) {
        const double scale = gamma_at(j, c) * rstd, shift = j->beta ? (double)j->beta[c] : 0;
        w[SCALE * j->channels + c] = (float)scale;
        w[SHIFT * j->channels + c] = (float)(shift - mean * scale);
    }
}

static void forward_images(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t c = j->channels;
    for (int64_t n = begin; n < end; n++) {
        float *w = j->work + n * FORWARD_ROWS * c;
        const lt_bn_apply in = {.coef = {.scale = w + SCALE * c, .shift = w + SHIFT * c},
                                .x = image_address(j, j->x, n),
                                .y = image_address(j, j->y, n),
                                .channels = c};
        j->kernels->of[j->store].bn_moments(in.x, j->rows, c, w + MEAN * c, w + M2 * c);
        for (int64_t g = 0; g < j->config->groups; g++)
            finish_group_stats(j, w, n, g);
        j->kernels->of[j->store].bn_apply(&in, 0, j->rows);
    }
}

lt_status lt_cpu_group_norm(void *ctx, const lt_group_norm_config *config, const lt_view *x,
                            const lt_view *gamma, const lt_view *beta, const lt_view *stats,
                            const lt_view *y)
{
    lt_cpu *cpu = ctx;
    if (!has_fast_kernel(x, y->dtype) || !has_fast_kernel(y, y->dtype) || !lt_cpu_is_f32(gamma)
        || !lt_cpu_is_f32(beta) || !lt_cpu_is_f32(stats))
        return lt_backend_ref()->group_norm(ctx, config, x, gamma, beta, stats, y);
    job j = make_job(cpu, config, x, gamma, stats);
    j.beta = beta ? beta->data : NULL;
    j.y = y;
    j.work = get_workspace(cpu, &j, FORWARD_ROWS);
    if (!j.work)
        return LT_E_NOMEM;
    lt_parallel_range(j.images, 1, forward_images, &j);
    return LT_OK;
}

/* Computes the coefficients of dx = gamma * rstd * g + slope * (x - mean) + offset from the group's sums. */
static void finish_group_grad(const job *j, float *w, int64_t n, int64_t group)
{
    const int64_t group_size = j->channels / j->config->groups, all = j->images * j->config->groups;
    const int64_t begin = group * group_size, at = n * j->config->groups + group;
    const double rstd = (double)j->stats[all + at];
    double sum = 0, product = 0;
    for (int64_t c = begin; c < begin + group_size; c++) {
        sum += gamma_at(j, c) * (double)w[SUM * j->channels + c];
        product += gamma_at(j, c) * (double)w[PRODUCT * j->channels + c];
    }
    const double count = (double)(j->rows * group_size);
    for (int64_t c = begin; c < begin + group_size; c++) {
        w[GAMMA_RSTD * j->channels + c] = (float)(gamma_at(j, c) * rstd);
        w[SLOPE * j->channels + c] = (float)(-rstd * rstd * rstd * product / count);
        w[OFFSET * j->channels + c] = (float)(-rstd * sum / count);
        w[PRODUCT * j->channels + c] *= (float)rstd; /* dgamma is by the normalised x */
    }
}

static void fill_group_means(const job *j, float *w, int64_t n)
{
    const int64_t group_size = j->channels / j->config->groups;
    for (int64_t c = 0; c < j->channels; c++)
        w[GROUP_MEAN * j->channels + c] = j->stats[n * j->config->groups + c / group_size];
}

static void backward_images(void *context, int64_t begin, int64_t end)
{
    const job *j = context;
    const int64_t c = j->channels;
    for (int64_t n = begin; n < end; n++) {
        float *w = j->work + n * BACKWARD_ROWS * c;
        lt_bn_grad in = {.coef = {.mean = w + GROUP_MEAN * c,
                                  .scale = w + GAMMA_RSTD * c,
                                  .shift = w + GAMMA_RSTD * c},
                         .dy = {image_address(j, j->grad->dy, n), NULL},
                         .x = image_address(j, j->x, n),
                         .channels = c,
                         .slope = w + SLOPE * c,
                         .offset = w + OFFSET * c};
        fill_group_means(j, w, n);
        j->kernels->of[j->store].bn_grad_sums(&in, 0, j->rows, w + SUM * c, w + PRODUCT * c);
        for (int64_t g = 0; g < j->config->groups; g++)
            finish_group_grad(j, w, n, g);
        in.out = image_address(j, j->grad->dx, n);
        if (in.out)
            j->kernels->of[j->store].bn_grad_x(&in, 0, j->rows);
    }
}

/* Sums row `row` of the images' workspaces, a gradient of gamma or beta, over the images into out[c]. */
static void sum_grads_over_images(const job *j, int row, const lt_view *out)
{
    for (int64_t c = 0; out && c < j->channels; c++) {
        double total = 0;
        for (int64_t n = 0; n < j->images; n++)
            total += (double)j->work[(n * BACKWARD_ROWS + row) * j->channels + c];
        ((float *)out->data)[c] = (float)total;
    }
}

lt_status lt_cpu_group_norm_grad(void *ctx, const lt_group_norm_config *config,
                                 const lt_group_norm_grad *g)
{
    lt_cpu *cpu = ctx;
    const lt_dtype dtype = g->x->dtype;
    if (!has_fast_kernel(g->x, dtype) || !has_fast_kernel(g->dy, dtype)
        || (g->dx && !has_fast_kernel(g->dx, dtype)) || !lt_cpu_is_f32(g->gamma)
        || !lt_cpu_is_f32(g->stats) || !lt_cpu_is_f32(g->dgamma) || !lt_cpu_is_f32(g->dbeta))
        return lt_backend_ref()->group_norm_grad(ctx, config, g);
    job j = make_job(cpu, config, g->x, g->gamma, g->stats);
    j.grad = g;
    j.work = get_workspace(cpu, &j, BACKWARD_ROWS);
    if (!j.work)
        return LT_E_NOMEM;
    lt_parallel_range(j.images, 1, backward_images, &j);
    sum_grads_over_images(&j, PRODUCT, g->dgamma);
    sum_grads_over_images(&j, SUM, g->dbeta);
    return LT_OK;
}
