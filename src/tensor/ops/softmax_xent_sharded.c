/* Cross-entropy of rows whose classes are sharded, and attention of sharded heads. The loss of a row is log
 * sum exp - logit of the label; its gradient is softmax - (1 at the label). */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"
#include "tensor/tensor.h"

#include "lather/detail/sharded.h"
#include "lather/ext/elementary.h"
#include "lather/ops/attention.h"
#include "lather/ops/loss.h"
#include "lather/ops/shape.h"

#include <math.h>

enum { X, LABELS }; /* inputs */
enum {
    LOG_SUM,
    ROWS
}; /* saved: [M] log of each row's sum of exponentials; [] the number of rows in the mean */

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    char x[LT_SHAPE_TEXT], labels[LT_SHAPE_TEXT];
    const lt_sharded_xent_config *c = node->config;
    const lt_tensor *in = node->in[X], *label = node->in[LABELS];
    const int64_t own = lt_even_shard_size(c->classes, c->row->size, c->row->rank);
    if (!label || in->shape.ndim != 2 || in->shape.dim[1] != own
        || !lt_shape_equal(label->shape, LT_SHAPE(in->shape.dim[0])))
        return lt_fail(
            LT_E_SHAPE,
            "softmax_xent_sharded: x %s and labels %s on rank %d of %d, want [M,%lld] of "
            "the %lld classes and [M]",
            lt_shape_text(in->shape, x), label ? lt_shape_text(label->shape, labels) : "NULL",
            c->row->rank, c->row->size, (long long)own, (long long)c->classes);
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(node->tape));
    if (in->dtype != master || label->dtype != LT_I32 || !in->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "softmax_xent_sharded: x is %s, labels %s, on %s; want %s and i32, in host "
                       "memory",
                       lt_dtype_name(in->dtype), lt_dtype_name(label->dtype),
                       lt_device_name(in->device), lt_dtype_name(master));
    if (c->rows < 0)
        return lt_fail(LT_E_ARG, "softmax_xent_sharded: got %lld rows in all, want >= 0",
                       (long long)c->rows);
    *out = (lt_desc){.dtype = master, .shape = LT_SCALAR};
    return LT_OK;
}

/* Access elements of f32 or f64 memory. */
static double get_element(const lt_view *v, int64_t i)
{
    return v->dtype == LT_F64 ? ((const double *)v->data)[i] : (double)((const float *)v->data)[i];
}

static void set_element(const lt_view *v, int64_t i, double x)
{
    if (v->dtype == LT_F64)
        ((double *)v->data)[i] = x;
    else
        ((float *)v->data)[i] = (float)x;
}

static int64_t row_label(const lt_view *labels, int64_t row)
{
    return ((const int32_t *)labels->data)[row * labels->stride[0]];
}

/* Returns this rank's first class. */
static int64_t first_class(const lt_node *node)
{
    const lt_sharded_xent_config *c = node->config;
    return lt_even_shard_offset(c->classes, c->row->size, c->row->rank);
}

static lt_status check_labels(const lt_node *node, const lt_view *labels)
{
    const lt_sharded_xent_config *c = node->config;
    for (int64_t m = 0; m < labels->shape.dim[0]; m++) {
        const int64_t label = row_label(labels, m);
        if (label != LT_IGNORED_LABEL && (label < 0 || label >= c->classes))
            return lt_fail(
                LT_E_ARG, "softmax_xent_sharded: label %lld of row %lld is not one of %lld classes",
                (long long)label, (long long)m, (long long)c->classes);
    }
    return LT_OK;
}

/* Finds the largest logit of each row over all ranks; most: [M]. */
static lt_status find_row_max(const lt_node *node, const lt_view *x, const lt_view *most)
{
    const lt_sharded_xent_config *c = node->config;
    const int64_t classes = x->shape.dim[1];
    for (int64_t m = 0; m < x->shape.dim[0]; m++) {
        double largest = get_element(x, m * classes);
        for (int64_t k = 1; k < classes; k++)
            largest = fmax(largest, get_element(x, m * classes + k));
        set_element(most, m, largest);
    }
    return lt_collective_run(
        c->row, &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE_MAX, .out = *most});
}

/* Computes over all ranks, for both [2,M]: sum of exp(x - most), and x - most at the label. */
static lt_status compute_row_sums(lt_node *node, const lt_view *x, const lt_view *labels,
                                  const lt_view *most, const lt_view *both)
{
    const lt_sharded_xent_config *c = node->config;
    const int64_t rows = x->shape.dim[0], classes = x->shape.dim[1], first = first_class(node);
    for (int64_t m = 0; m < rows; m++) {
        const int64_t own = row_label(labels, m) - first;
        double sum = 0;
        for (int64_t k = 0; k < classes; k++)
            sum += lt_f64_exp(get_element(x, m * classes + k) - get_element(most, m));
        set_element(both, m, sum);
        set_element(both, rows + m,
                    own >= 0 && own < classes
                        ? get_element(x, m * classes + own) - get_element(most, m)
                        : 0);
    }
    return lt_collective_run(c->row,
                             &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE, .out = *both});
}

