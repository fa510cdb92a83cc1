/* Embedding: rows of a table, and the table's gradient. An id outside of the table yields a row of NaN, because the
 * host cannot check it.
 *
 * Gradient: a block has some rows of the table. It reads all ids, keeps the places of its rows' in order, and adds
 * their rows of dy in that order. Ids are not sorted: they are small compared with dy and the table, and remain in the
 * caches. For tables with few rows, a block has one row and ids are split into chunks, whose sums are
 * added in index order. Formulas: detail/attention_kernels.h. */

#include "launch.cuh"

#include <math.h>

namespace
{

struct table_ids {
    const int32_t *data;
    int64_t stride, count;
    __device__ int64_t at(int64_t n) const
    {
        return data[n * stride];
    }
};

__global__ void lookup_rows(table_ids ids, lt_view w, lt_view y)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, columns = y.shape.dim[1];
    if (i >= ids.count * columns)
        return;
    const int64_t n = i / columns, c = i - n * columns, id = ids.at(n);
    const bool there = id >= 0 && id < w.shape.dim[0];
    const float x =
        there ? lt_element_f32(w.data, w.dtype, id * w.stride[0] + c * w.stride[1]) : (float)NAN;
    lt_set_element_f32(y.data, y.dtype, n * y.stride[0] + c * y.stride[1], x);
}

enum {
    ID_TILE = 4096, /* ids that a block reads before it adds rows */
    MOST_ROWS = 64, /* rows of the table per block */
    NO_ROW = 255,
    OF_THREAD = 4, /* columns per thread */
    BLOCKS = 1024  /* fill a device */
};

/* The places in a tile of the ids of a block's rows, by row and then in order. */
struct id_list {
    union {
        uint8_t row[ID_TILE]; /* per id: number of its row in the block, or NO_ROW */
        uint4 rows[ID_TILE / 16];
    };
    uint16_t place[ID_TILE];
    int32_t end[MOST_ROWS]; /* end[r]: end of row r in place */
};

/* Calls use(i) for each id of the tile that has one of the block's rows, in order. */
template <class Use> __device__ void for_ids(const id_list &list, Use use)
{
    for (int w = 0; w < ID_TILE / 16; w++) {
        const uint4 rows = list.rows[w];
        for (int i = 16 * w; (rows.x & rows.y & rows.z & rows.w) != ~0U && i < 16 * w + 16; i++)
            if (list.row[i] != NO_ROW)
                use(i);
    }
}

/* Lists the places from begin to end - 1 whose id is one of `rows` from first on; a thread sorts one row's. Called by
 * all threads. */
__device__ void find_ids(id_list *list, const table_ids &ids, int64_t first, int64_t rows,
                         int64_t begin, int64_t end)
{
    const int mine = (int)threadIdx.x;
    int at = 0;
    for (int i = mine; i < ID_TILE; i += THREADS) {
        const int64_t row = begin + i < end ? ids.at(begin + i) - first : rows;
        list->row[i] = row >= 0 && row < rows ? (uint8_t)row : (uint8_t)NO_ROW;
    }
    __syncthreads(); /* the previous places were used, too */
    if (mine < rows) {
        for_ids(*list, [&](int i) { at += list->row[i] < mine; });
        for_ids(*list, [&](int i) {
            if (list->row[i] == mine)
                list->place[at++] = (uint16_t)i;
        });
        list->end[mine] = at;
    }
    __syncthreads();
}

/* sums: [chunk][row][column]. A block has per_block rows, one chunk of the ids, THREADS * OF_THREAD columns. Each
 * tile continues the sums that the same thread wrote before. */
__global__ void add_grad_rows(table_ids ids, lt_view dy, int64_t rows, int64_t per_block,
                              int64_t columns, int64_t length, float *sums)
{
    __shared__ id_list list;
    const int64_t row = blockIdx.x * per_block, count = min(per_block, rows - row);
    const int64_t begin = blockIdx.z * length, end = min(begin + length, ids.count);
    const int64_t first = (int64_t)blockIdx.y * THREADS * OF_THREAD + threadIdx.x;
    for (int64_t tile = begin; tile < end; tile += ID_TILE) {
        find_ids(&list, ids, row, count, tile, min(tile + ID_TILE, end));
        for (int r = 0, i = 0; r < count; r++) {
            const int last = list.end[r];
            float *const to = sums + (blockIdx.z * rows + row + r) * columns;
            float sum[OF_THREAD] = {};
            if (tile > begin && i == last)
                continue;
            for (int k = 0; k < OF_THREAD && tile > begin; k++)
                if (first + k * THREADS < columns)
                    sum[k] = to[first + k * THREADS];
#pragma unroll 4
            for (; i < last; i++)
#pragma unroll
                for (int k = 0; k < OF_THREAD; k++) {
                    const int64_t c = min(first + k * THREADS, columns - 1);
                    sum[k] +=
                        lt_element_f32(dy.data, dy.dtype,
                                       (tile + list.place[i]) * dy.stride[0] + c * dy.stride[1]);
                }
            for (int k = 0; k < OF_THREAD; k++)
                if (first + k * THREADS < columns)
                    to[first + k * THREADS] = sum[k];
        }
    }
}

