/* Losses of class indices from log-probabilities, and losses composed of other operations. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/arithmetic.h"
#include "lather/ops/class_losses.h"
#include "lather/ops/elementwise.h"
#include "lather/ops/math.h"
#include "lather/ops/reduce.h"
#include "lather/ops/shape.h"

static const lt_reduce_config LAST_OF_TWO = {.dims = 2};

/* --- label_weights: weight of each label's class, or 1; 0 for LT_IGNORED_LABEL. Has no gradient. --- */

enum { LABELS, WEIGHT }; /* inputs; weight may be NULL */

static lt_status infer_label_weights(const lt_node *node, lt_desc *out)
{
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(node->tape));
    *out = (lt_desc){master, node->in[LABELS]->shape, LT_FORMAT_CONTIGUOUS};
    return LT_OK;
}

/* Views elements as a column [1,n,1] whose stride is that of dimension 0, or 0 if one is repeated. */
static lt_view as_column(const lt_view *v, int64_t n)
{
    lt_view column = {.data = v->data, .dtype = v->dtype, .shape = LT_SHAPE(1, n, 1)};
    column.stride[1] = v->shape.ndim ? v->stride[0] : 0;
    return column;
}

static lt_status forward_label_weights(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    const int64_t classes = *(const int64_t *)node->config;
    lt_view labels, weight, y;
    LT_TRY(lt_node_in(node, LABELS, &labels));
    LT_TRY(lt_node_out(node, &y));
    if (node->in[WEIGHT]) {
        LT_TRY(lt_node_in(node, WEIGHT, &weight));
    } else {
        LT_TRY(lt_node_scratch(node, y.dtype, LT_SCALAR, &weight));
        LT_TRY(be->fill(ctx, 1, &weight));
    }
    const lt_view table = as_column(&weight, classes), out = as_column(&y, y.shape.dim[0]);
    const lt_index index = {"labels of the loss", as_column(&labels, y.shape.dim[0]), true};
    return be->gather_by_index(ctx, &index, &table, &out);
}

const lt_op lt_op_label_weights = {
    .name = "label_weights",
    .config_bytes = sizeof(int64_t),
    .infer = infer_label_weights,
    .forward = forward_label_weights,
};

static lt_tensor *weights_of(lt_tape *tape, lt_tensor *labels, lt_tensor *weight, int64_t classes)
{
    return lt_op_run(tape, &lt_op_label_weights, (lt_tensor *[]){labels, weight}, 2, &classes);
}

/* --- nll_loss and cross_entropy --- */

static lt_status check_classes(const char *name, const lt_tensor *x, const lt_tensor *labels,
                               const lt_tensor *weight, lt_cross_entropy_config c)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    lt_shape rows = x->shape;
    rows.ndim -= rows.ndim > 0;
    if (x->shape.ndim < 1 || !labels || labels->dtype != LT_I32
        || !lt_shape_equal(labels->shape, rows))
        return lt_fail(LT_E_SHAPE, "%s: labels %s %s for x %s, want i32 [..] for [..,K]", name,
                       labels ? lt_dtype_name(labels->dtype) : "NULL",
                       labels ? lt_shape_text(labels->shape, a) : "", lt_shape_text(x->shape, b));
    const int64_t classes = x->shape.dim[rows.ndim];
    if (weight && (weight->shape.ndim != 1 || weight->shape.dim[0] != classes))
        return lt_fail(LT_E_SHAPE, "%s: weight %s for %lld classes, want [%lld]", name,
                       lt_shape_text(weight->shape, a), (long long)classes, (long long)classes);
    if (!(c.smoothing >= 0 && c.smoothing <= 1) || (unsigned)c.reduction > LT_LOSS_NONE)
        return lt_fail(LT_E_ARG, "%s: smoothing %g and reduction %d, want 0..1 and 0..%d", name,
                       c.smoothing, (int)c.reduction, (int)LT_LOSS_NONE);
    return LT_OK;
}