/* Computes the number of rows in the mean loss, its divisor; 1 if no label counts, as the sum is then 0. */
static lt_status count_mean_rows(const lt_node *node, const lt_view *labels, const lt_view *count)
{
    const lt_sharded_xent_config *c = node->config;
    lt_process_group *const group[] = {c->column, c->depth};
    double rows = 0;
    for (int64_t m = 0; m < labels->shape.dim[0]; m++)
        rows += row_label(labels, m) != LT_IGNORED_LABEL;
    set_element(count, 0, c->rows ? (double)c->rows : rows);
    for (int g = 0; g < 2 && !c->rows; g++)
        if (group[g])
            LT_TRY(lt_collective_run(
                group[g], &(lt_collective_call){.what = LT_COLLECTIVE_ALLREDUCE, .out = *count}));
    set_element(count, 0, fmax(get_element(count, 0), 1));
    return LT_OK;
}

static lt_status forward(lt_node *node)
{
    lt_view in, x, labels, y, log_sum, both, most, count;
    LT_TRY(lt_node_in(node, X, &in));
    LT_TRY(lt_op_as_contiguous(node, &in, &x));
    LT_TRY(lt_node_in(node, LABELS, &labels));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(check_labels(node, &labels));
    const int64_t rows = x.shape.dim[0];
    LT_TRY(lt_node_save(node, LOG_SUM, x.dtype, LT_SHAPE(rows), &log_sum));
    LT_TRY(lt_node_save(node, ROWS, x.dtype, LT_SHAPE(1), &count));
    LT_TRY(count_mean_rows(node, &labels, &count));
    LT_TRY(lt_node_scratch(node, x.dtype, LT_SHAPE(rows), &most));
    LT_TRY(lt_node_scratch(node, x.dtype, LT_SHAPE(2, rows), &both));
    LT_TRY(find_row_max(node, &x, &most));
    LT_TRY(compute_row_sums(node, &x, &labels, &most, &both));
    double loss = 0;
    for (int64_t m = 0; m < rows; m++) {
        const double log_of_sum = lt_f64_log(get_element(&both, m));
        set_element(&log_sum, m, log_of_sum + get_element(&most, m));
        if (row_label(&labels, m) != LT_IGNORED_LABEL)
            loss += log_of_sum - get_element(&both, rows + m);
    }
    set_element(&y, 0, loss / get_element(&count, 0));
    return LT_OK;
}

static lt_status backward(lt_node *node)
{
    lt_view in, x, labels, log_sum, dy, dx, count;
    LT_TRY(lt_node_in(node, X, &in));
    LT_TRY(lt_op_as_contiguous(node, &in, &x));
    LT_TRY(lt_node_in(node, LABELS, &labels));
    LT_TRY(lt_node_saved(node, LOG_SUM, &log_sum));
    LT_TRY(lt_node_saved(node, ROWS, &count));
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_node_grad_out(node, X, &dx));
    const double factor = get_element(&dy, 0) / get_element(&count, 0);
    const int64_t classes = x.shape.dim[1], first = first_class(node);
    for (int64_t m = 0; m < x.shape.dim[0]; m++) {
        const int64_t label = row_label(&labels, m);
        for (int64_t k = 0; k < classes; k++) {
            const double p =
                lt_f64_exp(get_element(&x, m * classes + k) - get_element(&log_sum, m));
            const double off = p - (label == first + k ? 1 : 0);
            set_element(&dx, m * classes + k, label == LT_IGNORED_LABEL ? 0 : factor * off);
        }
    }
    return LT_OK;
}

static const lt_op xent_op = {
    .name = "softmax_xent_sharded",
    .config_bytes = sizeof(lt_sharded_xent_config),
    .backward_ignores = LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_softmax_xent_sharded(lt_tape *tape, lt_tensor *x, lt_tensor *labels,
                                   lt_sharded_xent_config config)
{
    lt_tensor *loss = lt_op_run(tape, &xent_op, (lt_tensor *[]){x, labels}, 2, &config);
    if (config.column)
        loss = lt_group_allreduce(tape, loss, config.column);
    return config.depth ? lt_group_allreduce(tape, loss, config.depth) : loss;
}

/* --- Attention --- */

static lt_status check_attention(const lt_tensor *x, const lt_sharded_attention_config *c)
{
    char text[LT_SHAPE_TEXT];
    const int ranks = c->row->size;
    if (c->heads < 1 || c->heads % ranks)
        return lt_fail(LT_E_SHAPE,
                       "attention_sharded: %d heads are not divisible by %d ranks; use %d or %d",
                       c->heads, ranks, c->heads < ranks ? ranks : c->heads / ranks * ranks,
                       (c->heads / ranks + 1) * ranks);
    if (c->tokens < 1 || x->shape.ndim != 2 || x->shape.dim[0] % c->tokens)
        return lt_fail(LT_E_SHAPE, "attention_sharded: x %s, want a multiple of %lld rows",
                       lt_shape_text(x->shape, text), (long long)c->tokens);
    return LT_OK;
}

lt_tensor *lt_attention_sharded(lt_tape *tape, lt_tensor *x, lt_sharded_attention_config config)
{
    lt_status st = x ? check_attention(x, &config) : LT_OK;
    if (st)
        return lt_tape_fail(tape, st);
    if (!x)
        return NULL;
    const int64_t rows = x->shape.dim[0], width = x->shape.dim[1];
    lt_tensor *y = lt_reshape(tape, x, LT_SHAPE(rows / config.tokens, config.tokens, width));
    y = lt_attention(
        tape, y, NULL, NULL,
        (lt_attention_config){.heads = config.heads / config.row->size, .causal = config.causal});
    return lt_reshape(tape, y, LT_SHAPE(rows, -1));
}
