/* Norms and inner products, in double, by rows of dimension 0. */

#include "norms.h"

#include "base/alloc.h"
#include "base/parallel.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"

#include <string.h>

/* Elements of a vector that is converted to double at a time, and about those of a chunk of rows. */
enum { PART = 256, CHUNK = 1 << 15 };

lt_status lt_host_tensor_open(lt_host_tensor *out, const lt_tensor *from)
{
    *out = (lt_host_tensor){0};
    if (!from)
        return LT_OK;
    lt_device *device = lt_tensor_device(from);
    const lt_dtype dtype = lt_tensor_dtype(from);
    if (dtype != LT_F32 && dtype != LT_F64) {
        LT_TRY(lt_tensor_new_like(&out->converted, from, LT_F32));
        LT_TRY(lt_tensor_copy(out->converted, from));
        from = out->converted;
    }
    out->view = lt_tensor_view(from);
    if (device->backend->host_memory)
        return lt_device_sync(device);
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
    lt_tensor_free(&t->converted);
    lt_free(t->copy);
    *t = (lt_host_tensor){0};
}

/* Reads count elements from element `at` on. */
static void load_part(const lt_view *v, int64_t at, int64_t stride, int64_t count, double *to)
{
    const float *narrow = v->data;
    const double *wide = v->data;
    if (!v->data)
        memset(to, 0, (size_t)count * sizeof *to);
    else if (v->dtype == LT_F64)
        for (int64_t i = 0; i < count; i++)
            to[i] = wide[at + i * stride];
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (double)narrow[at + i * stride];
}

typedef struct region {
    const lt_host_tensor *tensor;
    lt_shape offset, extent;
    double
        *row; /* [rows, LT_SUMS + 1]: sums of a row, and whether g has an element that is not 0 */
} region;
enum { ROW = LT_SUMS + 1 };

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

/* Adds a vector along the last dimension. at: indices of its first element. */
static void add_vector(const region *r, const int64_t at[LT_MAX_DIMS], int64_t count, double *row)
{
    double part[LT_STAT_TENSORS][PART];
    const int last = r->extent.ndim - 1;
    for (int64_t done = 0; done < count; done += PART) {
        const int64_t some = count - done < PART ? count - done : PART;
        for (int t = 0; t < LT_STAT_TENSORS; t++) {
            const lt_view *v = &r->tensor[t].view;
            int64_t begin = last < 0 ? 0 : done * v->stride[last];
            for (int d = 0; d <= last; d++)
                begin += at[d] * v->stride[d];
            load_part(v, begin, last < 0 ? 1 : v->stride[last], some, part[t]);
        }
        add_part(part, r->tensor[LT_STAT_LAST].view.data != NULL, some, row);
    }
}

/* Adds the region's row i, all its vectors along the last dimension. */
static void add_row(const region *r, int64_t i, double *row)
{
    const int n = r->extent.ndim;
    int64_t at[LT_MAX_DIMS] = {0};
    for (int d = 0; d < n; d++)
        at[d] = r->offset.dim[d];
    if (n > 0)
        at[0] += i;
    for (bool more = true; more;) {
        add_vector(r, at, n > 1 ? r->extent.dim[n - 1] : 1, row);
        more = false;
        for (int d = n - 2; d > 0 && !more; d--) {
            more = ++at[d] < r->offset.dim[d] + r->extent.dim[d];
            at[d] = more ? at[d] : r->offset.dim[d];
        }
    }
}

static void add_rows(void *context, int64_t begin, int64_t end, int64_t chunk)
{
    (void)chunk;
    const region *r = context;
    for (int64_t i = begin; i < end; i++)
        add_row(r, i, r->row + i * ROW);
}

lt_status lt_stats_sum_region(const lt_host_tensor tensor[LT_STAT_TENSORS], lt_shape offset,
                              lt_shape extent, double sum[LT_SUMS], double *nonzero)
{
    const int64_t rows = extent.ndim ? extent.dim[0] : 1, all = lt_shape_count(extent);
    region r = {tensor, offset, extent, lt_alloc((size_t)rows * ROW, sizeof(double))};
    if (!r.row)
        return LT_E_NOMEM;
    const int64_t grain = CHUNK * rows / all;
    lt_parallel(rows, grain > 0 ? grain : 1, add_rows, &r);
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
