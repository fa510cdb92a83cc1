/* The convolution entries: built-in kernels where they are chosen, else oneDNN, else built-in kernels on f32 copies of
 * operands that they cannot read. Formula: lt_conv2d(). */

#include "conv_call.h"
#include "depthwise.h"
#include "direct_conv.h"
#include "row_taps.h"
#include "tensor/backend/cpu/memory_traffic.h"
#include "tensor/backend/cpu/operands.h"
#include "wgrad.h"
#include "winograd.h"

static lt_status add_bias(lt_cpu *cpu, const lt_conv_call *c)
{
    const int64_t channels = c->y->shape.dim[1];
    const lt_view pixels = {.data = c->y->data,
                            .dtype = LT_F32,
                            .shape = LT_SHAPE(1, lt_cpu_element_count(c->y) / channels, channels),
                            .stride = {0, channels, 1}};
    void *bias;
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_BIAS, c->b, LT_F32, &bias));
    lt_cpu_add_bias(cpu, &pixels, bias);
    return LT_OK;
}

/* Runs forward or the gradient of x by built-in kernels if they are chosen; sets *done. */
static lt_status run_chosen(lt_cpu *cpu, const lt_conv_call *c, bool *done)
{
    const bool backward = c->kind == LT_CONV_GRAD_X, bias = lt_cpu_has_data(c->b);
    const lt_direct_conv direct = {.config = c->config,
                                   .from = backward ? c->y : c->x,
                                   .w = c->w,
                                   .to = backward ? c->x : c->y,
                                   .backward = backward};
    if (bias && (c->y->dtype != LT_F32 || !lt_cpu_prefers_builtin(cpu)))
        return LT_OK;
    const bool winograd = lt_winograd_is_chosen(cpu, &direct);
    const bool depthwise = lt_cpu_prefers_builtin(cpu) && lt_depthwise_supports(c);
    *done = winograd || depthwise || lt_direct_conv_is_chosen(cpu, &direct);
    if (!*done)
        return LT_OK;
    cpu->last_conv = winograd ? "winograd" : depthwise ? "depthwise" : "direct";
    if (depthwise)
        LT_TRY(lt_depthwise_run(cpu, c));
    else
        LT_TRY(winograd ? lt_winograd_run(cpu, &direct) : lt_direct_conv_run(cpu, &direct));
    return bias ? add_bias(cpu, c) : LT_OK;
}

/* Computes the gradient of a weight by built-in kernels; other dtypes than f32 and bf16 are read as f32, and depthwise
 * ones too. */
static lt_status run_wgrad(lt_cpu *cpu, const lt_conv_call *c)
{
    const bool depthwise = lt_conv_is_depthwise(c->config, c->w);
    const bool is_bf16 = c->x->dtype == LT_BF16 && c->y->dtype == LT_BF16 && !depthwise;
    const lt_dtype dtype = is_bf16 ? LT_BF16 : LT_F32;
    const lt_wgrad_microkernel kernel = lt_wgrad_microkernel_for(cpu, dtype);
    void *x, *dw, *dy;
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_Y, c->y, dtype, &dy));
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_X, c->x, dtype, &x));
    LT_TRY(lt_cpu_get_output(cpu, LT_CPU_COPY_W, c->w, LT_F32, &dw));
    lt_view x_view = lt_cpu_dense_view(x, dtype, c->x->shape);
    lt_view dy_view = lt_cpu_dense_view(dy, dtype, c->y->shape);
    const lt_view dw_view = lt_cpu_dense_view(dw, LT_F32, c->w->shape);
    const lt_conv_call f32 = {c->kind, c->config, &x_view, &dw_view, NULL, &dy_view};
    cpu->last_conv = depthwise ? "depthwise" : "wgrad";
    if (depthwise && lt_depthwise_supports(&f32)) {
        LT_TRY(lt_depthwise_run(cpu, &f32));
        return lt_cpu_copy_back(cpu, c->w, LT_F32, dw);
    }
    lt_row_taps joined = {*c->config, x_view, *c->w};
    if (lt_row_taps_help(c->config, &x_view, c->w))
        LT_TRY(lt_row_taps_join(cpu, c->config, &x_view, c->w, c->y->shape, &joined));
    LT_TRY(lt_wgrad_run(cpu, &kernel, &joined.config, &joined.x, &dy_view, joined.w.shape, dw));
    return lt_cpu_copy_back(cpu, c->w, LT_F32, dw);
}

