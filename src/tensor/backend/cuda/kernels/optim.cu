/* First-order optimizers over lists of tensors, up to LT_LIST_ITEMS per launch. Scalars that change from step to step
 * are read on the device; a step with a gradient that is not finite writes nothing. */

#include "optim.cuh"
#include "tensor/backend/cuda/cast_cache.h"

namespace
{

static_assert(sizeof(lt_list) + 256 <= MAX_PARAMETERS, "a list fits into a kernel's parameters");

#define RULE(name, count)                                                     \
    struct name##_rule {                                                      \
        static const int states = count;                                      \
        static __device__ void run(lt_list_element *e, const lt_list_step *s) \
        {                                                                     \
            lt_##name##_element(e, s);                                        \
        }                                                                     \
    };
RULE(sgd, 1)
RULE(adagrad, 1)
RULE(adam, 2)
RULE(lerp, 1)

template <class Rule>
__device__ void update_one(const lt_list_item &item, int64_t i, const lt_list_step &s, float scale)
{
    lt_list_element e;
    e.p = item.value[i];
    e.g = item.grad ? gradient_at(item, i) * scale : 0;
#pragma unroll
    for (int k = 0; k < Rule::states; k++)
        e.state[k] = item.state[k] ? item.state[k][i] : 0;
    Rule::run(&e, &s);
    item.value[i] = e.p;
    if (item.cast)
        lt_set_element_f32(item.cast, item.cast_dtype, i, e.p);
#pragma unroll
    for (int k = 0; k < Rule::states; k++)
        if (item.state[k])
            item.state[k][i] = e.state[k];
}

__device__ void store_four(float *to, int64_t i, const float (&v)[4])
{
    store_16((float4 *)(to + i), make_float4(v[0], v[1], v[2], v[3]));
}

template <class Rule>
__device__ void update_four(const lt_list_item &item, int64_t i, const lt_list_step &s, float scale)
{
    float p[4], g[4] = {}, state[LT_LIST_STATES][4] = {};
    load_four(item.value, i, p);
    if (item.grad)
        load_four_gradients(item, i, g);
#pragma unroll
    for (int k = 0; k < Rule::states; k++)
        if (item.state[k])
            load_four(item.state[k], i, state[k]);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        lt_list_element e;
        e.p = p[j];
        e.g = g[j] * scale;
#pragma unroll
        for (int k = 0; k < Rule::states; k++)
            e.state[k] = state[k][j];
        Rule::run(&e, &s);
        p[j] = e.p;
#pragma unroll
        for (int k = 0; k < Rule::states; k++)
            state[k][j] = e.state[k];
    }
    store_four(item.value, i, p);
    if (item.cast)
        lt_store_four_16_bit(item.cast, item.cast_dtype, i, p);
#pragma unroll
    for (int k = 0; k < Rule::states; k++)
        if (item.state[k])
            store_four(item.state[k], i, state[k]);
}

__device__ bool can_use_fours(const lt_list_item &item)
{
    const uintptr_t all = (uintptr_t)item.value | (uintptr_t)item.grad | (uintptr_t)item.state[0]
                          | (uintptr_t)item.state[1];
    return (all & 15) == 0 && ((uintptr_t)item.cast & 7) == 0;
}

/* Sets the block's hyperparameters; one thread computes the powers of Adam's bias corrections. */
__device__ void fill_step(lt_list_step *s, const lt_list_item &item, const lt_scalars *scalars,
                          double beta1, double beta2)
{
    s->lr = (float)(scalars->lr * (double)item.lr_scale);
    s->weight_decay = item.weight_decay;
    s->first = item.first;
    s->momentum = item.state[0] != NULL;
    if (beta1 > 0 || beta2 > 0) {
        const double t = (double)scalars->applied - (item.missed ? *item.missed : 0);
        s->correct1 = (float)(1 / (1 - pow(beta1, t)));
        s->correct2 = (float)(1 / (1 - pow(beta2, t)));
    }
}

template <class Rule>
__global__ void __launch_bounds__(THREADS)
    step_list(const __grid_constant__ lt_list list, lt_list_step numbers, double beta1,
              double beta2, const lt_scalars *scalars)
{
    __shared__ lt_list_step step;
    if (!scalars->finite)
        return;
    const lt_list_item &item = item_of_block(list);
    const int64_t begin = (int64_t)(blockIdx.x - item.first_block) * LT_LIST_BLOCK;
    const int64_t end = min(begin + LT_LIST_BLOCK, item.count);
    if (threadIdx.x == 0) {
        step = numbers;
        fill_step(&step, item, scalars, beta1, beta2);
    }
    __syncthreads();
    const lt_list_step s = step;
    const float scale = (float)scalars->grad_scale;
    const int64_t fours = can_use_fours(item) ? begin + (end - begin) / 4 * 4 : begin;
    for (int64_t i = begin + threadIdx.x * 4; i < fours; i += THREADS * 4)
        update_four<Rule>(item, i, s, scale);
    for (int64_t i = fours + threadIdx.x; i < end; i += THREADS)
        update_one<Rule>(item, i, s, scale);
}

/* Arguments of an optimizer's entry. */
struct call {
    lt_cuda *c;
    const char *name;
    const bool *first;
    lt_list_step numbers;
    double beta1, beta2;
};

