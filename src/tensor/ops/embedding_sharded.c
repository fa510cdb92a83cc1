/* Embedding in a table sharded by rows: rows of other ranks are zeros. Uses the kernels of lt_embedding(),
 * with other ranks' ids replaced by 0 and their rows cleared. */

#include "tensor/ops/ops.h"
#include "tensor/tape.h"

#include "lather/ops/embedding.h"

#include <string.h>

enum { IDS, W }; /* inputs */

static lt_status infer_shape(const lt_node *node, lt_desc *out)
{
    const lt_embedding_shard *p = node->config;
    LT_TRY(lt_op_embedding.infer(node, out));
    const int64_t rows = node->in[W]->shape.dim[0];
    if (p->first < 0 || p->first > p->count - rows)
        return lt_fail(LT_E_SHAPE,
                       "embedding_sharded: %lld rows from row %lld exceed the table's %lld",
                       (long long)rows, (long long)p->first, (long long)p->count);
    if (!node->in[IDS]->device->backend->host_memory)
        return lt_fail(LT_E_UNSUPPORTED,
                       "embedding_sharded: needs host memory, %s has device memory",
                       lt_device_name(node->in[IDS]->device));
    return LT_OK;
}

/* Returns the ids as indices into this rank's rows, 0 for others; own[n]: the id is this rank's. */
static lt_status get_local_ids(lt_node *node, lt_view *ids, lt_view *own)
{
    lt_view x, vector;
    const lt_embedding_shard *p = node->config;
    const int64_t rows = node->in[W]->shape.dim[0];
    LT_TRY(lt_node_in(node, IDS, &x));
    LT_TRY(lt_op_as_vector(node, &x, &vector));
    LT_TRY(lt_node_scratch(node, LT_I32, vector.shape, ids));
    LT_TRY(lt_node_scratch(node, LT_U8, vector.shape, own));
    for (int64_t n = 0; n < vector.shape.dim[0]; n++) {
        const int32_t id = ((const int32_t *)vector.data)[n * vector.stride[0]];
        if (id < 0 || id >= p->count)
            return lt_fail(LT_E_ARG, "embedding_sharded: id %d at position %lld, want 0..%lld", id,
                           (long long)n, (long long)p->count - 1);
        const bool is_own = id >= p->first && id < p->first + rows;
        ((int32_t *)ids->data)[n] = is_own ? id - (int32_t)p->first : 0;
        ((uint8_t *)own->data)[n] = is_own;
    }
    return LT_OK;
}

/* Clears the rows of a dense matrix that are not this rank's. */
static void clear_foreign_rows(const lt_view *rows, const lt_view *own)
{
    const size_t bytes = (size_t)rows->shape.dim[1] * lt_dtype_size(rows->dtype);
    for (int64_t n = 0; n < rows->shape.dim[0]; n++)
        if (!((const uint8_t *)own->data)[n])
            memset((char *)rows->data + (size_t)n * bytes, 0, bytes);
}

static lt_status forward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view ids, own, w, y, rows;
    LT_TRY(LT_HAS_ENTRY(node, be, embedding));
    LT_TRY(get_local_ids(node, &ids, &own));
    LT_TRY(lt_node_in(node, W, &w));
    LT_TRY(lt_node_out(node, &y));
    LT_TRY(lt_op_output_rows(node, &y, &rows)); /* y is row-major, so rows is its memory */
    LT_TRY(be->embedding(ctx, &ids, &w, &rows));
    clear_foreign_rows(&rows, &own);
    return LT_OK;
}

static lt_status backward(lt_node *node)
{
    void *ctx;
    const lt_backend *be = lt_node_backend(node, &ctx);
    lt_view ids, own, dy, rows, copy;
    if (!lt_node_needs_grad(node, W))
        return LT_OK;
    LT_TRY(get_local_ids(node, &ids, &own));
    LT_TRY(lt_node_grad(node, &dy));
    LT_TRY(lt_op_as_rows(node, &dy, &rows));
    LT_TRY(lt_node_scratch(node, rows.dtype, rows.shape, &copy));
    LT_TRY(be->cast(ctx, &rows, &copy));
    clear_foreign_rows(&copy, &own);
    return lt_op_embedding_grad(node, W, &ids, &copy);
}

static const lt_op sharded_op = {
    .name = "embedding_sharded",
    .config_bytes = sizeof(lt_embedding_shard),
    .backward_ignores = LT_IGNORES_IN(W) | LT_IGNORES_OUT,
    .infer = infer_shape,
    .forward = forward,
    .backward = backward,
};

lt_tensor *lt_embedding_sharded(lt_tape *tape, lt_tensor *ids, lt_tensor *w,
                                lt_embedding_shard part)
{
    return lt_op_run(tape, &sharded_op, (lt_tensor *[]){ids, w}, 2, &part);
}
