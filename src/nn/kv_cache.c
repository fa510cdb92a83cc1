/* Cache of keys and values of the tokens that a decoder has processed. A block has two tensors
 * [B,capacity,width]. Appending is an operation that copies the new rows after the old ones and whose output
 * is a view of the first count+T rows: nothing else is copied. */

#include "nn/kv_cache.h"

#include "base/alloc.h"
#include "tensor/tape.h"

#include "lather/ext/op.h"

typedef struct kv_rows {
    lt_tensor *part[LT_KV_PARTS]; /* owned; [B,capacity,width] */
    int64_t count;
} kv_rows;

struct lt_kv_cache {
    lt_kv_cache_config config;
    kv_rows *layer; /* owned */
};

static bool is_valid(const lt_kv_cache_config *c)
{
    bool real =
        c->dtype == LT_F32 || c->dtype == LT_F64 || c->dtype == LT_F16 || c->dtype == LT_BF16;
    return c->layers > 0 && c->batch > 0 && c->capacity > 0 && c->width > 0 && real;
}

static lt_status make_rows(lt_kv_cache *cache, lt_device *device)
{
    const lt_kv_cache_config *c = &cache->config;
    LT_TRY(LT_ALLOC(&cache->layer, c->layers));
    for (int i = 0; i < c->layers; i++)
        for (int part = 0; part < LT_KV_PARTS; part++)
            LT_TRY(lt_tensor_new(&cache->layer[i].part[part], device, c->dtype,
                                 LT_SHAPE(c->batch, c->capacity, c->width)));
    return LT_OK;
}

lt_status lt_kv_cache_new(lt_kv_cache **out, lt_device *device, lt_kv_cache_config config)
{
    if (!is_valid(&config))
        return lt_fail(
            LT_E_ARG,
            "kv_cache: got %d layers, batch %lld, capacity %lld, width %d of %s; want all "
            ">= 1 and a floating dtype",
            config.layers, (long long)config.batch, (long long)config.capacity, config.width,
            lt_dtype_name(config.dtype));
    lt_kv_cache *cache = NULL;
    LT_TRY(LT_ALLOC(&cache, 1));
    cache->config = config;
    lt_status st = make_rows(cache, device);
    if (st) {
        lt_kv_cache_free(&cache);
        return st;
    }
    *out = cache;
    return LT_OK;
}

void lt_kv_cache_free(lt_kv_cache **cache)
{
    lt_kv_cache *c = *cache;
    if (!c)
        return;
    for (int i = 0; c->layer && i < c->config.layers; i++)
        for (int part = 0; part < LT_KV_PARTS; part++)
            lt_tensor_free(&c->layer[i].part[part]);
    lt_free(c->layer);
    lt_free(c);
    *cache = NULL;
}

int64_t lt_kv_cache_count(const lt_kv_cache *cache, int layer)
{
    LT_ASSERT(layer >= 0 && layer < cache->config.layers);
    return cache->layer[layer].count;
}

void lt_kv_cache_truncate(lt_kv_cache *cache, int64_t count)
{
    for (int i = 0; i < cache->config.layers; i++)
        if (cache->layer[i].count > count)
            cache->layer[i].count = count > 0 ? count : 0;
}

void lt_kv_cache_advance(lt_kv_cache *cache, int layer, int64_t rows)
{
    cache->layer[layer].count += rows;
}

/* --- The operation --- */

enum { X, ROWS };

static lt_status infer_appended_shape(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], rows[LT_SHAPE_TEXT];
    const int64_t count = *(const int64_t *)node->config;
    lt_shape xs = node->in[X]->shape, all = node->in[ROWS]->shape;
    if (node->tape->pass.record)
        return lt_fail(LT_E_ARG,
                       "kv_cache: has no gradient, use it in a pass that does not record");
    if (xs.ndim != 3 || xs.dim[0] != all.dim[0] || xs.dim[2] != all.dim[2]
        || node->in[X]->dtype != node->in[ROWS]->dtype)
        return lt_fail(LT_E_SHAPE, "kv_cache: rows %s of %s, the cache is %s of %s",
                       lt_shape_text(xs, x), lt_dtype_name(node->in[X]->dtype),
                       lt_shape_text(all, rows), lt_dtype_name(node->in[ROWS]->dtype));
    if (count + xs.dim[1] > all.dim[1])
        return lt_fail(LT_E_SHAPE, "kv_cache: %lld tokens and %lld more exceed the capacity %lld",
                       (long long)count, (long long)xs.dim[1], (long long)all.dim[1]);
    *out = (lt_desc){.dtype = node->in[X]->dtype,
                     .shape = LT_SHAPE(xs.dim[0], count + xs.dim[1], xs.dim[2]),
                     .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status copy_rows_into_cache(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const int64_t count = *(const int64_t *)node->config;
    lt_view x, to;
    LT_TRY(lt_node_in(node, X, &x));
    LT_TRY(lt_node_in(node, ROWS, &to));
    lt_node_alias_input(node, ROWS, to.stride);
    to.shape = x.shape;
    to.data = (char *)to.data + (size_t)(count * to.stride[1]) * lt_dtype_size(to.dtype);
    return be->cast(ctx, &x, &to);
}

static const lt_op append_op = {
    .name = "kv_cache",
    .config_bytes = sizeof(int64_t),
    .infer = infer_appended_shape,
    .forward = copy_rows_into_cache,
};

lt_tensor *lt_kv_cache_append(lt_kv_cache *cache, int layer, lt_kv part, lt_tape *tape,
                              lt_tensor *x)
{
    const kv_rows *rows = &cache->layer[layer];
    lt_tensor *all = lt_tape_variable(tape, rows->part[part]);
    return lt_op_run(tape, &append_op, (lt_tensor *[]){x, all}, 2, &rows->count);
}
