/* Graphs of attention. cuDNN has kernels only for whole graphs of a known pattern: cuDNN's developer guide, "Graph
 * patterns with pre-compiled engines", fused flash attention. Those that it accepts were found by queries:
 * tests/cuda/planning_attention.c. */

#include "attention_graph.h"

/* dtype between operations. */
static const lt_dtype between = LT_F32;

enum { BATCH, HEAD, ROW, COLUMN };

/* A shape and its strides. */
typedef struct layout {
    int64_t dim[4], stride[4];
} layout;

static layout packed_layout(int64_t batch, int64_t heads, int64_t rows, int64_t columns)
{
    return (layout){{batch, heads, rows, columns},
                    {heads * rows * columns, rows * columns, columns, 1}};
}

/* Transposed matrices in the same memory. */
static layout transposed_layout(layout e)
{
    layout t = e;
    t.dim[ROW] = e.dim[COLUMN];
    t.dim[COLUMN] = e.dim[ROW];
    t.stride[ROW] = e.stride[COLUMN];
    t.stride[COLUMN] = e.stride[ROW];
    return t;
}

static layout scores_layout(const lt_attention_problem *p)
{
    return packed_layout(p->batch, p->heads, p->queries, p->keys);
}

/* One number per query. */
static layout column_layout(const lt_attention_problem *p)
{
    return packed_layout(p->batch, p->heads, p->queries, 1);
}

static bool is_key_or_value_slot(int slot)
{
    return slot == LT_ATTENTION_K || slot == LT_ATTENTION_V || slot == LT_ATTENTION_DK
           || slot == LT_ATTENTION_DV;
}

static layout slot_layout(const lt_attention_problem *p, int slot)
{
    const lt_attention_strides *s = &p->stride[slot];
    const bool keys = is_key_or_value_slot(slot);
    return (layout){
        {p->batch, keys ? p->kv_heads : p->heads, keys ? p->keys : p->queries, p->width},
        {s->batch, s->head, s->row, 1}};
}

static int add_tensor(lt_dnn_graph *g, lt_dtype dtype, layout e, lt_dnn_place place)
{
    return lt_dnn_strided_tensor(g, dtype, e.dim, e.stride, place);
}

static int add_virtual_tensor(lt_dnn_graph *g, layout e)
{
    return add_tensor(g, between, e, LT_DNN_VIRTUAL);
}

bool lt_attention_has_slot(const lt_attention_problem *p, int slot)
{
    switch (slot) {
    case LT_ATTENTION_ONE:
        return p->backward;
    case LT_ATTENTION_MASKED:
        return p->causal;
    case LT_ATTENTION_KEYS:
    case LT_ATTENTION_QUERIES:
        return p->causal && p->keys != p->queries;
    default:
        return slot < LT_ATTENTION_FORWARD_SLOTS || p->backward;
    }
}

/* The products use transposed keys, and transposed values in the backward pass. */
static void add_tensors(lt_dnn_graph *g, const lt_attention_problem *p)
{
    const int count = p->backward ? LT_ATTENTION_SLOTS : LT_ATTENTION_FORWARD_SLOTS;
    for (int i = 0; i < count; i++) {
        if (i == LT_ATTENTION_LSE || i == LT_ATTENTION_SUMS)
            add_tensor(g, LT_F32, column_layout(p), LT_DNN_MEMORY);
        else if (i >= LT_ATTENTION_SCALE && i <= LT_ATTENTION_MASKED)
            lt_dnn_scalar(g, LT_F32);
        else if (i == LT_ATTENTION_KEYS || i == LT_ATTENTION_QUERIES)
            lt_dnn_scalar(g, LT_I32);
        else if (i == LT_ATTENTION_K || (i == LT_ATTENTION_V && p->backward))
            add_tensor(g, p->dtype, transposed_layout(slot_layout(p, i)), LT_DNN_MEMORY);
        else
            add_tensor(g, p->dtype, slot_layout(p, i), LT_DNN_MEMORY);
    }
}

/* Adds mode(x, b), of x's shape. */
static int add_pointwise(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, layout e)
{
    const int y = add_virtual_tensor(g, e);
    lt_dnn_pointwise(g, mode, x, b, y);
    return y;
}

static int add_index(lt_dnn_graph *g, int dimension, int scores, layout e)
{
    const int y = add_tensor(g, LT_I32, e, LT_DNN_VIRTUAL);
    lt_dnn_index(g, dimension, scores, y);
    return y;
}

static int add_integer_op(lt_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int by, layout e)
{
    const int y = add_tensor(g, LT_I32, e, LT_DNN_VIRTUAL);
    lt_dnn_integer_pointwise(g, mode, x, by, y);
    return y;
}

