/* Convolution and its gradients, group by group and tap by tap: for each tap a product of pixels and
 * filters, the innermost loop over channels. */

#include "dnn.h"
#include "loops.h"

namespace dnn
{
namespace
{

enum { N, C, H, W };

struct geometry {
    int64_t pad[2], stride[2], dilation[2], groups, channels, filters; /* per group */
};

geometry geometry_of(const body &op, const array &x, const array &w)
{
    const body &c = *refers(op, names_of(op.type).conv);
    geometry g = {};
    for (int i = 0; i < 2; i++) {
        g.pad[i] = numbers(c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[i];
        g.stride[i] = numbers(c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[i];
        g.dilation[i] = numbers(c, CUDNN_ATTR_CONVOLUTION_DILATIONS)[i];
    }
    g.channels = w.dim[C];
    g.groups = x.dim[C] / w.dim[C];
    g.filters = w.dim[N] / g.groups;
    return g;
}

/* Returns the output rows or columns first..last whose filter tap lies inside the image. */
struct span {
    int64_t first, last, from; /* from: what first reads */
};
span meet(int64_t tap, int64_t in, int64_t out, const geometry &g, int axis)
{
    const int64_t shift = tap * g.dilation[axis] - g.pad[axis], s = g.stride[axis];
    span r = {0, out, 0};
    if (shift < 0)
        r.first = (-shift + s - 1) / s;
    r.last = in - shift <= 0 ? 0 : (in - shift + s - 1) / s;
    if (r.last > out)
        r.last = out;
    r.from = r.first * s + shift;
    return r;
}

/* One row of the result, one tap: x and y at their first pixels, w at the tap. */
struct step {
    const geometry *g;
    int64_t pixels, taps; /* taps: of a filter */
    bool backwards;
};

void forward(const step &t, const array &x, const array &y, const float *xp, const float *w,
             float *yp)
{
    const geometry &g = *t.g;
    loop_product(t.pixels, g.filters, g.channels, xp, {g.stride[1] * x.dim[C], 1}, w, g.filters, yp,
                 y.dim[C], t.backwards);
}

void gradient_x(const step &t, const array &x, const array &y, float *xp, const float *w,
                const float *yp)
{
    const geometry &g = *t.g;
    loop_product(t.pixels, g.channels, g.filters, yp, {y.dim[C], 1}, w, t.taps * g.channels, xp,
                 g.stride[1] * x.dim[C], t.backwards);
}

void gradient_w(const step &t, const array &x, const array &y, const float *xp, float *w,
                const float *yp)
{
    const geometry &g = *t.g;
    loop_product(g.filters, g.channels, t.pixels, yp, {1, y.dim[C]}, xp, g.stride[1] * x.dim[C], w,
                 t.taps * g.channels, t.backwards);
}

/* The filters of a group with the filters' number innermost: [taps][channels][filters]. */
std::vector<float> turned(const array &w, const geometry &g, int64_t group)
{
    const int64_t taps = w.dim[H] * w.dim[W];
    std::vector<float> t((size_t)(taps * g.channels * g.filters));
    for (int64_t k = 0; k < g.filters; k++)
        for (int64_t i = 0; i < taps * g.channels; i++)
            t[(size_t)(i * g.filters + k)] =
                w.x[(size_t)((group * g.filters + k) * taps * g.channels + i)];
    return t;
}

struct operands {
    array &x, &w, &y;
};

void one_group(cudnnBackendDescriptorType_t kind, const geometry &g, int64_t group,
               const operands &o, bool backwards)
{
    const bool is_forward = kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
    const bool for_x = kind == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const int64_t taps = o.w.dim[H] * o.w.dim[W];
    const std::vector<float> filters = is_forward ? turned(o.w, g, group) : std::vector<float>{};
    float *const mine = o.w.x.data() + group * g.filters * taps * g.channels;
    for (int64_t i = 0; i < o.x.dim[N]; i++)
        for (int64_t k = 0; k < taps; k++) {
            const int64_t n = backwards ? o.x.dim[N] - 1 - i : i;
            const int64_t tap = backwards ? taps - 1 - k : k;
            const span rows = meet(tap / o.w.dim[W], o.x.dim[H], o.y.dim[H], g, 0);
            const span columns = meet(tap % o.w.dim[W], o.x.dim[W], o.y.dim[W], g, 1);
            const step t = {&g, columns.last - columns.first, taps, backwards};
            for (int64_t r = 0; r < rows.last - rows.first && t.pixels > 0; r++) {
                const int64_t h = backwards ? rows.last - 1 - r : rows.first + r;
                float *x = o.x.row(n, rows.from + (h - rows.first) * g.stride[0], columns.from)
                           + group * g.channels;
                float *y = o.y.row(n, h, columns.first) + group * g.filters;
                if (is_forward)
                    forward(t, o.x, o.y, x, &filters[(size_t)(tap * g.channels * g.filters)], y);
                else if (for_x)
                    gradient_x(t, o.x, o.y, x, mine + tap * g.channels, y);
                else
                    gradient_w(t, o.x, o.y, x, mine + tap * g.channels, y);
            }
        }
}

} /* namespace */

void convolve(const operation &o, std::vector<array> &arrays, bool backwards)
{
    const body &op = *o.what;
    const conv_names &names = names_of(op.type);
    const operands all = {arrays[o.role.at(names.x)], arrays[o.role.at(names.w)],
                          arrays[o.role.at(names.y)]};
    const geometry g = geometry_of(op, all.x, all.w);
    const float alpha = get(op, names.alpha, 1.0F);
    array &out = arrays[o.out[0]];
    for (int64_t group = 0; group < g.groups; group++)
        one_group(op.type, g, group, all, backwards);
    for (float &v : out.x)
        v *= alpha;
}

} /* namespace dnn */