/* Runs the gradient of a weight by built-in kernels if they are chosen; sets *done. */
static lt_status run_chosen_grad_w(lt_cpu *cpu, const lt_conv_call *c, bool *done)
{
    const lt_winograd_grad grad = {c->config, c->x, c->y, c->w, NULL};
    if (lt_winograd_is_chosen_for_grad_w(cpu, &grad)) {
        *done = true;
        cpu->last_conv = "winograd";
        return lt_winograd_grad_w(cpu, &grad);
    }
    *done =
        c->y->dtype == c->x->dtype && lt_wgrad_is_chosen(cpu, c->config, c->x->dtype, c->w->shape);
    return *done ? run_wgrad(cpu, c) : LT_OK;
}

/* Runs forward or the gradient of x by built-in kernels on f32 copies: of 16-bit data for CPUs without such
 * instructions, and of other memory formats. */
static lt_status run_in_f32(lt_cpu *cpu, const lt_conv_call *c, bool *done)
{
    const bool backward = c->kind == LT_CONV_GRAD_X;
    const lt_view *to = backward ? c->x : c->y;
    void *x, *y, *w;
    lt_view rounded = *c->w;
    LT_TRY(lt_cpu_round_weight(cpu, c->x->dtype, &rounded));
    LT_TRY(lt_cpu_get_input(cpu, LT_CPU_COPY_W, &rounded, LT_F32, &w));
    LT_TRY((backward ? lt_cpu_get_output : lt_cpu_get_input)(cpu, LT_CPU_COPY_X, c->x, LT_F32, &x));
    LT_TRY((backward ? lt_cpu_get_input : lt_cpu_get_output)(cpu, LT_CPU_COPY_Y, c->y, LT_F32, &y));
    const lt_view x_view = lt_cpu_dense_view(x, LT_F32, c->x->shape),
                  y_view = lt_cpu_dense_view(y, LT_F32, c->y->shape),
                  w_view = lt_cpu_dense_view(w, LT_F32, c->w->shape);
    const lt_conv_call f32 = {c->kind, c->config, &x_view, &w_view, c->b, &y_view};
    LT_TRY(run_chosen(cpu, &f32, done));
    return *done ? lt_cpu_copy_back(cpu, to, LT_F32, backward ? x : y) : LT_OK;
}

/* Runs in the activations' dtype if the CPU supports it, else in f32. *done is false if neither works: the reference
 * backend has to. */
static lt_status run_conv(lt_cpu *cpu, const lt_conv_call *c, bool *done)
{
    const lt_dtype dtype = c->x->dtype;
    const bool grad_w = c->kind == LT_CONV_GRAD_W;
    const bool own_grad_w =
        grad_w && lt_cpu_is_fast_dtype(dtype) && c->y->dtype == dtype && c->config->groups == 1;
    *done = false;
    cpu->last_conv = "ref";
    if (dtype == LT_F64 || c->w->dtype == LT_F64)
        return LT_OK;
    LT_TRY(grad_w ? run_chosen_grad_w(cpu, c, done) : run_chosen(cpu, c, done));
    if (!*done)
        LT_TRY(lt_onednn_conv(cpu, c, dtype, done));
    if (!*done && !own_grad_w)
        LT_TRY(lt_onednn_conv(cpu, c, LT_F32, done));
    if (*done || !grad_w)
        return *done ? LT_OK : run_in_f32(cpu, c, done);
    *done = true;
    return run_wgrad(cpu, c);
}

lt_status lt_cpu_conv2d(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                        const lt_view *w, const lt_view *b, const lt_view *y)
{
    LT_CPU_COUNT_TRAFFIC(x, w, b, y);
    const lt_conv_call c = {LT_CONV, config, x, w, b, y};
    bool done;
    LT_TRY(run_conv(ctx, &c, &done));
    return done ? LT_OK : lt_backend_ref()->conv2d(ctx, config, x, w, b, y);
}

lt_status lt_cpu_conv2d_grad_x(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *w, const lt_view *dx)
{
    LT_CPU_COUNT_TRAFFIC(dy, w, dx);
    const lt_conv_call c = {LT_CONV_GRAD_X, config, dx, w, NULL, dy};
    bool done;
    LT_TRY(run_conv(ctx, &c, &done));
    return done ? LT_OK : lt_backend_ref()->conv2d_grad_x(ctx, config, dy, w, dx);
}

lt_status lt_cpu_conv2d_grad_w(void *ctx, const lt_conv2d_config *config, const lt_view *dy,
                               const lt_view *x, const lt_view *dw)
{
    LT_CPU_COUNT_TRAFFIC(dy, x, dw);
    const lt_conv_call c = {LT_CONV_GRAD_W, config, x, dw, NULL, dy};
    bool done;
    LT_TRY(run_conv(ctx, &c, &done));
    return done ? LT_OK : lt_backend_ref()->conv2d_grad_w(ctx, config, dy, x, dw);
}