__global__ void add_id_chunks(const float *sums, int64_t chunks, lt_view dw)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, columns = dw.shape.dim[1];
    const int64_t count = dw.shape.dim[0] * columns;
    if (i >= count)
        return;
    double sum = 0;
    for (int64_t k = 0; k < chunks; k++)
        sum += (double)sums[k * count + i];
    const int64_t row = i / columns, c = i - row * columns;
    lt_set_element_f32(dw.data, dw.dtype, row * dw.stride[0] + c * dw.stride[1], (float)sum);
}

table_ids get_table_ids(const lt_view *ids)
{
    table_ids t = {(const int32_t *)ids->data, ids->stride[0], ids->shape.dim[0]};
    return t;
}

lt_status embedding(void *ctx, const lt_view *ids, const lt_view *w, const lt_view *y)
{
    lt_cuda *c = (lt_cuda *)ctx;
    LT_TRY(lt_cuda_begin(c, "embedding"));
    LT_TRY(check_not_f64(c, {w, y}));
    lookup_rows<<<blocks_for(lt_shape_count(y->shape), THREADS), THREADS, 0, main_stream(c)>>>(
        get_table_ids(ids), *w, *y);
    return lt_cuda_end(c);
}

/* Returns the number of chunks of whole tiles that fill a device. */
int64_t count_id_chunks(int64_t groups, int64_t ids)
{
    const int64_t most = (ids + ID_TILE - 1) / ID_TILE;
    const int64_t wanted = BLOCKS / groups, chunks = wanted < most ? wanted : most;
    return chunks < 1 ? 1 : chunks;
}

/* Returns the number of rows per block with which at least BLOCKS blocks have rows. */
int64_t count_block_rows(int64_t rows, int64_t tiles)
{
    const int64_t wanted = rows * tiles / BLOCKS, most = MOST_ROWS;
    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

lt_status embedding_grad(void *ctx, const lt_view *ids, const lt_view *dy, const lt_view *dw)
{
    lt_cuda *c = (lt_cuda *)ctx;
    const int64_t rows = dw->shape.dim[0], columns = dw->shape.dim[1];
    const int64_t tiles = blocks_for(columns, THREADS * OF_THREAD), count = ids->shape.dim[0];
    const int64_t per_block = count_block_rows(rows, tiles), groups = blocks_for(rows, per_block);
    int64_t chunks = count_id_chunks(groups * tiles, count);
    int64_t length = (count + chunks - 1) / chunks;
    length = (length + ID_TILE - 1) / ID_TILE * ID_TILE;
    chunks = (count + length - 1) / length;
    const bool direct = chunks == 1 && dw->dtype == LT_F32 && lt_view_is_contiguous(dw);
    void *sums = dw->data;
    LT_TRY(lt_cuda_begin(c, "embedding_grad"));
    LT_TRY(check_not_f64(c, {dy, dw}));
    if (!direct)
        LT_TRY(lt_cuda_workspace(c, LT_CUDA_MAIN, (size_t)(chunks * rows * columns) * sizeof(float),
                                 &sums));
    const dim3 grid((unsigned)groups, (unsigned)tiles, (unsigned)chunks);
    add_grad_rows<<<grid, THREADS, 0, main_stream(c)>>>(get_table_ids(ids), *dy, rows, per_block,
                                                        columns, length, (float *)sums);
    if (!direct)
        add_id_chunks<<<blocks_for(rows * columns, THREADS), THREADS, 0, main_stream(c)>>>(
            (const float *)sums, chunks, *dw);
    return lt_cuda_end(c);
}

} /* namespace */

extern "C" void lt_cuda_install_embedding(lt_backend *be)
{
    be->embedding = embedding;
    be->embedding_grad = embedding_grad;
}
