/* Optimizer updates in f32: detail/optim_kernels.h. square_sum is in double. */

#include "functions.h"

static double square_sum(const float *x, double factor, int64_t count)
{
    wide total = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        const wide v = __builtin_convertvector(*(const loose_vec *)(x + i), wide) * factor;
        total += v * v;
    }
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += total[l];
    for (; i < count; i++)
        sum += (double)x[i] * factor * ((double)x[i] * factor);
    return sum;
}

static void sgd(const lt_sgd_numbers *k, float *p, const float *g, float *m, int64_t count)
{
    FOR_LANES(i, n, count, {
        const vec old = load(p, i, n, LT_STORE_F32);
        const vec grad = load(g, i, n, LT_STORE_F32) * k->scale + old * k->decay;
        vec step = grad;
        if (m) {
            const vec v =
                k->first ? grad : load(m, i, n, LT_STORE_F32) * k->momentum + grad * k->fresh;
            save(m, i, v, n, LT_STORE_F32);
            step = k->nesterov ? grad + v * k->momentum : v;
        }
        save(p, i, old - step * k->lr, n, LT_STORE_F32);
    });
}

static void adagrad(const lt_adam_numbers *k, float *p, const float *g, float *s, int64_t count)
{
    FOR_LANES(i, n, count, {
        const vec old = load(p, i, n, LT_STORE_F32);
        const vec grad = load(g, i, n, LT_STORE_F32) * k->scale + old * k->decay;
        const vec sum = load(s, i, n, LT_STORE_F32) + grad * grad;
        save(s, i, sum, n, LT_STORE_F32);
        save(p, i, old - grad * k->step / (square_root(sum) + k->eps), n, LT_STORE_F32);
    });
}

static void adam(const lt_adam_numbers *k, float *p, const float *g, float *m, float *v,
                 int64_t count)
{
    FOR_LANES(i, n, count, {
        const vec old = load(p, i, n, LT_STORE_F32);
        const vec grad = load(g, i, n, LT_STORE_F32) * k->scale + old * k->decay;
        const vec first = load(m, i, n, LT_STORE_F32) * k->beta1 + grad * k->fresh1;
        const vec second = load(v, i, n, LT_STORE_F32) * k->beta2 + grad * grad * k->fresh2;
        save(m, i, first, n, LT_STORE_F32);
        save(v, i, second, n, LT_STORE_F32);
        const vec move = first * k->step / (square_root(second) * k->root + k->eps);
        save(p, i, old * k->keep - move, n, LT_STORE_F32);
    });
}

static void lerp(float weight, float *x, const float *to, int64_t count)
{
    FOR_LANES(i, n, count, {
        const vec v = load(x, i, n, LT_STORE_F32);
        save(x, i, v + (load(to, i, n, LT_STORE_F32) - v) * weight, n, LT_STORE_F32);
    });
}
