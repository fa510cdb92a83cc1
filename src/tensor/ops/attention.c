/* Scaled dot-product attention: Vaswani et al., "Attention is all you need", 2017. The saved log-sum-exp and
 * the gradient: Dao et al., "FlashAttention", 2022. Kernels take 4-D views of heads: three tensors, or three
 * slices of a packed one. */

#include "lather/ops/attention.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/shape.h"

#include <math.h>

enum { Q, K, V, PARTS }; /* inputs; K and V are absent if Q is packed q, k and v */
enum { LSE };            /* saved */

static lt_status check_heads(const lt_attention_config *c)
{
    if (c->heads < 1 || c->kv_heads < 1 || c->heads % c->kv_heads)
        return lt_fail(LT_E_ARG,
                       "attention: got %d heads and %d kv_heads, want kv_heads to divide heads",
                       c->heads, c->kv_heads);
    if (!(c->scale > 0) || !isfinite(c->scale))
        return lt_fail(LT_E_ARG, "attention: scale %g, want a finite number > 0", c->scale);
    return LT_OK;
}

/* Returns the number of heads of q, k or v. */
static int64_t head_count(const lt_node *node, int part)
{
    const lt_attention_config *c = node->config;
    return part == Q ? c->heads : c->kv_heads;
}

static lt_status check_packed_shape(const lt_node *node, int64_t *features)
{
    const lt_attention_config *c = node->config;
    char text[LT_SHAPE_TEXT];
    const lt_shape q = node->in[Q]->shape;
    const int64_t heads = c->heads + 2 * (int64_t)c->kv_heads;
    if (q.ndim != 3 || q.dim[2] % heads)
        return lt_fail(LT_E_SHAPE,
                       "attention: packed q, k and v %s, want [B,T,C] with C a multiple of %lld "
                       "heads",
                       lt_shape_text(q, text), (long long)heads);
    *features = q.dim[2] / heads * c->heads;
    return LT_OK;
}

