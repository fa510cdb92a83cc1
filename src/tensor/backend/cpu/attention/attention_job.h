/* Sizes, tiles and packing shared by attention's forward and backward. */
#ifndef LT_BACKEND_CPU_ATTENTION_JOB_H
#define LT_BACKEND_CPU_ATTENTION_JOB_H

#include "base/parallel.h"
#include "tensor/backend/cpu/internal.h"
#include "tensor/backend/cpu/work_split.h"

#include "lather/ext/fail.h"

/* Sizes of a call. Work is split by these only, so that results do not depend on the number of threads. */
typedef struct lt_attention_job {
    const lt_cpu_kernels *kernels;
    void (*product)(const lt_attention_product *in);
    bool pairs; /* kernels multiply pairs of bf16 */
    bool causal;
    lt_dtype dtype;
    int64_t batch, heads, kv_heads, queries, keys, d;
    int64_t words, width;     /* features of a head: in words; in floats, padded to lanes */
    int64_t tile, block, row; /* queries, keys of a tile; floats between rows of a tile */
    int64_t value_depth;      /* words along all keys */
    int64_t packed;           /* number of keys to pack: all or none */
    float scale;              /* factor of the scores */
    float *memory;            /* workspaces, [threads][memory_floats] */
    int64_t memory_floats;
} lt_attention_job;

enum { LT_ATTENTION_TASKS = 16 }; /* least number of tasks, to keep a machine's threads busy */

lt_attention_job lt_attention_make_job(const lt_cpu *cpu, const lt_attention_config *config,
                                       const lt_view *q, const lt_view *k);

/* Returns true if the features of a head are contiguous. */
static inline bool lt_attention_has_contiguous_rows(const lt_view *v)
{
    return v->stride[3] == 1 || v->shape.dim[3] == 1;
}

/* Returns row i of head h of image b. */
static inline void *lt_attention_row(const lt_view *v, int64_t b, int64_t i, int64_t h)
{
    return (char *)v->data
           + (b * v->stride[0] + i * v->stride[1] + h * v->stride[2])
                 * (int64_t)lt_dtype_size(v->dtype);
}

/* Returns the number of keys that a query sees, counted from the first. */
static inline int64_t lt_attention_visible_keys(const lt_attention_job *j, int64_t query)
{
    return j->causal ? query + 1 + j->keys - j->queries : j->keys;
}

/* Takes `count` floats of a thread's workspace; only advances *at if base is NULL. */
static inline float *lt_attention_take_floats(float *base, int64_t *at, int64_t count)
{
    float *part = base ? base + *at : NULL;
    const int64_t spare = (int64_t)LT_ATTENTION_ROWS * LT_ATTENTION_LANES;
    *at += lt_cpu_round_up(count + spare, LT_ATTENTION_LANES);
    return part;
}

/* Returns bound if causal, else LT_ATTENTION_ALL. */
static inline lt_attention_bound lt_attention_causal_bound(const lt_attention_job *j,
                                                           lt_attention_bound bound)
{
    return j->causal ? bound : LT_ATTENTION_ALL;
}

/* Returns the calling thread's workspace. */
static inline float *lt_attention_thread_workspace(const lt_attention_job *j)
{
    float *own = j->memory + lt_parallel_index() * j->memory_floats;
    LT_ASSERT(own);
    return own;
}

/* Packs rows from `first` on of head h of image b to the layouts in `to`; fills its x, step, d and pairs. */
void lt_attention_pack_rows(const lt_attention_job *j, const lt_view *x, int64_t b, int64_t first,
                            int64_t h, lt_attention_pack to);

/* Computes a tile of scores, y [rows][j->row] = a b, both packed over the features. */
void lt_attention_multiply(const lt_attention_job *j, const float *a, const float *b, int64_t rows,
                           int64_t cols, int64_t offset, float *y);

#endif
