/* Embedding: rows of a table, selected by index. */

#include "lather/ops/embedding.h"

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

enum { IDS, W }; /* inputs */

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    if (!node->in[W])
        return lt_fail(LT_E_ARG, "embedding: w is NULL");
    lt_shape y = node->in[IDS]->shape;
    const lt_shape w = node->in[W]->shape;
    if (node->in[IDS]->dtype != LT_I32 || y.ndim >= LT_MAX_DIMS || w.ndim != 2)
        return lt_fail(LT_E_SHAPE,
                       "embedding: ids %s %s and w %s, want i32 of at most %d dimensions and [V,C]",
                       lt_dtype_name(node->in[IDS]->dtype), lt_shape_text(y, a),
                       lt_shape_text(w, b), LT_MAX_DIMS - 1);
    y.dim[y.ndim++] = w.dim[1];
    *out =
        (lt_desc){.dtype = lt_tape_dtype(node->tape), .shape = y, .format = LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

static lt_status get_ids(lt_node *node, lt_view *ids)
{
    lt_view x;
    LT_TRY(lt_node_in(node, IDS, &x));
    return lt_op_as_vector(node, &x, ids);
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view ids, w, y, rows;
    LT_TRY(LT_HAS_ENTRY(node, be, embedding));
    LT_TRY(get_ids(node, &ids));
    LT_TRY(lt_node_in(node, W, &w));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_op_output_rows(node, &y, &rows));
    return be->embedding(ctx, &ids, &w, &rows);
}

/* The kernel writes the master dtype: the gradient of a table in another dtype is computed in scratch, then cast. */
lt_status lt_op_embedding_grad(lt_node *node, int table, const lt_view *ids, const lt_view *rows)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(node->tape));
    lt_view dw, sums;
    LT_TRY(LT_HAS_ENTRY(node, be, embedding_grad));
    LT_TRY(lt_node_grad_out(node, table, &dw));
    sums = dw;
    if (dw.dtype != master)
        LT_TRY(lt_node_scratch(node, master, dw.shape, &sums));
    LT_TRY(be->embedding_grad(ctx, ids, rows, &sums));
    return dw.dtype == master ? LT_OK : be->cast(ctx, &sums, &dw);
}

static lt_status backward(lt_node *node)
{
    lt_view ids, dy, rows;
    if (!lt_node_needs_grad(node, W))
        return LT_OK;
    LT_TRY(get_ids(node, &ids));
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_op_as_rows(node, &dy, &rows));
    return lt_op_embedding_grad(node, W, &ids, &rows);
}

const lt_op lt_op_embedding = {
    .name = "embedding",
    .backward_ignores = LT_IGNORES_IN(W) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_embedding(lt_tape *tape, lt_tensor *ids, lt_tensor *w)
{
    return lt_op_run(tape, &lt_op_embedding, (lt_tensor *[]){ids, w}, 2, NULL);
}