/* Losses [N] of log-probabilities x [N,K], multiplied with their labels' weights. */
static lt_tensor *losses_of_rows(lt_tape *tape, lt_tensor *x, lt_tensor *labels, lt_tensor *weight,
                                 lt_tensor *factors, double smoothing)
{
    const int64_t rows = x->shape.dim[0], classes = x->shape.dim[1];
    lt_tensor *picked = lt_op_gather_labels(tape, x, lt_reshape(tape, labels, LT_SHAPE(rows, 1)));
    lt_tensor *loss = lt_mul(tape, lt_reshape(tape, picked, LT_SHAPE(rows)), factors);
    loss = lt_scale(tape, loss, smoothing - 1);
    if (!(smoothing > 0))
        return loss;
    lt_tensor *all = lt_sum(tape, weight ? lt_mul(tape, x, weight) : x, LAST_OF_TWO);
    all = lt_mul(tape, all, weights_of(tape, labels, NULL, classes));
    return lt_add(tape, loss, lt_scale(tape, all, -smoothing / (double)classes));
}

static lt_tensor *run_nll(lt_tape *tape, lt_tensor *x, lt_tensor *labels, lt_tensor *weight,
                          lt_cross_entropy_config c)
{
    const lt_shape shape = labels->shape;
    const int64_t classes = x->shape.dim[x->shape.ndim - 1];
    const lt_reduce_config all = {.dims = 0};
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(tape));
    x = lt_reshape(tape, lt_cast(tape, x, master), LT_SHAPE(-1, classes));
    labels = lt_reshape(tape, labels, LT_SHAPE(lt_shape_count(shape)));
    weight = weight ? lt_cast(tape, weight, master) : NULL;
    if (!x || !labels)
        return NULL;
    lt_tensor *factors = weights_of(tape, labels, weight, classes);
    lt_tensor *loss = losses_of_rows(tape, x, labels, weight, factors, c.smoothing);
    if (c.reduction == LT_LOSS_NONE)
        return lt_reshape(tape, loss, shape);
    loss = lt_sum(tape, loss, all);
    return c.reduction == LT_LOSS_SUM ? loss : lt_div(tape, loss, lt_sum(tape, factors, all));
}

lt_tensor *lt_nll_loss(lt_tape *tape, lt_tensor *x, lt_tensor *labels, lt_tensor *weight,
                       lt_loss_reduction reduction)
{
    const lt_cross_entropy_config c = {.reduction = reduction};
    if (!x)
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "nll_loss: x is NULL"));
    const lt_status st = check_classes("nll_loss", x, labels, weight, c);
    return st ? lt_tape_fail(tape, st) : run_nll(tape, x, labels, weight, c);
}

lt_tensor *lt_cross_entropy(lt_tape *tape, lt_tensor *logits, lt_tensor *labels, lt_tensor *weight,
                            lt_cross_entropy_config c)
{
    if (!logits)
        return lt_tape_fail(tape, lt_fail(LT_E_ARG, "cross_entropy: logits is NULL"));
    const lt_status st = check_classes("cross_entropy", logits, labels, weight, c);
    if (st)
        return lt_tape_fail(tape, st);
    logits = lt_cast(tape, logits, lt_device_master_dtype(lt_tape_device(tape)));
    lt_tensor *x = lt_log_softmax(tape, logits, -1);
    return x ? run_nll(tape, x, labels, weight, c) : NULL;
}

/* --- losses of logits and distances --- */

static lt_tensor *reduce_loss(lt_tape *tape, const char *name, lt_tensor *each,
                              lt_loss_reduction reduction)
{
    const lt_reduce_config all = {.dims = 0};
    switch (reduction) {
    case LT_LOSS_MEAN:
        return lt_mean(tape, each, all);
    case LT_LOSS_SUM:
        return lt_sum(tape, each, all);
    case LT_LOSS_NONE:
        return each;
    }
    return lt_tape_fail(tape, lt_fail(LT_E_ARG, "%s: reduction %d, want 0 to %d", name,
                                      (int)reduction, (int)LT_LOSS_NONE));
}

/* Returns x plus a number. */
static lt_tensor *plus(lt_tape *tape, lt_tensor *x, double number)
{
    return lt_op_run(tape, &lt_op_shift, &x, 1, &number);
}

