/* Redistribution of a tensor from one placement along an axis to another. Collectives use a flat buffer of the ranks'
 * concatenated shards, filled by copies between strided views. */

#include "base/alloc.h"
#include "dist/comm/comm.h"
#include "dist/mesh/mesh.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"

typedef struct move {
    lt_comm *comm;
    lt_device *device;
    const lt_backend *be;
    lt_dtype dtype;
    int rank, size;
    lt_shape whole;
} move;

/* Returns the shape of rank's shard along a dimension; of the whole tensor if dim is -1. */
static lt_shape shard_shape(const move *m, int dim, int rank)
{
    lt_shape s = m->whole;
    if (dim >= 0 && dim < s.ndim)
        s.dim[dim] = lt_even_shard_size(s.dim[dim], m->size, rank);
    return s;
}

/* Returns a view of rank's shard along dim, from a view of the whole dimension. */
static lt_view shard_view(const move *m, lt_view v, int dim, int rank)
{
    const int64_t first = lt_even_shard_offset(v.shape.dim[dim], m->size, rank);
    v.data = (char *)v.data + first * v.stride[dim] * (int64_t)lt_dtype_size(v.dtype);
    v.shape.dim[dim] = lt_even_shard_size(v.shape.dim[dim], m->size, rank);
    return v;
}

/* Returns a view with the given shape of a flat buffer, beginning at element first. */
static lt_view view_of_flat(const lt_tensor *flat, int64_t first, lt_shape shape)
{
    lt_view v = lt_tensor_view(flat);
    v.data = (char *)v.data + first * (int64_t)lt_dtype_size(v.dtype);
    v.shape = shape;
    lt_row_major_strides(shape, v.stride);
    return v;
}

static int shard_dim(lt_placement p)
{
    return p.kind == LT_PLACE_SHARD ? p.dim : -1;
}

/* --- Data movement --- */

static lt_status copy_between_views(const move *m, lt_view from, lt_view to)
{
    return m->be->cast(m->device->ctx, &from, &to);
}

/* Copies between a flat buffer of the shards along dim, in rank order, and a view of the whole. */
static lt_status pack_shards(const move *m, const lt_tensor *flat, lt_view all, int dim,
                             bool unpack)
{
    int64_t at = 0;
    for (int r = 0; r < m->size; r++) {
        const lt_view shard = shard_view(m, all, dim, r),
                      slot = view_of_flat(flat, at, shard.shape);
        LT_TRY(unpack ? copy_between_views(m, slot, shard) : copy_between_views(m, shard, slot));
        at += lt_shape_count(shard.shape);
    }
    return LT_OK;
}

static lt_status gather_shards(const move *m, const lt_tensor *in, int dim, const lt_tensor *out,
                               const int64_t *count, lt_tensor *flat)
{
    LT_TRY(lt_comm_allgather(m->comm, in, flat, count));
    return pack_shards(m, flat, lt_tensor_view(out), dim, true);
}

static lt_status reduce_to_shards(const move *m, const lt_tensor *in, lt_tensor *out, int dim,
                                  const int64_t *count, const lt_tensor *flat)
{
    LT_TRY(pack_shards(m, flat, lt_tensor_view(in), dim, false));
    return lt_comm_reducescatter(m->comm, flat, out, count, LT_REDUCE_SUM);
}

/* Gathers the shards along dim of `in`, or reduces to shards along dim of `out`, through a flat buffer. */
static lt_status gather_or_reduce(const move *m, const lt_tensor *in, lt_tensor *out, int dim,
                                  bool gathers)
{
    lt_tensor *flat = NULL;
    int64_t *count = NULL;
    LT_TRY(LT_ALLOC(&count, m->size));
    for (int r = 0; r < m->size; r++)
        count[r] = lt_shape_count(shard_shape(m, dim, r));
    lt_status st = lt_tensor_new(&flat, m->device, m->dtype, LT_SHAPE(lt_shape_count(m->whole)));
    if (!st)
        st = gathers ? gather_shards(m, in, dim, out, count, flat)
                     : reduce_to_shards(m, in, out, dim, count, flat);
    lt_free(count);
    lt_tensor_free(&flat);
    return st;
}

/* All-to-all from shards along a to shards along b. */
static lt_status alltoall_shards(const move *m, const lt_tensor *in, int a, const lt_tensor *out,
                                 int b, int64_t *sent, int64_t *received)
{
    lt_tensor *from = NULL, *to = NULL;
    lt_request *request;
    for (int r = 0; r < m->size; r++) {
        lt_shape s = shard_shape(m, a, m->rank), t = shard_shape(m, b, m->rank);
        s.dim[b] = lt_even_shard_size(s.dim[b], m->size, r);
        t.dim[a] = lt_even_shard_size(t.dim[a], m->size, r);
        sent[r] = lt_shape_count(s);
        received[r] = lt_shape_count(t);
    }
    lt_status st = lt_tensor_new(&from, m->device, m->dtype, LT_SHAPE(lt_tensor_count(in)));
    if (!st)
        st = lt_tensor_new(&to, m->device, m->dtype, LT_SHAPE(lt_tensor_count(out)));
    if (!st)
        st = pack_shards(m, from, lt_tensor_view(in), b, false);
    if (!st)
        st = lt_comm_alltoall_begin(m->comm, from, to, sent, received, &request);
    if (!st)
        st = lt_request_wait(&request);
    if (!st)
        st = pack_shards(m, to, lt_tensor_view(out), a, true);
    lt_tensor_free(&from);
    lt_tensor_free(&to);
    return st;
}

