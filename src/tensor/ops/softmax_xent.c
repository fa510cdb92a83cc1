/* Cross-entropy of a softmax with smoothed targets, and top-k counts. Smoothing: Szegedy et al., "Rethinking
 * the Inception architecture", 2016, section 7. */

#include "tensor/ops/ops.h"
#include "tensor/tensor.h"

#include "lather/ops/loss.h"

enum { LOGITS, LABELS }; /* inputs */
enum { LSE };            /* saved: log(sum(exp(logits))) of each row */

static bool has_soft_labels(const lt_tensor *labels)
{
    return labels->dtype == LT_F32 || labels->dtype == LT_F64;
}

static lt_status check_labels(lt_shape logits, const lt_tensor *labels)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    lt_shape want = logits;
    want.ndim -= !has_soft_labels(labels);
    if ((labels->dtype != LT_I32 && !has_soft_labels(labels))
        || !lt_shape_equal(labels->shape, want))
        return lt_fail(LT_E_SHAPE,
                       "softmax_xent: labels %s %s for logits %s, want i32 [..] or f32 [..,K]",
                       lt_dtype_name(labels->dtype), lt_shape_text(labels->shape, a),
                       lt_shape_text(logits, b));
    return LT_OK;
}

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const double *smoothing = node->config;
    char text[LT_SHAPE_TEXT];
    lt_shape logits = node->in[LOGITS]->shape;
    if (logits.ndim < 1 || !node->in[LABELS])
        return lt_fail(LT_E_SHAPE, "softmax_xent: logits %s, want [..,K], and labels",
                       lt_shape_text(logits, text));
    LT_TRY(check_labels(logits, node->in[LABELS]));
    if (!(*smoothing >= 0 && *smoothing <= 1))
        return lt_fail(LT_E_ARG, "softmax_xent: smoothing %g is not in [0,1]", *smoothing);
    *out =
        (lt_desc){.dtype = lt_device_master_dtype(lt_tape_device(node->tape)), .shape = LT_SCALAR};
    return LT_OK;
}

/* Returns the logits as rows, and the labels as a vector or, if soft, as rows. */
static lt_status get_inputs(lt_node *node, lt_view *logits, lt_view *labels)
{
    lt_view z, y;
    LT_TRY(lt_node_in(node, LOGITS, &z));
    LT_TRY(lt_node_in(node, LABELS, &y));
    LT_TRY(lt_op_as_rows(node, &z, logits));
    if (has_soft_labels(node->in[LABELS]))
        return lt_op_as_rows(node, &y, labels);
    return lt_op_as_vector(node, &y, labels);
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const double *smoothing = node->config;
    lt_view logits, labels, loss, lse;
    LT_TRY(get_inputs(node, &logits, &labels));
    LT_TRY(lt_node_out(node, &loss));
    LT_TRY(lt_node_save(node, LSE, loss.dtype, LT_SHAPE(logits.shape.dim[0]), &lse));
    return be->softmax_xent(ctx, *smoothing, &logits, &labels, &lse, &loss);
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const double *smoothing = node->config;
    lt_view dloss, logits, labels, lse, dx, rows;
    if (!lt_node_needs_grad(node, LOGITS))
        return LT_OK;
    LT_TRY(lt_node_grad(node, &dloss));
    LT_TRY(get_inputs(node, &logits, &labels));
    LT_TRY(lt_node_saved(node, LSE, &lse));
    LT_TRY(lt_node_grad_out(node, LOGITS, &dx));
    LT_TRY(lt_op_output_rows(node, &dx, &rows));
    LT_TRY(be->softmax_xent_grad(ctx, *smoothing, &dloss, &logits, &labels, &lse, &rows));
    return lt_op_copy_output_rows(node, &rows, &dx);
}

const lt_op lt_op_softmax_xent = {
    .name = "softmax_xent",
    .config_bytes = sizeof(double),
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_softmax_xent(lt_tape *tape, lt_tensor *logits, lt_tensor *labels, double smoothing)
{
    return lt_op_run(tape, &lt_op_softmax_xent, (lt_tensor *[]){logits, labels}, 2, &smoothing);
}

/* Views logits [..,K] as rows [N,K] and labels [..] as [N]. */
static lt_status view_as_rows(lt_view *logits, lt_view *labels)
{
    const lt_view x = *logits, y = *labels;
    const int64_t rows = lt_shape_count(y.shape), classes = x.shape.dim[x.shape.ndim - 1];
    logits->shape = LT_SHAPE(rows, classes);
    labels->shape = LT_SHAPE(rows);
    return lt_view_reshape(&x, logits->shape, logits->stride)
                   && lt_view_reshape(&y, labels->shape, labels->stride)
               ? LT_OK
               : lt_fail(LT_E_UNSUPPORTED, "topk_hits: logits and labels must be contiguous");
}

lt_status lt_topk_hits(const lt_tensor *logits, const lt_tensor *labels, lt_tensor *hits)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    lt_shape rows = logits->shape;
    rows.ndim -= rows.ndim > 0;
    const bool counts = hits->dtype == LT_I64 && hits->shape.ndim == 1
                        && (hits->shape.dim[0] == 2 || hits->shape.dim[0] == 3);
    if (logits->shape.ndim < 1 || labels->dtype != LT_I32 || !counts
        || !lt_shape_equal(labels->shape, rows))
        return lt_fail(LT_E_SHAPE,
                       "topk_hits: logits %s, labels %s, want [..,K], i32 [..], i64 [2] or [3]",
                       lt_shape_text(logits->shape, a), lt_shape_text(labels->shape, b));
    LT_TRY(lt_tensor_materialize(logits));
    lt_view x = lt_tensor_view(logits), y = lt_tensor_view(labels), h = lt_tensor_view(hits);
    if (!x.data)
        return lt_fail(LT_E_ARG, "topk_hits: the logits were freed; lt_tape_keep() keeps them");
    LT_TRY(view_as_rows(&x, &y));
    return logits->device->backend->topk_hits(logits->device->ctx, &x, &y, &h);
}
