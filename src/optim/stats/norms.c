/* Norms and inner products, in double, by rows of dimension 0. */

#include "norms.h"

#include "base/alloc.h"
#include "base/parallel.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/ext/elements.h"

#include <string.h>

/* Elements of a row that are converted to double at a time, and about those of a chunk of rows. */
enum { PART = 256, CHUNK = 1 << 15 };

lt_status lt_host_tensor_open(lt_host_tensor *out, const lt_tensor *from)
{
    *out = (lt_host_tensor){0};
    if (!from)
        return LT_OK;
    out->view = lt_tensor_view(from);
    if (lt_tensor_device(from)->backend->host_memory)
        return lt_device_sync(lt_tensor_device(from));
    const size_t bytes = lt_tensor_bytes(from);
    out->copy = lt_alloc(1, bytes);
    if (!out->copy)
        return LT_E_NOMEM;
    out->view.data = out->copy;
    lt_format_strides(out->view.shape, LT_FORMAT_CONTIGUOUS, out->view.stride);
    return lt_tensor_read(from, out->copy, bytes);
}

void lt_host_tensor_close(lt_host_tensor *t)
{
    lt_free(t->copy);
    *t = (lt_host_tensor){0};
}

/* A region of each tensor. */
typedef struct region {
    lt_view view[LT_STAT_TENSORS]; /* data NULL: absent */
    int64_t elements;              /* number in a row */
    double *row; /* [rows, ROW]: sums of a row, and whether g has an element that is not 0 */
} region;
enum { ROW = LT_SUMS + 1 };

/* Returns the view of a region, with as few dimensions as its elements allow in the same order. */
static lt_view region_of(lt_view v, lt_shape offset, lt_shape extent)
{
    int64_t first = 0;
    for (int d = 0; d < extent.ndim; d++)
        first += offset.dim[d] * v.stride[d];
    v.data = v.data ? (char *)v.data + (size_t)first * lt_dtype_size(v.dtype) : NULL;
    v.shape = extent;
    for (int d = extent.ndim - 2; d >= 0 && v.stride[d] == v.stride[d + 1] * v.shape.dim[d + 1];
         d--) {
        v.shape.ndim = d + 1;
        v.shape.dim[d] *= v.shape.dim[d + 1];
        v.stride[d] = v.stride[d + 1];
    }
    return v;
}

static void add_part(double part[LT_STAT_TENSORS][PART], bool has_last, int64_t count, double *row)
{
    for (int64_t i = 0; i < count; i++) {
        const double w = part[LT_STAT_BEFORE][i], g = part[LT_STAT_GRAD][i];
        const double u = part[LT_STAT_AFTER][i] - w;
        const double v = has_last ? w - part[LT_STAT_LAST][i] : 0;
        row[LT_SUM_WW] += w * w;
        row[LT_SUM_GG] += g * g;
        row[LT_SUM_UU] += u * u;
        row[LT_SUM_UG] += u * g;
        row[LT_SUM_UV] += u * v;
        row[LT_SUM_VV] += v * v;
        row[LT_SUMS] = g < 0 || g > 0 ? 1 : row[LT_SUMS];
    }
}

static void add_row(const region *r, int64_t i, double *row)
{
    double part[LT_STAT_TENSORS][PART];
    for (int64_t done = 0; done < r->elements; done += PART) {
        const int64_t rest = r->elements - done, count = rest < PART ? rest : PART;
        for (int t = 0; t < LT_STAT_TENSORS; t++)
            if (r->view[t].data)
                lt_view_read(&r->view[t], i * r->elements + done, count, part[t]);
            else
                memset(part[t], 0, (size_t)count * sizeof *part[t]);
        add_part(part, r->view[LT_STAT_LAST].data != NULL, count, row);
    }
}

static void add_rows(void *context, int64_t begin, int64_t end)
{
    const region *r = context;
    for (int64_t i = begin; i < end; i++)
        add_row(r, i, r->row + i * ROW);
}

lt_status lt_stats_sum_region(const lt_host_tensor tensor[LT_STAT_TENSORS], lt_shape offset,
                              lt_shape extent, double sum[LT_SUMS], double *nonzero)
{
    const int64_t rows = extent.ndim ? extent.dim[0] : 1, all = lt_shape_count(extent);
    region r = {.elements = all / rows, .row = lt_alloc((size_t)rows * ROW, sizeof(double))};
    if (!r.row)
        return LT_E_NOMEM;
    for (int t = 0; t < LT_STAT_TENSORS; t++)
        r.view[t] = region_of(tensor[t].view, offset, extent);
    const int64_t grain = CHUNK * rows / all;
    lt_parallel_range(rows, grain > 0 ? grain : 1, add_rows, &r);
    for (int k = 0; k < LT_SUMS; k++)
        sum[k] = 0;
    for (int64_t i = 0; i < rows; i++) {
        for (int k = 0; k < LT_SUMS; k++)
            sum[k] += r.row[i * ROW + k];
        if (nonzero)
            nonzero[(extent.ndim ? offset.dim[0] : 0) + i] += r.row[i * ROW + LT_SUMS];
    }
    lt_free(r.row);
    return LT_OK;
}
