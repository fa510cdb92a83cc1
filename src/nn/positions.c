/* Learned positions of rows, and their interpolation for images of another size. */

#include "nn/layer.h"

#include "lather/embedding_layers.h"
#include "lather/ext/op.h"
#include "lather/ops.h"

#include <math.h>

typedef struct positions {
    lt_weight_bias base;
    int rows;
    bool batched;
    const lt_tensor_parallel *parallel;
} positions;

/* Slices positions first to first + rows: [rows,width], or [1,rows,width]. */
static lt_tensor *slice_positions(positions *l, lt_tape *tape, int64_t first, int64_t rows)
{
    if (first < 0 || first + rows > l->rows)
        return lt_tape_fail(tape, lt_fail(LT_E_SHAPE,
                                          "positions %s: a sequence of %lld from position %lld "
                                          "exceeds %d",
                                          l->base.weight.name, (long long)rows, (long long)first,
                                          l->rows));
    lt_tensor *w = lt_parallel_param(tape, &l->base.weight, l->parallel);
    return rows && rows < l->rows ? lt_slice(tape, w, l->batched ? 1 : 0, first, rows) : w;
}

lt_tensor *lt_positions_forward(lt_module *self, lt_tape *tape, lt_tensor *x, int64_t first)
{
    positions *l = (positions *)self;
    lt_shape s = x ? lt_tensor_shape(x) : LT_SCALAR;
    return lt_add(tape, x, slice_positions(l, tape, first, s.ndim == 3 ? s.dim[1] : 0));
}

lt_tensor *lt_positions_forward_rows(lt_module *self, lt_tape *tape, lt_tensor *x,
                                     lt_token_rows rows)
{
    positions *l = (positions *)self;
    lt_tensor *w = slice_positions(l, tape, 0, rows.tokens);
    if (!x || !w)
        return NULL;
    const lt_shape s = lt_tensor_shape(w);
    const int64_t samples = lt_parallel_local_samples(l->parallel, rows).count;
    const int64_t before = lt_tape_op_counter(tape);
    lt_tensor *all = lt_expand(tape, w, LT_SHAPE(samples, rows.tokens, s.dim[s.ndim - 1]));
    lt_tensor *own = lt_parallel_slice_rows(tape, all, l->parallel, rows);
    lt_tape_drop(tape, all);
    lt_tape_set_op_counter(tape, before);
    lt_tensor *y = lt_add(tape, x, own);
    lt_tape_drop(tape, own);
    return y;
}

static lt_tensor *forward_positions(lt_module *self, lt_tape *tape, lt_tensor *x)
{
    return lt_positions_forward(self, tape, x, 0);
}

static const lt_module_ops positions_ops = {
    .kind = "positions",
    .bytes = sizeof(positions),
    .forward = forward_positions,
    .params = lt_weight_bias_params,
    .destroy = lt_weight_bias_destroy,
};

lt_status lt_layer_positions(lt_module **out, lt_device *device, const char *name,
                             lt_positions_layer config)
{
    const int t = config.rows, c = config.width;
    if (t < 1 || c < 1)
        return lt_fail(LT_E_ARG, "positions %s: %d rows, width %d; both must be >= 1", name, t, c);
    lt_module *m = NULL;
    LT_TRY(lt_module_new(&m, &positions_ops));
    positions *l = (positions *)m;
    l->rows = t;
    l->batched = config.batched;
    l->parallel = config.parallel;
    const lt_shape shape = config.batched ? LT_SHAPE(1, t, c) : LT_SHAPE(t, c);
    const lt_shard_spec spec =
        lt_parallel_shard_spec_features(config.parallel, shape, shape.ndim - 1);
    lt_status st =
        lt_layer_init_sharded(&l->base.weight, device, name, config.leaf ? config.leaf : "weight",
                              &spec, 0, LT_PARAM_WEIGHT);
    l->base.weight.fan_in = l->base.weight.fan_out = 0; /* a table */
    return lt_layer_finish_construction(out, m, st);
}

enum { TAPS = 4 };

typedef struct cubic {
    int at[TAPS];
    double weight[TAPS];
} cubic;

/* Returns the taps of output i of `want` among `side` values, with aligned corners. */
static cubic cubic_taps(int i, int side, int want)
{
    const double a = -0.75, at = want > 1 ? (double)i * (side - 1) / (want - 1) : 0;
    cubic c;
    for (int k = 0; k < TAPS; k++) {
        const int index = (int)floor(at) + k - 1;
        const double d = fabs(at - index);
        c.at[k] = index < 0 ? 0 : index >= side ? side - 1 : index;
        c.weight[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                             : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
    return c;
}

void lt_positions_resize(const double *from, int side, double *to, int want, int64_t width)
{
    for (int i = 0; i < want * want; i++) {
        const cubic y = cubic_taps(i / want, side, want), x = cubic_taps(i % want, side, want);
        for (int64_t c = 0; c < width; c++) {
            double sum = 0;
            for (int k = 0; k < TAPS * TAPS; k++)
                sum += y.weight[k / TAPS] * x.weight[k % TAPS]
                       * from[((int64_t)y.at[k / TAPS] * side + x.at[k % TAPS]) * width + c];
            to[i * width + c] = sum;
        }
    }
}
