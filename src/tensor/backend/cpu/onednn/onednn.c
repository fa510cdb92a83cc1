/* Caches of oneDNN primitives and prepacked weights. */

#include "onednn.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

enum { MAX_PRIMITIVES = 2048, MAX_PREPACKED = 4096 }; /* a full cache is cleared */

lt_status lt_dnnl_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return LT_OK;
    return lt_fail(status == dnnl_out_of_memory ? LT_E_NOMEM : LT_E_DEVICE,
                   "cpu: oneDNN: %s failed with status %d", what, (int)status);
}

static size_t hash_bucket(const void *bytes, size_t count)
{
    const uint64_t hash = lt_fnv1a(LT_FNV1A_BEGIN, bytes, count);
    return (size_t)(hash ^ hash >> 32) % LT_PRIMITIVE_BUCKETS;
}

static void clear_prepacked(lt_onednn *p)
{
    for (size_t i = 0; i < LT_PRIMITIVE_BUCKETS; i++)
        while (p->prepacked[i]) {
            lt_prepacked *weight = p->prepacked[i];
            p->prepacked[i] = weight->next;
            lt_free(weight->copy);
            lt_free(weight);
        }
    p->prepacks = 0;
}

static void free_primitive(lt_primitive *prim)
{
    const dnnl_memory_t memory[] = {prim->x, prim->w, prim->w_user,
                                    prim->b, prim->y, prim->scratchpad};
    for (size_t i = 0; i < sizeof memory / sizeof(dnnl_memory_t); i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (prim->primitive)
        dnnl_primitive_destroy(prim->primitive);
    if (prim->reorder)
        dnnl_primitive_destroy(prim->reorder);
    lt_free(prim);
}

static void clear_primitives(lt_onednn *p)
{
    clear_prepacked(p); /* prepacked weights point to primitives */
    for (size_t i = 0; i < LT_PRIMITIVE_BUCKETS; i++)
        while (p->primitive[i]) {
            lt_primitive *prim = p->primitive[i];
            p->primitive[i] = prim->next;
            free_primitive(prim);
        }
    p->primitives = 0;
}

static lt_primitive *find_primitive(const lt_onednn *onednn, const int64_t key[LT_PRIMITIVE_KEY])
{
    const size_t bytes = LT_PRIMITIVE_KEY * sizeof *key;
    for (lt_primitive *p = onednn->primitive[hash_bucket(key, bytes)]; p; p = p->next)
        if (!memcmp(p->key, key, bytes))
            return p;
    return NULL;
}

lt_status lt_primitive_find_or_create(lt_onednn *onednn, const int64_t key[LT_PRIMITIVE_KEY],
                                      lt_primitive_fill *fill, const void *problem,
                                      lt_primitive **out)
{
    *out = find_primitive(onednn, key);
    if (*out)
        return LT_OK;
    lt_primitive *prim = NULL;
    LT_TRY(LT_ALLOC(&prim, 1));
    memcpy(prim->key, key, sizeof prim->key);
    lt_status st = fill(onednn, prim, problem);
    if (st) {
        free_primitive(prim);
        return st;
    }
    if (onednn->primitives >= MAX_PRIMITIVES)
        clear_primitives(onednn);
    lt_primitive **head = &onednn->primitive[hash_bucket(prim->key, sizeof prim->key)];
    prim->next = *head;
    *head = *out = prim;
    onednn->primitives++;
    return LT_OK;
}

lt_status lt_primitive_create_memory(lt_onednn *onednn, dnnl_memory_t *out, lt_md_in md)
{
    return lt_dnnl_check(dnnl_memory_create(out, md, onednn->engine, DNNL_MEMORY_NONE),
                         "memory object");
}

lt_status lt_primitive_create_scratchpad(lt_onednn *onednn, lt_primitive *prim,
                                         const_dnnl_primitive_desc_t pd)
{
    lt_md_in md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    prim->scratchpad_bytes = dnnl_memory_desc_get_size(md);
    return lt_primitive_create_memory(onednn, &prim->scratchpad, md);
}

static void free_prepacked_copy(lt_prepacked *weight)
{
    lt_free(weight->copy);
    weight->copy = NULL;
}

static lt_status find_or_add_prepacked(lt_onednn *p, const lt_primitive *prim, const void *data,
                                       uint64_t version, lt_prepacked **out)
{
    lt_prepacked **head = &p->prepacked[hash_bucket(&data, sizeof data)];
    *out = NULL;
    for (lt_prepacked *weight = *head; weight; weight = weight->next) {
        if (weight->data == data && weight->version != version)
            free_prepacked_copy(weight);
        if (weight->data == data && weight->prim == prim)
            *out = weight;
    }
    if (*out)
        return LT_OK;
    if (p->prepacks >= MAX_PREPACKED)
        clear_prepacked(p);
    lt_prepacked *weight = NULL;
    LT_TRY(LT_ALLOC(&weight, 1));
    *weight = (lt_prepacked){.data = data, .prim = prim, .next = *head};
    *head = weight;
    p->prepacks++;
    *out = weight;
    return LT_OK;
}

static lt_status reorder_weight(lt_onednn *p, lt_primitive *prim, const void *data, void *to)
{
    union {
        const void *in;
        void *out;
    } from = {data}; /* oneDNN's API is not const-correct */
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, prim->w_user}, {DNNL_ARG_TO, prim->w}};
    dnnl_memory_set_data_handle(prim->w_user, from.out);
    dnnl_memory_set_data_handle(prim->w, to);
    LT_TRY(lt_dnnl_check(dnnl_primitive_execute(prim->reorder, p->stream, 2, args), "reorder"));
    return lt_dnnl_check(dnnl_stream_wait(p->stream), "reorder");
}

