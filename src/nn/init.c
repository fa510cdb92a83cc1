/* Initial values. Logical element i of a parameter is drawn from counter i of the stream (seed, name),
 * independent of the order of layers, of threads, and of the rank that holds it. */

#include "lather/init.h"

#include "base/alloc.h"
#include "base/parallel.h"
#include "base/rng.h"

#include "lather/ext/fail.h"

#include <math.h>

enum { DRAW_GRAIN = 4096 };

typedef double draw_fn(lt_rng *rng, double scale);

static double draw_normal(lt_rng *rng, double deviation)
{
    return deviation * lt_rng_normal(rng);
}

static double draw_uniform(lt_rng *rng, double bound)
{
    return bound * (2 * lt_rng_uniform(rng) - 1);
}

typedef struct draw_job {
    void *host;
    lt_dtype dtype;
    uint64_t key;
    draw_fn *draw;
    double scale;
    const lt_shard_spec *spec; /* NULL: the whole parameter */
} draw_job;

static void draw_chunk(void *context, int64_t begin, int64_t end)
{
    const draw_job *job = context;
    for (int64_t i = begin; i < end; i++) {
        /* Both distributions use at most the four words of one counter. */
        const int64_t logical = job->spec ? lt_shard_spec_index(job->spec, i) : i;
        lt_rng rng = {.key = job->key, .counter = (uint64_t)logical};
        double value = job->draw(&rng, job->scale);
        if (job->dtype == LT_F64)
            ((double *)job->host)[i] = value;
        else
            ((float *)job->host)[i] = (float)value;
    }
}

static lt_status draw_param(lt_param *param, uint64_t seed, draw_fn *draw, double scale)
{
    lt_dtype dtype = lt_tensor_dtype(param->value);
    if (dtype != LT_F32 && dtype != LT_F64)
        return lt_fail(LT_E_ARG, "init: %s is %s, want f32 or f64", param->name,
                       lt_dtype_name(dtype));
    size_t bytes = lt_tensor_bytes(param->value);
    void *host = lt_alloc(1, bytes);
    if (!host)
        return LT_E_NOMEM;
    draw_job job = {host, dtype, lt_rng_name_key(seed, LT_STREAM_INIT, param->name),
                    draw, scale, param->spec};
    lt_parallel_range(lt_tensor_count(param->value), DRAW_GRAIN, draw_chunk, &job);
    lt_status st = lt_tensor_write(param->value, host, bytes);
    lt_free(host);
    return st;
}

lt_status lt_init_normal(lt_param *param, double deviation, uint64_t seed)
{
    return draw_param(param, seed, draw_normal, deviation);
}

lt_status lt_init_uniform(lt_param *param, double bound, uint64_t seed)
{
    return draw_param(param, seed, draw_uniform, bound);
}

lt_status lt_init_kaiming_fan_out(lt_param *param, uint64_t seed)
{
    if (param->fan_out < 1)
        return lt_fail(LT_E_ARG, "init: %s has no fan_out, so no Kaiming deviation", param->name);
    return lt_init_normal(param, sqrt(2.0 / param->fan_out), seed);
}

/* Initialises filters and matrices. Parameters of other shapes belong to layers of the program, which initialise
 * them. */
static lt_status init_weight(lt_param *p, uint64_t seed)
{
    const int ndim = lt_param_shard_spec(p).logical.ndim;
    if (p->role != LT_PARAM_WEIGHT || (ndim != 2 && ndim != 4))
        return LT_OK;
    if (ndim == 4)
        return lt_init_kaiming_fan_out(p, seed);
    /* In a last layer, fan_out would give large logits. The fans of tables are undefined. */
    const double inputs =
        p->fan_in ? p->fan_in : (double)lt_param_shard_spec(p).logical.dim[ndim - 1];
    return lt_init_uniform(p, 1 / sqrt(inputs), seed);
}

lt_status lt_init_module(lt_module *module, uint64_t seed)
{
    lt_params list = {0};
    lt_status st = lt_module_params(module, &list);
    for (size_t i = 0; i < list.count && !st; i++)
        st = init_weight(list.item[i], seed);
    lt_params_clear(&list);
    return st;
}