/* Adds the causal mask. */
static int add_causal_mask(lt_dnn_graph *g, const lt_attention_problem *p, int scores)
{
    const layout e = scores_layout(p);
    if (!p->causal)
        return scores;
    int row = add_index(g, ROW, scores, e);
    const int column = add_index(g, COLUMN, scores, e), flags = lt_dnn_bool_tensor(g, e.dim);
    if (p->keys != p->queries) {
        row = add_integer_op(g, CUDNN_POINTWISE_ADD, row, LT_ATTENTION_KEYS, e);
        row = add_integer_op(g, CUDNN_POINTWISE_SUB, row, LT_ATTENTION_QUERIES, e);
    }
    lt_dnn_integer_pointwise(g, CUDNN_POINTWISE_CMP_GE, row, column, flags);
    const int y = add_virtual_tensor(g, e);
    lt_dnn_select(g, flags, scores, LT_ATTENTION_MASKED, y);
    return y;
}

/* Adds q k' * scale. */
static int add_scores(lt_dnn_graph *g, const lt_attention_problem *p)
{
    const layout e = scores_layout(p);
    const int product = add_virtual_tensor(g, e);
    lt_dnn_matmul(g, LT_ATTENTION_Q, LT_ATTENTION_K, product);
    return add_pointwise(g, CUDNN_POINTWISE_MUL, product, LT_ATTENTION_SCALE, e);
}

static void add_forward(lt_dnn_graph *g, const lt_attention_problem *p)
{
    const layout e = scores_layout(p), column = column_layout(p);
    const int scores = add_causal_mask(g, p, add_scores(g, p));
    const int largest = add_virtual_tensor(g, column), sum = add_virtual_tensor(g, column);
    lt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, scores, largest);
    const int away = add_pointwise(g, CUDNN_POINTWISE_SUB, scores, largest, e);
    const int power = add_pointwise(g, CUDNN_POINTWISE_EXP, away, -1, e);
    lt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, power, sum);
    const int log = add_pointwise(g, CUDNN_POINTWISE_LOG, sum, -1, column);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_ADD, largest, log, LT_ATTENTION_LSE);
    const int shares = add_tensor(g, p->dtype, e, LT_DNN_VIRTUAL);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_DIV, power, sum, shares);
    lt_dnn_matmul(g, shares, LT_ATTENTION_V, LT_ATTENTION_Y);
}

/* Adds each query's sum of dy * y. */
static void add_dy_y_sums(lt_dnn_graph *g, const lt_attention_problem *p)
{
    const layout e = packed_layout(p->batch, p->heads, p->queries, p->width);
    const int product = add_pointwise(g, CUDNN_POINTWISE_MUL, LT_ATTENTION_DY, LT_ATTENTION_Y, e);
    const int sum = add_virtual_tensor(g, column_layout(p));
    lt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    lt_dnn_pointwise(g, CUDNN_POINTWISE_MUL, sum, LT_ATTENTION_ONE, LT_ATTENTION_SUMS);
}

/* Adds y = scores' x, summed over the heads that share a head of keys. x: of the queries. */
static void add_key_gradient(lt_dnn_graph *g, const lt_attention_problem *p, int scores, int x,
                             int y)
{
    const int t = add_tensor(g, p->dtype, transposed_layout(scores_layout(p)), LT_DNN_VIRTUAL);
    lt_dnn_reshape(g, scores, t);
    if (p->heads == p->kv_heads) {
        lt_dnn_matmul(g, t, x, y);
        return;
    }
    const int all = add_tensor(g, p->dtype, packed_layout(p->batch, p->heads, p->keys, p->width),
                               LT_DNN_VIRTUAL);
    lt_dnn_matmul(g, t, x, all);
    lt_dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, all, y);
}

/* The kernel is deterministic because the gradient of q is one product that is written, not a sum in f32 to which
 * blocks add in any order. */
static void add_backward(lt_dnn_graph *g, const lt_attention_problem *p)
{
    const layout e = scores_layout(p);
    add_dy_y_sums(g, p);
    const int scores = add_scores(g, p);
    const int away =
        add_causal_mask(g, p, add_pointwise(g, CUDNN_POINTWISE_SUB, scores, LT_ATTENTION_LSE, e));
    const int shares = add_pointwise(g, CUDNN_POINTWISE_EXP, away, -1, e);
    add_key_gradient(g, p, shares, LT_ATTENTION_DY, LT_ATTENTION_DV);
    int d = add_virtual_tensor(g, e);
    lt_dnn_matmul(g, LT_ATTENTION_DY, LT_ATTENTION_V, d);
    d = add_pointwise(g, CUDNN_POINTWISE_SUB, d, LT_ATTENTION_SUMS, e);
    d = add_pointwise(g, CUDNN_POINTWISE_MUL, d, shares, e);
    d = add_pointwise(g, CUDNN_POINTWISE_MUL, d, LT_ATTENTION_SCALE, e);
    add_key_gradient(g, p, d, LT_ATTENTION_Q, LT_ATTENTION_DK);
    const int keys = add_tensor(g, p->dtype, slot_layout(p, LT_ATTENTION_K), LT_DNN_VIRTUAL);
    lt_dnn_reshape(g, LT_ATTENTION_K, keys);
    lt_dnn_matmul(g, d, keys, LT_ATTENTION_DQ);
}

lt_status lt_attention_build_graph(lt_dnn_graph *g, const lt_attention_problem *p)
{
    add_tensors(g, p);
    if (p->backward)
        add_backward(g, p);
    else
        add_forward(g, p);
    return lt_dnn_finalize_graph(g);
}