static lt_status shard_to_shard(const move *m, const lt_tensor *in, int a, lt_tensor *out, int b)
{
    if (a == b)
        return lt_tensor_copy(out, in);
    int64_t *count = NULL;
    LT_TRY(LT_ALLOC(&count, 2 * (size_t)m->size));
    lt_status st = alltoall_shards(m, in, a, out, b, count, count + m->size);
    lt_free(count);
    return st;
}

/* Makes partial sums: rank 0 gets a replicated tensor, other ranks zeros; each rank keeps its shard of a sharded one. */
static lt_status make_partial(const move *m, const lt_tensor *in, lt_placement from, lt_tensor *out)
{
    if (from.kind == LT_PLACE_REPLICATE && m->rank == 0)
        return lt_tensor_copy(out, in);
    LT_TRY(lt_tensor_fill(out, 0));
    if (from.kind == LT_PLACE_REPLICATE)
        return LT_OK;
    return copy_between_views(m, lt_tensor_view(in),
                              shard_view(m, lt_tensor_view(out), from.dim, m->rank));
}

static lt_status sum_partials(const move *m, const lt_tensor *in, lt_tensor *out)
{
    LT_TRY(lt_tensor_copy(out, in));
    return lt_comm_allreduce(m->comm, out, LT_REDUCE_SUM);
}

static lt_status move_tensor(const move *m, const lt_tensor *in, lt_placement from, lt_tensor *out,
                             lt_placement to)
{
    const bool partial = from.kind == LT_PLACE_PARTIAL;
    if (from.kind == to.kind)
        return from.kind == LT_PLACE_SHARD ? shard_to_shard(m, in, from.dim, out, to.dim)
                                           : lt_tensor_copy(out, in);
    if (to.kind == LT_PLACE_PARTIAL)
        return make_partial(m, in, from, out);
    if (from.kind == LT_PLACE_SHARD)
        return gather_or_reduce(m, in, out, from.dim, true);
    if (to.kind == LT_PLACE_SHARD && partial)
        return gather_or_reduce(m, in, out, to.dim, false);
    if (partial)
        return sum_partials(m, in, out);
    return copy_between_views(m, shard_view(m, lt_tensor_view(in), to.dim, m->rank),
                              lt_tensor_view(out));
}

/* --- Checks --- */

static lt_status check_placement(const move *m, lt_placement p)
{
    char text[LT_SHAPE_TEXT];
    if (p.kind != LT_PLACE_SHARD)
        return LT_OK;
    if (p.dim < 0 || p.dim >= m->whole.ndim)
        return lt_fail(LT_E_ARG, "redistribute: dimension %d of %s is out of range", p.dim,
                       lt_shape_text(m->whole, text));
    if (m->whole.dim[p.dim] < m->size)
        return lt_fail(LT_E_SHAPE, "redistribute: dimension %d of %s is smaller than the %d ranks",
                       p.dim, lt_shape_text(m->whole, text), m->size);
    return LT_OK;
}

static lt_status shard_error(const move *m, lt_shape x, lt_shape y)
{
    char a[LT_SHAPE_TEXT], b[LT_SHAPE_TEXT];
    return lt_fail(LT_E_SHAPE, "redistribute: %s and %s are not shards of one tensor on %d ranks",
                   lt_shape_text(x, a), lt_shape_text(y, b), m->size);
}

/* Finds the whole shape: the dimension that `in` shards is whole in `out`, unless both shard it, when nothing moves. */
static lt_status find_whole_shape(move *m, lt_shape x, lt_placement from, lt_shape y,
                                  lt_placement to)
{
    const int dim = shard_dim(from);
    m->whole = x;
    if (from.kind == LT_PLACE_SHARD && dim == shard_dim(to))
        return lt_shape_equal(x, y) ? LT_OK : shard_error(m, x, y);
    if (x.ndim == y.ndim && dim >= 0 && dim < x.ndim)
        m->whole.dim[dim] = y.dim[dim];
    LT_TRY(check_placement(m, from));
    LT_TRY(check_placement(m, to));
    if (!lt_shape_equal(x, shard_shape(m, dim, m->rank))
        || !lt_shape_equal(y, shard_shape(m, shard_dim(to), m->rank)))
        return shard_error(m, x, y);
    return LT_OK;
}

lt_status lt_redistribute(lt_mesh *mesh, lt_mesh_axis axis, const lt_tensor *in, lt_placement from,
                          lt_tensor *out, lt_placement to)
{
    const lt_view x = lt_tensor_view(in), y = lt_tensor_view(out);
    const lt_process_group *group = &mesh->axis[axis].base;
    move m = {.comm = mesh->axis[axis].comm,
              .device = in->device,
              .be = in->device->backend,
              .dtype = x.dtype,
              .rank = group->rank,
              .size = group->size};
    if (!x.data || !y.data || x.data == y.data || x.dtype != y.dtype || !lt_view_is_contiguous(&x)
        || !lt_view_is_contiguous(&y))
        return lt_fail(LT_E_ARG,
                       "redistribute: from %s to %s, want row-major tensors of equal dtype in "
                       "different memory",
                       lt_dtype_name(x.dtype), lt_dtype_name(y.dtype));
    LT_TRY(find_whole_shape(&m, x.shape, from, y.shape, to));
    LT_TRY(move_tensor(&m, in, from, out, to));
    lt_tensor_bump_version(out);
    return LT_OK;
}
