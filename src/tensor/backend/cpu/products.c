/* The cache of primitives and packed weights. */

#include "tensor/backend/cpu/products.h"

#include "base/hash.h"
#include "base/parallel.h"

#include <stdio.h>
#include <string.h>

enum { MOST_PLANS = 2048, MOST_PACKS = 4096 }; /* beyond, all are forgotten */

lt_status lt_dnnl_check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return LT_OK;
    return lt_fail(status == dnnl_out_of_memory ? LT_E_NOMEM : LT_E_DEVICE,
                   "cpu: oneDNN: %s failed with status %d", what, (int)status);
}

static size_t bucket_of(const void *bytes, size_t count)
{
    const uint64_t hash = lt_fnv1a(LT_FNV1A_BEGIN, bytes, count);
    return (size_t)(hash ^ hash >> 32) % LT_PLAN_BUCKETS;
}

static void forget_packs(lt_products *p)
{
    for (size_t i = 0; i < LT_PLAN_BUCKETS; i++)
        while (p->pack[i]) {
            lt_pack *pack = p->pack[i];
            p->pack[i] = pack->next;
            lt_free(pack->copy);
            lt_free(pack);
        }
    p->packs = 0;
}

static void forget_plans(lt_products *p)
{
    forget_packs(p); /* they point to plans */
    for (size_t i = 0; i < LT_PLAN_BUCKETS; i++)
        while (p->plan[i]) {
            lt_plan *plan = p->plan[i];
            p->plan[i] = plan->next;
            lt_plan_free(plan);
        }
    p->plans = 0;
}

lt_plan *lt_plan_find(lt_products *products, const int64_t key[LT_PLAN_KEY])
{
    const size_t bytes = LT_PLAN_KEY * sizeof *key;
    for (lt_plan *p = products->plan[bucket_of(key, bytes)]; p; p = p->next)
        if (!memcmp(p->key, key, bytes))
            return p;
    return NULL;
}

lt_status lt_plan_new(lt_plan **out, const int64_t key[LT_PLAN_KEY])
{
    lt_plan *p = lt_alloc(1, sizeof *p);
    if (!p)
        return LT_E_NOMEM;
    memcpy(p->key, key, sizeof p->key);
    *out = p;
    return LT_OK;
}

void lt_plan_add(lt_products *products, lt_plan *plan)
{
    if (products->plans >= MOST_PLANS)
        forget_plans(products);
    size_t bucket = bucket_of(plan->key, sizeof plan->key);
    plan->next = products->plan[bucket];
    products->plan[bucket] = plan;
    products->plans++;
}

void lt_plan_free(lt_plan *plan)
{
    const dnnl_memory_t memory[] = {plan->x, plan->w, plan->w_user,
                                    plan->b, plan->y, plan->scratchpad};
    for (size_t i = 0; i < sizeof memory / sizeof(dnnl_memory_t); i++)
        if (memory[i])
            dnnl_memory_destroy(memory[i]);
    if (plan->primitive)
        dnnl_primitive_destroy(plan->primitive);
    if (plan->reorder)
        dnnl_primitive_destroy(plan->reorder);
    lt_free(plan);
}

lt_status lt_plan_memory(lt_products *products, dnnl_memory_t *out, lt_md_in md)
{
    return lt_dnnl_check(dnnl_memory_create(out, md, products->engine, DNNL_MEMORY_NONE),
                         "memory object");
}

lt_status lt_plan_scratchpad(lt_products *products, lt_plan *plan, const_dnnl_primitive_desc_t pd)
{
    lt_md_in md = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    plan->scratchpad_bytes = dnnl_memory_desc_get_size(md);
    return lt_plan_memory(products, &plan->scratchpad, md);
}

static lt_status find_pack(lt_products *p, const lt_plan *plan, const void *data, lt_pack **out)
{
    const void *key[] = {data, plan};
    lt_pack **head = &p->pack[bucket_of(key, sizeof key)];
    for (lt_pack *pack = *head; pack; pack = pack->next)
        if (pack->data == data && pack->plan == plan) {
            *out = pack;
            return LT_OK;
        }
    if (p->packs >= MOST_PACKS)
        forget_packs(p);
    lt_pack *pack = lt_alloc(1, sizeof *pack);
    if (!pack)
        return LT_E_NOMEM;
    *pack = (lt_pack){.data = data, .plan = plan, .next = *head};
    *head = pack;
    p->packs++;
    *out = pack;
    return LT_OK;
}

static lt_status reorder_weight(lt_products *p, lt_plan *plan, const void *data, void *to)
{
    union {
        const void *in;
        void *out;
    } from = {data}; /* oneDNN takes no pointers to const */
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, plan->w_user}, {DNNL_ARG_TO, plan->w}};
    dnnl_memory_set_data_handle(plan->w_user, from.out);
    dnnl_memory_set_data_handle(plan->w, to);
    LT_TRY(lt_dnnl_check(dnnl_primitive_execute(plan->reorder, p->stream, 2, args), "reorder"));
    return lt_dnnl_check(dnnl_stream_wait(p->stream), "reorder");
}