/* With p the weight of positive targets: the loss, and (p - 1) * target times the loss of target 1. */
lt_tensor *lt_bce_with_logits_weighted(lt_tape *tape, lt_tensor *logits, lt_tensor *target,
                                       lt_tensor *weight, lt_tensor *pos_weight,
                                       lt_loss_reduction reduction)
{
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(tape));
    lt_tensor *loss = lt_bce_with_logits(tape, logits, target, LT_LOSS_NONE);
    if (!loss)
        return NULL;
    target = lt_cast(tape, target, master);
    if (pos_weight) {
        lt_tensor *more = plus(tape, lt_cast(tape, pos_weight, master), -1);
        lt_tensor *ones = plus(tape, lt_scale(tape, target, 0), 1);
        lt_tensor *positive = lt_bce_with_logits(tape, logits, ones, LT_LOSS_NONE);
        loss = lt_add(tape, loss, lt_mul(tape, lt_mul(tape, target, more), positive));
    }
    if (weight)
        loss = lt_mul(tape, loss, lt_cast(tape, weight, master));
    return reduce_loss(tape, "bce_with_logits", loss, reduction);
}

lt_tensor *lt_sigmoid_focal_loss(lt_tape *tape, lt_tensor *logits, lt_tensor *target, double alpha,
                                 double gamma, lt_loss_reduction reduction)
{
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(tape));
    lt_tensor *loss = lt_bce_with_logits(tape, logits, target, LT_LOSS_NONE);
    if (!(gamma >= 0) || !(alpha <= 1))
        return lt_tape_fail(tape, lt_fail(LT_E_ARG,
                                          "sigmoid_focal_loss: alpha %g and gamma %g, want at most "
                                          "1 and at least 0",
                                          alpha, gamma));
    if (!loss)
        return NULL;
    target = lt_cast(tape, target, master);
    /* The probability of the wrong class, p + t - 2 p t. */
    lt_tensor *p = lt_sigmoid(tape, lt_cast(tape, logits, master));
    lt_tensor *both = lt_scale(tape, lt_mul(tape, p, target), -2);
    lt_tensor *wrong = lt_add(tape, lt_add(tape, p, target), both);
    loss = lt_mul(tape, loss, lt_pow(tape, wrong, gamma));
    if (alpha >= 0) /* alpha t + (1 - alpha) (1 - t) */
        loss = lt_mul(tape, loss, plus(tape, lt_scale(tape, target, 2 * alpha - 1), 1 - alpha));
    return reduce_loss(tape, "sigmoid_focal_loss", loss, reduction);
}

/* Distance of rows: |a - b + eps|, as PyTorch's pairwise_distance. */
static lt_tensor *distance(lt_tape *tape, lt_tensor *a, lt_tensor *b)
{
    const double eps = 1e-6;
    lt_tensor *d = plus(tape, lt_sub(tape, a, b), eps);
    return lt_sqrt(tape, lt_sum(tape, lt_mul(tape, d, d), LAST_OF_TWO));
}

lt_tensor *lt_triplet_margin_loss(lt_tape *tape, lt_tensor *const triplet[3], double margin,
                                  bool swap, lt_loss_reduction reduction)
{
    const lt_dtype master = lt_device_master_dtype(lt_tape_device(tape));
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    lt_tensor *x[3];
    for (int i = 0; i < 3; i++) {
        const lt_shape want = triplet[0] ? triplet[0]->shape : LT_SCALAR;
        if (!triplet[i] || want.ndim != 2 || !lt_shape_equal(triplet[i]->shape, want))
            return lt_tape_fail(tape,
                                lt_fail(LT_E_SHAPE,
                                        "triplet_margin_loss: anchor %s and input %d %s, want "
                                        "three of one shape [N,C]",
                                        lt_shape_text(want, a), i,
                                        triplet[i] ? lt_shape_text(triplet[i]->shape, b) : "NULL"));
        x[i] = lt_cast(tape, triplet[i], master);
    }
    lt_tensor *near = distance(tape, x[0], x[1]), *far = distance(tape, x[0], x[2]);
    if (swap)
        far = lt_minimum(tape, far, distance(tape, x[1], x[2]));
    return reduce_loss(tape, "triplet_margin_loss",
                       lt_relu(tape, plus(tape, lt_sub(tape, near, far), margin)), reduction);
}
