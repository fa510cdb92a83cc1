/* Convolution and its gradients by cuDNN. Activations are channels-last, and so are weights (OIHW
 * with the input channels innermost in memory). A plan is chosen by time at the first call with a
 * shape and kept, in memory and on disk. Formula: lt_conv2d().
 *
 * A weight's gradient is f32 by contract; cuDNN's fast kernels write the factors' dtype, so in a
 * 16-bit pass it is rounded to that once, and then cast. */

#include "dnn_plan.h"
#include "kernels.h"
#include "operands.h"
#include "plan_cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { X, W, Y, OPERANDS, KEY = 512, DISK_KEY = 4096, MOST_TRIED = 16 };

static const size_t most_workspace = (size_t)512 << 20; /* bytes */

/* What the device keeps for convolutions. */
typedef struct convs {
    lt_plan_cache *cache;
    cudnnBackendDescriptor_t device;
    char *device_text;
} convs;

typedef struct call {
    lt_dnn_conv_kind kind;
    const lt_conv2d_config *config;
    const lt_view *x, *w, *y; /* or the gradients of x, w, y */
    lt_dtype dtype;           /* what is multiplied */
} call;

static void release_plan(void *plan)
{
    lt_dnn_plan_clear(plan);
    free(plan);
}

static void close_convs(lt_cuda *c, void *data)
{
    convs *v = data;
    (void)c;
    lt_plan_cache_free(&v->cache);
    if (v->device)
        cudnnBackendDestroyDescriptor(v->device);
    free(v->device_text);
    free(v);
}

static lt_status get_convs(lt_cuda *c, convs **out)
{
    lt_cuda_part *part = &c->part[LT_CUDA_CONVS];
    *out = part->data;
    if (*out)
        return LT_OK;
    convs *v = calloc(1, sizeof *v);
    if (!v)
        return lt_fail(LT_E_NOMEM, "cuda:%d: no memory", c->ordinal);
    lt_status st = lt_plan_cache_new(&v->cache, NULL, release_plan);
    if (!st)
        st = lt_dnn_device(&v->device, NULL, c->cudnn);
    if (!st)
        st = lt_dnn_device_text(v->device, &v->device_text);
    if (st) {
        close_convs(c, v);
        return st;
    }
    part->data = *out = v;
    part->close = close_convs;
    return LT_OK;
}