lt_status lt_pack_weight(lt_cpu *cpu, lt_plan *plan, const void *data, uint64_t version)
{
    lt_products *p = cpu->products;
    lt_pack *pack = NULL;
    if (version)
        LT_TRY(find_pack(p, plan, data, &pack));
    if (pack && pack->version == version) {
        if (pack->copy)
            return lt_dnnl_check(dnnl_memory_set_data_handle(plan->w, pack->copy), "handle");
        pack->copy = lt_alloc_aligned(64, plan->w_bytes);
        if (!pack->copy)
            return LT_E_NOMEM;
        lt_status st = reorder_weight(p, plan, data, pack->copy);
        if (st) {
            lt_free(pack->copy);
            pack->copy = NULL;
        }
        return st;
    }
    if (pack) {
        lt_free(pack->copy);
        pack->copy = NULL;
        pack->version = version;
    }
    void *to = lt_cpu_scratch(cpu, LT_CPU_PACK, plan->w_bytes);
    return to ? reorder_weight(p, plan, data, to) : LT_E_NOMEM;
}

lt_status lt_plan_run(lt_cpu *cpu, lt_plan *plan, const dnnl_exec_arg_t *args, int count)
{
    enum { MOST = 6 };
    dnnl_exec_arg_t all[MOST];
    LT_ASSERT(count < MOST);
    memcpy(all, args, (size_t)count * sizeof *args);
    if (plan->scratchpad_bytes) {
        void *pad = lt_cpu_scratch(cpu, LT_CPU_SCRATCHPAD, plan->scratchpad_bytes);
        if (!pad)
            return LT_E_NOMEM;
        if (plan->unverified)
            memset(pad, 0xFF, plan->scratchpad_bytes);
        dnnl_memory_set_data_handle(plan->scratchpad, pad);
        all[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, plan->scratchpad};
    }
    dnnl_stream_t stream = cpu->products->stream;
    LT_TRY(lt_dnnl_check(dnnl_primitive_execute(plan->primitive, stream, count, all), "primitive"));
    return lt_dnnl_check(dnnl_stream_wait(stream), "primitive");
}

static bool is_stored(const lt_view *view, lt_dtype dtype)
{
    return view->dtype == dtype
           && (view->shape.ndim == 4 ? lt_view_is_channels_last(view)
                                     : lt_view_is_contiguous(view));
}

lt_status lt_products_write(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                            void **data)
{
    *data = view->data;
    if (!is_stored(view, dtype))
        *data = lt_cpu_scratch(cpu, slot, (size_t)lt_cpu_count(view) * lt_dtype_size(dtype));
    return *data ? LT_OK : LT_E_NOMEM;
}

lt_status lt_products_read(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                           void **data)
{
    LT_TRY(lt_products_write(cpu, slot, view, dtype, data));
    if (*data == view->data)
        return LT_OK;
    lt_view copy = lt_cpu_dense_view(*data, dtype, view->shape);
    return lt_backend_cpu()->cast(cpu, view, &copy);
}

lt_status lt_products_round(lt_cpu *cpu, lt_dtype dtype, lt_view *w)
{
    if (w->dtype != LT_F32 || dtype == LT_F32)
        return LT_OK;
    void *data = lt_cpu_scratch(cpu, LT_CPU_PACK, (size_t)lt_cpu_count(w) * lt_dtype_size(dtype));
    if (!data)
        return LT_E_NOMEM;
    lt_view rounded = lt_cpu_dense_view(data, dtype, w->shape);
    LT_TRY(lt_backend_cpu()->cast(cpu, w, &rounded));
    *w = rounded;
    return LT_OK;
}

lt_status lt_products_written(lt_cpu *cpu, const lt_view *view, lt_dtype dtype, void *data)
{
    if (data == view->data)
        return LT_OK;
    lt_view copy = lt_cpu_dense_view(data, dtype, view->shape);
    return lt_backend_cpu()->cast(cpu, &copy, view);
}

lt_status lt_cpu_products_open(lt_cpu *cpu)
{
    lt_dnnl_limit_isa(cpu->isa);
    lt_products *p = lt_alloc(1, sizeof *p);
    if (!p)
        return LT_E_NOMEM;
    cpu->products = p;
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
        lt_cpu_products_close(cpu);
    return st;
}

void lt_cpu_products_close(lt_cpu *cpu)
{
    lt_products *p = cpu->products;
    if (!p)
        return;
    forget_plans(p);
    if (p->attr)
        dnnl_primitive_attr_destroy(p->attr);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    if (p->engine)
        dnnl_engine_destroy(p->engine);
    lt_free(p);
    cpu->products = NULL;
}

void lt_cpu_install_products(lt_backend *be)
{
    be->conv2d = lt_cpu_conv2d;
    be->conv2d_grad_x = lt_cpu_conv2d_grad_x;
    be->conv2d_grad_w = lt_cpu_conv2d_grad_w;
    be->matmul = lt_cpu_matmul;
    be->linear = lt_cpu_linear;
}

const char *lt_cpu_products_info(void)
{
    static __thread char line[64];
    const dnnl_version_t *v = dnnl_version();
    snprintf(line, sizeof line, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    return line;
}