template <class Rule>
lt_status run(const call &k, const lt_optim_item *item, size_t count, const lt_scalars *scalars)
{
    lt_list list;
    LT_TRY(lt_cuda_begin(k.c, k.name));
    for (size_t i = 0, taken = 0; i < count; i += taken) {
        LT_TRY(lt_list_fill(&list, item + i, k.first ? k.first + i : NULL, count - i, &taken));
        for (int j = 0; j < list.count; j++)
            list.item[j].cast =
                lt_cast_element_address(k.c, list.item[j].value, &list.item[j].cast_dtype);
        step_list<Rule><<<(unsigned)list.blocks, THREADS, 0, main_stream(k.c)>>>(
            list, k.numbers, k.beta1, k.beta2, scalars);
    }
    return lt_cuda_end(k.c);
}

call make_call(void *ctx, const char *name)
{
    call k = {};
    k.c = (lt_cuda *)ctx;
    k.name = name;
    return k;
}

lt_status sgd(void *ctx, const lt_sgd_kernel *config, const lt_optim_item *item, const bool *first,
              size_t count, const lt_scalars *scalars)
{
    call k = make_call(ctx, "sgd");
    k.first = first;
    k.numbers.a = (float)config->momentum;
    k.numbers.rest_a = (float)(1 - config->dampening);
    k.numbers.nesterov = config->nesterov;
    return run<sgd_rule>(k, item, count, scalars);
}

lt_status adagrad(void *ctx, double eps, const lt_optim_item *item, size_t count,
                  const lt_scalars *scalars)
{
    call k = make_call(ctx, "adagrad");
    k.numbers.eps = (float)eps;
    return run<adagrad_rule>(k, item, count, scalars);
}

lt_status adam(void *ctx, const lt_adam_kernel *config, const lt_optim_item *item, size_t count,
               const lt_scalars *scalars)
{
    call k = make_call(ctx, "adam");
    k.numbers.a = (float)config->beta1;
    k.numbers.rest_a = (float)(1 - config->beta1);
    k.numbers.b = (float)config->beta2;
    k.numbers.rest_b = (float)(1 - config->beta2);
    k.numbers.eps = (float)config->eps;
    k.numbers.decoupled = config->decoupled;
    k.numbers.correct1 = k.numbers.correct2 = 1;
    k.beta1 = config->beta1;
    k.beta2 = config->beta2;
    return run<adam_rule>(k, item, count, scalars);
}

lt_status lerp(void *ctx, double weight, const lt_optim_item *item, size_t count,
               const lt_scalars *scalars)
{
    call k = make_call(ctx, "lerp");
    k.numbers.a = (float)weight;
    return run<lerp_rule>(k, item, count, scalars);
}

/* --- The loss scale, which is in device memory --- */

/* Updates the loss scale in one thread, by the reference backend's rule. */
__global__ void update_loss_scale(lt_loss_scaling config, lt_scalars *s)
{
    s->good_steps = s->finite ? s->good_steps + 1 : 0;
    const bool grows = s->good_steps == config.interval;
    const double scale = s->loss_scale
                         * (!s->finite ? config.backoff
                            : grows    ? config.growth
                                       : 1.0);
    if (isfinite((float)scale))
        s->loss_scale = scale;
    if (grows)
        s->good_steps = 0;
}

lt_status loss_scale(void *ctx, const lt_loss_scaling *config, lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "loss_scale"));
    update_loss_scale<<<1, 1, 0, main_stream(c)>>>(*config, scalars);
    return lt_cuda_end(c);
}

/* --- Trust ratios: one thread per column of the table --- */

__global__ void __launch_bounds__(LT_TRUST_ITEMS)
    trust(const __grid_constant__ lt_trust_list list, double *weight, int64_t row,
          const lt_scalars *scalars)
{
    const int i = (int)threadIdx.x;
    if (i >= list.count || !scalars->finite)
        return;
    weight[2 * row + i] =
        lt_compute_trust_ratio(&list.config, &list.item[i], weight[i], weight[row + i], scalars);
}

lt_status trust_ratio(void *ctx, const lt_trust_kernel *config, const lt_trust_item *item,
                      size_t count, const lt_view *table, const lt_scalars *scalars)
{
    lt_cuda *c = (lt_cuda *)ctx;
    lt_trust_list list;
    list.config = *config;
    LT_TRY(lt_cuda_begin(c, "trust_ratio"));
    for (size_t i = 0; i < count; i += LT_TRUST_ITEMS) {
        list.count = (int)(count - i < LT_TRUST_ITEMS ? count - i : (size_t)LT_TRUST_ITEMS);
        for (int k = 0; k < list.count; k++)
            list.item[k] = item[i + (size_t)k];
        trust<<<1, LT_TRUST_ITEMS, 0, main_stream(c)>>>(list, (double *)table->data + i,
                                                        table->stride[0], scalars);
    }
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_optim(lt_backend *be)
{
    be->sgd = sgd;
    be->adagrad = adagrad;
    be->adam = adam;
    be->lerp = lerp;
    be->trust_ratio = trust_ratio;
    be->loss_scale = loss_scale;
}