lt_status lt_prepack_weight(lt_cpu *cpu, lt_primitive *prim, const void *data, uint64_t version)
{
    lt_onednn *p = cpu->onednn;
    lt_prepacked *weight = NULL;
    if (version)
        LT_TRY(find_or_add_prepacked(p, prim, data, version, &weight));
    if (weight && weight->version == version) {
        if (weight->copy)
            return lt_dnnl_check(dnnl_memory_set_data_handle(prim->w, weight->copy), "handle");
        weight->copy = lt_alloc_aligned(64, prim->w_bytes);
        if (!weight->copy)
            return LT_E_NOMEM;
        lt_status st = reorder_weight(p, prim, data, weight->copy);
        if (st)
            free_prepacked_copy(weight);
        return st;
    }
    if (weight)
        weight->version = version;
    void *to = lt_cpu_scratch(cpu, LT_CPU_PREPACKED, prim->w_bytes);
    return to ? reorder_weight(p, prim, data, to) : LT_E_NOMEM;
}

/* Writes w times a factor per output channel to `to`, in the primitive's layout, and sets prim->w to it. */
static lt_status write_scaled_weight(lt_cpu *cpu, lt_primitive *prim, const lt_view *w,
                                     const lt_view *factor, void *to)
{
    lt_view each = *factor;
    each.shape = w->shape;
    for (int i = 0; i < w->shape.ndim; i++)
        each.stride[i] = i == 0;
    void *product = to;
    if (prim->reorder)
        product = lt_cpu_scratch(cpu, LT_CPU_COPY_W,
                                 (size_t)lt_cpu_element_count(w) * lt_dtype_size(LT_F32));
    if (!product)
        return LT_E_NOMEM;
    lt_view scaled = lt_cpu_dense_view(product, LT_F32, w->shape);
    LT_TRY(lt_cpu_mul(cpu, w, &each, &scaled));
    if (prim->reorder)
        return reorder_weight(cpu->onednn, prim, product, to);
    return lt_dnnl_check(dnnl_memory_set_data_handle(prim->w, to), "handle");
}

lt_status lt_prepack_scaled_weight(lt_cpu *cpu, lt_primitive *prim, const lt_view *w,
                                   const lt_view *factor)
{
    lt_prepacked *weight = NULL;
    const uint64_t factors = lt_fnv1a(LT_FNV1A_BEGIN, factor->data,
                                      (size_t)lt_cpu_element_count(factor) * sizeof(float));
    if (w->version)
        LT_TRY(find_or_add_prepacked(cpu->onednn, prim, w->data, w->version, &weight));
    if (weight && weight->copy && weight->factors == factors)
        return lt_dnnl_check(dnnl_memory_set_data_handle(prim->w, weight->copy), "handle");
    if (weight && !weight->copy)
        weight->copy = lt_alloc_aligned(64, prim->w_bytes);
    void *to = weight ? weight->copy : lt_cpu_scratch(cpu, LT_CPU_PREPACKED, prim->w_bytes);
    if (!to)
        return LT_E_NOMEM;
    lt_status st = write_scaled_weight(cpu, prim, w, factor, to);
    if (!weight)
        return st;
    weight->version = w->version;
    weight->factors = factors;
    if (st)
        free_prepacked_copy(weight);
    return st;
}

lt_status lt_primitive_run(lt_cpu *cpu, lt_primitive *prim, const dnnl_exec_arg_t *args, int count)
{
    enum { MOST = 6 };
    dnnl_exec_arg_t all[MOST];
    LT_ASSERT(count < MOST);
    memcpy(all, args, (size_t)count * sizeof *args);
    if (prim->scratchpad_bytes) {
        void *pad = lt_cpu_scratch(cpu, LT_CPU_SCRATCHPAD, prim->scratchpad_bytes);
        if (!pad)
            return LT_E_NOMEM;
        if (prim->unverified)
            memset(pad, 0xFF, prim->scratchpad_bytes);
        dnnl_memory_set_data_handle(prim->scratchpad, pad);
        all[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, prim->scratchpad};
    }
    dnnl_stream_t stream = cpu->onednn->stream;
    LT_TRY(lt_dnnl_check(dnnl_primitive_execute(prim->primitive, stream, count, all), "primitive"));
    return lt_dnnl_check(dnnl_stream_wait(stream), "primitive");
}

lt_status lt_cpu_onednn_open(lt_cpu *cpu)
{
    lt_dnnl_limit_isa(cpu->isa);
    lt_onednn *p = NULL;
    LT_TRY(LT_ALLOC(&p, 1));
    cpu->onednn = p;
    lt_status st = lt_dnnl_check(dnnl_engine_create(&p->engine, dnnl_cpu, 0), "engine");
    if (!st)
        st = lt_dnnl_check(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags),
                           "stream");
    if (!st)
        st = lt_dnnl_check(dnnl_primitive_attr_create(&p->attr), "attributes");
    if (!st)
        st = lt_dnnl_check(
            dnnl_primitive_attr_set_scratchpad_mode(p->attr, dnnl_scratchpad_mode_user),
            "attributes");
    if (st)
        lt_cpu_onednn_close(cpu);
    return st;
}

void lt_cpu_onednn_close(lt_cpu *cpu)
{
    lt_onednn *p = cpu->onednn;
    if (!p)
        return;
    clear_primitives(p);
    if (p->attr)
        dnnl_primitive_attr_destroy(p->attr);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    if (p->engine)
        dnnl_engine_destroy(p->engine);
    lt_free(p);
    cpu->onednn = NULL;
}

const char *lt_cpu_onednn_info(void)
{
    static __thread char line[64];
    const dnnl_version_t *v = dnnl_version();
    snprintf(line, sizeof line, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return line;
}