static lt_status check_qkv_shapes(const lt_node *node)
{
    const lt_attention_config *c = node->config;
    char q_text[LT_SHAPE_TEXT], k_text[LT_SHAPE_TEXT], v_text[LT_SHAPE_TEXT];
    const lt_shape q = node->in[Q]->shape, k = node->in[K]->shape, v = node->in[V]->shape;
    if (q.ndim != 3 || q.dim[2] % c->heads)
        return lt_fail(LT_E_SHAPE, "attention: q %s, want [B,T,C] with C a multiple of %d heads",
                       lt_shape_text(q, q_text), c->heads);
    if (k.ndim != 3 || !lt_shape_equal(k, v) || k.dim[0] != q.dim[0]
        || k.dim[2] != q.dim[2] / c->heads * c->kv_heads)
        return lt_fail(LT_E_SHAPE, "attention: k %s, v %s, want both [%lld,T,%lld] for q %s",
                       lt_shape_text(k, k_text), lt_shape_text(v, v_text), (long long)q.dim[0],
                       (long long)(q.dim[2] / c->heads * c->kv_heads), lt_shape_text(q, q_text));
    if (c->causal && k.dim[1] < q.dim[1])
        return lt_fail(LT_E_SHAPE,
                       "attention: %lld keys for %lld queries, causal needs at least as many",
                       (long long)k.dim[1], (long long)q.dim[1]);
    for (int i = K; i <= V; i++)
        if (node->in[i]->dtype != node->in[Q]->dtype)
            return lt_fail(LT_E_ARG, "attention: %s is %s, want q's %s", i == K ? "k" : "v",
                           lt_dtype_name(node->in[i]->dtype), lt_dtype_name(node->in[Q]->dtype));
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    LT_TRY(check_heads(node->config));
    if (!node->in[K] != !node->in[V])
        return lt_fail(LT_E_ARG, "attention: %s is NULL, want both k and v, or neither",
                       node->in[K] ? "v" : "k");
    const lt_shape q = node->in[Q]->shape;
    int64_t features = q.ndim == 3 ? q.dim[2] : 0;
    LT_TRY(node->in[K] ? check_qkv_shapes(node) : check_packed_shape(node, &features));
    *out = (lt_desc){.dtype = node->in[Q]->dtype,
                     .shape = LT_SHAPE(q.dim[0], q.dim[1], features),
                     .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static int64_t head_size(const lt_node *node)
{
    return node->out->shape.dim[2] / head_count(node, Q);
}

/* Splits the three tensors, or the packed one, into views of q, k and v. */
static void split_qkv(const lt_node *node, const lt_view x[PARTS], lt_view part[PARTS])
{
    const int64_t d = head_size(node);
    int64_t first = 0;
    for (int i = Q; i < PARTS; i++) {
        const bool joined = !node->in[K];
        part[i] =
            lt_op_as_heads(&x[joined ? Q : i], joined ? first * d : 0, head_count(node, i), d);
        first += head_count(node, i);
    }
}

static lt_status get_qkv(lt_node *node, lt_view part[PARTS])
{
    lt_view x[PARTS];
    for (int i = Q; i < PARTS; i++)
        if (node->in[i])
            LT_TRY(lt_node_in(node, i, &x[i]));
    split_qkv(node, x, part);
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_attention_config *c = node->config;
    lt_view part[PARTS], y, lse;
    LT_TRY(get_qkv(node, part));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_node_save(node, LSE, lt_device_master_dtype(lt_tape_device(node->tape)),
                        LT_SHAPE(y.shape.dim[0], c->heads, y.shape.dim[1]), &lse));
    y = lt_op_as_heads(&y, 0, c->heads, head_size(node));
    return be->attention(ctx, c, &part[Q], &part[K], &part[V], &y, &lse);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_attention_config *c = node->config;
    lt_view part[PARTS], dx[PARTS], out[PARTS], dy, y, lse;
    LT_TRY(get_qkv(node, part));
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_node_saved(node, LSE, &lse));
    dy = lt_op_as_heads(&dy, 0, c->heads, head_size(node));
    y = lt_op_as_heads(&y, 0, c->heads, head_size(node));
    for (int i = Q; i < PARTS; i++) {
        dx[i] = part[i]; /* placeholder for inputs without gradient */
        if (lt_node_needs_grad(node, i))
            LT_TRY(lt_node_grad_out(node, i, &dx[i]));
    }
    split_qkv(node, dx, out);
    bool wants[PARTS];
    for (int i = Q; i < PARTS; i++)
        wants[i] = lt_node_needs_grad(node, node->in[K] ? i : Q);
    const lt_attention_grad g = {.dy = &dy,
                                 .q = &part[Q],
                                 .k = &part[K],
                                 .v = &part[V],
                                 .y = &y,
                                 .lse = &lse,
                                 .dq = wants[Q] ? &out[Q] : NULL,
                                 .dk = wants[K] ? &out[K] : NULL,
                                 .dv = wants[V] ? &out[V] : NULL};
    return be->attention_grad(ctx, c, &g);
}

const lt_op lt_op_attention = {
    .name = "attention",
    .config_bytes = sizeof(lt_attention_config),
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

/* Removes keys or values that no query sees: those from the number of queries on. */
static lt_tensor *drop_masked_keys(lt_tape *tape, lt_tensor *x, const lt_tensor *q)
{
    const int64_t queries = q && q->shape.ndim == 3 ? q->shape.dim[1] : 0;
    const bool has_more = x && x->shape.ndim == 3 && x->shape.dim[1] > queries;
    return has_more && queries ? lt_slice(tape, x, 1, 0, queries) : x;
}

lt_tensor *lt_attention(lt_tape *tape, lt_tensor *q, lt_tensor *k, lt_tensor *v,
                        lt_attention_config config)
{
    if (!config.kv_heads)
        config.kv_heads = config.heads;
    const int64_t heads = config.heads + (k || v ? 0 : 2 * (int64_t)config.kv_heads);
    if (config.scale == 0 && q && q->shape.ndim == 3 && heads > 0 && q->shape.dim[2] >= heads) {
        const int64_t depth = q->shape.dim[2] / heads;
        config.scale = 1 / sqrt((double)depth);
    } else if (config.scale == 0) {
        config.scale = 1; /* infer rejects the shape */
    }
    if (config.causal && !config.lower_right) {
        k = drop_masked_keys(tape, k, q);
        v = drop_masked_keys(tape, v, q);
    }
    return lt_op_run(tape, &lt_op_attention, (lt_tensor *[]){q, k, v}, PARTS, &config);
}