static void make_key(const call *p, char key[KEY])
{
    static const char *const kinds[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w"};
    const lt_conv2d_config *g = p->config;
    const int64_t *x = p->x->shape.dim, *w = p->w->shape.dim;
    snprintf(key, KEY,
             "%s %s x %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " w %" PRId64 " %" PRId64
             " %" PRId64 " %" PRId64 " s %d %d p %d %d d %d %d",
             kinds[p->kind], lt_dtype_name(p->dtype), x[0], x[1], x[2], x[3], w[0], w[1], w[2],
             w[3], g->stride_h, g->stride_w, g->pad_h, g->pad_w, g->dilation_h, g->dilation_w);
}

/* On disk a plan is for a version of cuDNN, a device, and what the program allows. */
static void make_disk_key(const lt_cuda *c, const convs *v, const char *key, char disk[DISK_KEY])
{
    snprintf(disk, DISK_KEY, "%s\ncudnn %zu\ntf32 %d deterministic %d\n%s", key, cudnnGetVersion(),
             c->tf32, c->deterministic, v->device_text);
}

static lt_status build(lt_dnn_graph *g, const call *p)
{
    const int x = lt_dnn_tensor(g, p->dtype, p->x->shape.dim, LT_DNN_MEMORY);
    const int w = lt_dnn_tensor(g, p->dtype, p->w->shape.dim, LT_DNN_MEMORY);
    const int y = lt_dnn_tensor(g, p->dtype, p->y->shape.dim, LT_DNN_MEMORY);
    lt_dnn_conv(g, p->kind, p->config, x, w, y);
    return lt_dnn_finish(g);
}

/* Plans to choose from, and what they run on. */
typedef struct trial {
    lt_cuda *c;
    lt_dnn_plan plan[MOST_TRIED];
    int count;
    size_t workspace_bytes;
    void *memory[OPERANDS], *workspace;
} trial;

static lt_status run_plan(lt_cuda *c, const lt_dnn_plan *plan, void *const *memory, void *workspace)
{
    static const int tensor[] = {X, W, Y};
    return lt_dnn_plan_run(plan, c->cudnn, tensor, memory, OPERANDS, workspace);
}

static lt_status try_plan(void *context, int i)
{
    trial *t = context;
    return run_plan(t->c, &t->plan[i], t->memory, t->workspace);
}

/* Kernels that would have to be compiled take seconds each: they are the last resort. */
static lt_status make_plans(trial *t, const lt_dnn_choices *choices, const convs *v)
{
    lt_status st = LT_OK;
    for (int compiled = 0; compiled < 2 && !t->count; compiled++)
        for (int i = 0; i < choices->count && t->count < (compiled ? 1 : MOST_TRIED); i++) {
            if (choices->item[i].compiled != (bool)compiled)
                continue;
            lt_dnn_plan *plan = &t->plan[t->count];
            lt_status one = lt_dnn_plan_new(plan, &choices->item[i], v->device);
            if (!one && plan->workspace <= most_workspace) {
                t->count++;
                if (plan->workspace > t->workspace_bytes)
                    t->workspace_bytes = plan->workspace;
            } else {
                st = one ? one : st;
                lt_dnn_plan_clear(plan);
            }
        }
    return t->count ? LT_OK : st;
}

static void clear_trial(trial *t)
{
    while (t->count > 0)
        lt_dnn_plan_clear(&t->plan[--t->count]);
}

/* The candidates of cuDNN's heuristics. */
static lt_status propose(trial *t, const call *p, const convs *v)
{
    const lt_dnn_rules rules = {t->c->deterministic, t->c->tf32, most_workspace};
    lt_dnn_graph g = {0};
    lt_dnn_choices choices = {0};
    lt_status st = build(&g, p);
    if (!st)
        st = lt_dnn_propose(&choices, &g, v->device, &rules);
    if (!st)
        st = make_plans(t, &choices, v);
    lt_dnn_choices_clear(&choices);
    lt_dnn_forget(&g);
    return st;
}

static lt_status add_plan(convs *v, const char *key, lt_dnn_plan plan, lt_dnn_plan **out)
{
    *out = malloc(sizeof **out);
    if (!*out) {
        lt_dnn_plan_clear(&plan);
        return lt_fail(LT_E_NOMEM, "cuda: no memory for a plan");
    }
    **out = plan;
    return lt_plan_cache_add(v->cache, key, *out);
}

/* From an earlier process. *out stays NULL if there is none that still fits. */
static lt_status read_plan(lt_cuda *c, convs *v, const char *key, lt_dnn_plan **out)
{
    char disk[DISK_KEY];
    lt_dnn_plan plan;
    make_disk_key(c, v, key, disk);
    char *text = lt_plan_cache_read(v->cache, disk);
    *out = NULL;
    if (!text)
        return LT_OK;
    const bool loaded = lt_dnn_plan_load(&plan, text, v->device) == LT_OK;
    free(text);
    return loaded ? add_plan(v, key, plan, out) : LT_OK;
}

/* For later processes; that it cannot be written is no failure of this one. */
static void write_plan(lt_cuda *c, const convs *v, const char *key, const lt_dnn_plan *plan)
{
    char disk[DISK_KEY], *text;
    make_disk_key(c, v, key, disk);
    if (lt_dnn_plan_text(plan, &text))
        return;
    (void)lt_plan_cache_write(v->cache, disk, text);
    free(text);
}

static lt_status open_operands(lt_cuda *c, lt_operand operand[OPERANDS], size_t extra,
                               void *memory[OPERANDS], void **workspace)
{
    LT_TRY(lt_operands_open(c, operand, OPERANDS, extra, workspace));
    for (int i = 0; i < OPERANDS; i++)
        memory[i] = operand[i].use.data;
    return LT_OK;
}

/* Times the candidates on the operands themselves: the result is overwritten by the last run. */
static lt_status choose_plan(lt_cuda *c, const call *p, convs *v, const char *key,
                             lt_operand operand[OPERANDS], lt_dnn_plan **out)
{
    trial t = {.c = c};
    int best = 0;
    if (c->capturing)
        return lt_fail(LT_E_DEVICE,
                       "cuda:%d: %s: a convolution of another shape in a captured step; a step "
                       "must run as it is before it is captured",
                       c->ordinal, c->operation);
    lt_status st = propose(&t, p, v);
    if (!st)
        st = open_operands(c, operand, t.workspace_bytes, t.memory, &t.workspace);
    if (!st)
        st = lt_cuda_fastest(c, t.count, try_plan, &t, &best);
    if (!st) {
        const lt_dnn_plan chosen = t.plan[best];
        t.plan[best] = (lt_dnn_plan){0};
        write_plan(c, v, key, &chosen);
        st = add_plan(v, key, chosen, out);
    }
    clear_trial(&t);
    return st;
}

static lt_status get_plan(lt_cuda *c, const call *p, lt_operand operand[OPERANDS],
                          lt_dnn_plan **out)
{
    convs *v = NULL;
    char key[KEY];
    lt_status st = get_convs(c, &v);
    if (st || !v)
        return st;
    make_key(p, key);
    *out = lt_plan_cache_find(v->cache, key);
    if (!*out && !c->capturing)
        LT_TRY(read_plan(c, v, key, out));
    return *out ? LT_OK : choose_plan(c, p, v, key, operand, out);
}

static void describe(const call *p, lt_operand operand[OPERANDS])
{
    const lt_view *view[] = {p->x, p->w, p->y};
    static const int written[] = {Y, X, W}; /* by kind */
    for (int i = 0; i < OPERANDS; i++)
        operand[i] = (lt_operand){.view = view[i],
                                  .dtype = p->dtype,
                                  .fits = lt_view_is_channels_last(view[i]),
                                  .written = i == written[p->kind]};
    operand[W].keeps = p->kind != LT_DNN_GRAD_W;
    operand[W].refresh = p->kind == LT_DNN_FORWARD;
}

static lt_status run(lt_cuda *c, const call *p)
{
    lt_operand operand[OPERANDS];
    lt_dnn_plan *plan = NULL;
    void *memory[OPERANDS], *workspace;
    if (p->dtype != LT_F32 && p->dtype != LT_F16 && p->dtype != LT_BF16)
        return lt_fail(LT_E_UNSUPPORTED, "cuda:%d: %s of %s; there are f32, f16 and bf16",
                       c->ordinal, c->operation, lt_dtype_name(p->dtype));
    describe(p, operand);
    lt_status st = get_plan(c, p, operand, &plan);
    if (st || !plan)
        return st;
    LT_TRY(open_operands(c, operand, plan->workspace, memory, &workspace));
    LT_TRY(run_plan(c, plan, memory, workspace));
    return lt_operands_close(c, operand, OPERANDS);
}

/* y += b, a value for each channel. */
static lt_status add_bias(lt_cuda *c, const lt_view *b, const lt_view *y)
{
    lt_view wide = *b;
    wide.shape = y->shape;
    memset(wide.stride, 0, sizeof wide.stride);
    wide.stride[1] = b->stride[0];
    return lt_cuda_table()->add(c, y, &wide, y);
}

static lt_status conv2d(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                        const lt_view *w, const lt_view *b, const lt_view *y)
{
    lt_cuda *c = ctx;
    const call p = {LT_DNN_FORWARD, config, x, w, y, x->dtype};
    LT_TRY(lt_cuda_begin(c, "conv2d"));
    LT_TRY(run(c, &p));
    if (b && b->data)
        LT_TRY(add_bias(c, b, y));
    return lt_cuda_end(c);
}

static lt_status conv2d_grad_x(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_view *dx)
{
    lt_cuda *c = ctx;
    const call p = {LT_DNN_GRAD_X, config, dx, w, dy, dy->dtype};
    LT_TRY(lt_cuda_begin(c, "conv2d_grad_x"));
    LT_TRY(run(c, &p));
    return lt_cuda_end(c);
}

static lt_status conv2d_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    lt_cuda *c = ctx;
    const call p = {LT_DNN_GRAD_W, config, x, dw, dy, dy->dtype};
    LT_TRY(lt_cuda_begin(c, "conv2d_grad_w"));
    LT_TRY(run(c, &p));
    return lt_cuda_end(c);
}

void lt_cuda_install_convs(lt_backend *be)
{
    be->conv2d = conv2d;
    be->conv2d_grad_x = conv2d_grad_x;
    be->conv2d_grad_w = conv2d_grad_w;
}
