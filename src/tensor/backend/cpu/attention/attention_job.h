/* What attention's forward and backward share: the sizes of a call, its tiles, its operands' rows. */
#ifndef LT_BACKEND_CPU_ATTENTION_JOB_H
#define LT_BACKEND_CPU_ATTENTION_JOB_H

#include "tensor/backend/cpu/internal.h"

/* A call. Work is cut by these alone, so that the bits do not depend on the number of threads. */
typedef struct lt_attention_job {
    const lt_cpu_kernels *kernels;
    bool pairs; /* products of bf16 */
    bool causal;
    lt_dtype dtype;
    int64_t batch, heads, kv_heads, queries, keys, d;
    int64_t words, width;     /* of a head's features: words; floats, filled up to lanes */
    int64_t tile, block, row; /* queries of a tile, keys of a tile, floats from row to row */
    int64_t value_depth;      /* words along all keys */
    int64_t packed;           /* keys that are packed: all, or none */
    float scale;              /* of scores */
    float *memory;            /* of each thread: */
    int64_t memory_floats;
} lt_attention_job;

enum { LT_ATTENTION_TASKS = 16 }; /* as many as keep a machine's threads busy */

static inline int64_t lt_round_up(int64_t count, int64_t step)
{
    return (count + step - 1) / step * step;
}

lt_attention_job lt_attention_measure(const lt_cpu *cpu, const lt_attention_config *config,
                                      const lt_view *q, const lt_view *k);

/* True if the features of a head lie side by side. */
static inline bool lt_attention_has_rows(const lt_view *v)
{
    return v->stride[3] == 1 || v->shape.dim[3] == 1;
}

/* Row i of head h of image b. */
static inline void *lt_attention_row(const lt_view *v, int64_t b, int64_t i, int64_t h)
{
    return (char *)v->data
           + (b * v->stride[0] + i * v->stride[1] + h * v->stride[2])
                 * (int64_t)lt_dtype_size(v->dtype);
}

/* The key after the last that a query sees, all before it seen too. */
static inline int64_t lt_attention_seen(const lt_attention_job *j, int64_t query)
{
    return j->causal ? query + 1 + j->keys - j->queries : j->keys;
}

/* A part of a thread's memory: the next `count` floats of base, or NULL while sizes are added up. */
static inline float *lt_attention_take(float *base, int64_t *at, int64_t count)
{
    float *part = base ? base + *at : NULL;
    *at += lt_round_up(count + LT_ATTENTION_ROWS * LT_ATTENTION_LANES, LT_ATTENTION_LANES);
    return part;
}

/* Bounds of a tile's products: all of it, where nothing is masked. */
static inline lt_attention_bound lt_attention_if_causal(const lt_attention_job *j,
                                                        lt_attention_bound bound)
{
    return j->causal ? bound : LT_ATTENTION_ALL;
}

/* The calling thread's. */
float *lt_attention_memory(const lt_attention_job *j);

/* Packs rows from `first` on of head h of image b as `to` says, whose x, step, d and pairs are filled here. */
void lt_attention_pack_rows(const lt_attention_job *j, const lt_view *x, int64_t b, int64_t first,
                            int64_t h, lt_attention_pack to);

/* y [rows][j->row] = products of rows a with columns b, both packed over the features: scores. */
void lt_attention_multiply(const lt_attention_job *j, const float *a, const float *b, int64_t rows,
                           int64_t cols, int64_t offset, float *y);

#endif
