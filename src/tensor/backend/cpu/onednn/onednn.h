/* oneDNN's primitives, made once per geometry, and weights prepacked once per version. */
#ifndef LT_BACKEND_CPU_PRODUCTS_H
#define LT_BACKEND_CPU_PRODUCTS_H

#include "onednn_compat.h"
#include "tensor/backend/cpu/internal.h"

enum { LT_PRIMITIVE_KEY = 22, LT_PRIMITIVE_BUCKETS = 256, LT_PRIMITIVE_NAME = 64 };

/* A primitive with its arguments: memory objects are made once, handles are set at each call. */
typedef struct lt_primitive {
    int64_t key[LT_PRIMITIVE_KEY];
    struct lt_primitive *next;
    dnnl_primitive_t primitive; /* NULL: oneDNN has none for this problem */
    dnnl_primitive_t reorder;   /* between our weight layout and the primitive's; NULL: the same */
    dnnl_memory_t x, w, w_user, b, y, scratchpad; /* w_user: w in our layout */
    size_t w_bytes, scratchpad_bytes;
    char implementation[LT_PRIMITIVE_NAME]; /* as oneDNN calls it; "" for a product of matrices */
    bool unverified; /* LATHER_VERIFY asks for it: the first run finds NaN in its scratchpad */
} lt_primitive;

/* A weight in a primitive's layout. In training every version is read once: then it goes through
 * scratch memory and copy stays NULL. The second use of a version makes a copy that stays until a newer
 * version is read, by whatever primitive. */
typedef struct lt_prepacked {
    const void *data;
    const lt_primitive *prim;
    uint64_t version; /* of the weight */
    uint64_t factors; /* a hash of those per channel that are in the copy */
    void *copy;
    struct lt_prepacked *next;
} lt_prepacked;

typedef struct lt_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* the scratchpad is ours */
    lt_primitive *primitive[LT_PRIMITIVE_BUCKETS];
    lt_prepacked *prepacked[LT_PRIMITIVE_BUCKETS];
    size_t primitives, prepacks;
    const char *last;   /* what made the last convolution: lent until the next */
    bool without_rules; /* for tests: oneDNN's first implementation is taken, right or wrong */
} lt_onednn;

/* LT_E_DEVICE with oneDNN's status, or LT_OK. */
lt_status lt_dnnl_check(dnnl_status_t status, const char *what);

/* The primitive with this key; fill makes one that is not there yet, of `problem`. */
typedef lt_status lt_primitive_fill(lt_onednn *onednn, lt_primitive *prim, const void *problem);
lt_status lt_primitive_get(lt_onednn *onednn, const int64_t key[LT_PRIMITIVE_KEY],
                           lt_primitive_fill *fill, const void *problem, lt_primitive **out);

/* The memory objects that a primitive wants: its own layout for w, and a reorder from or to
 * w_user's if they differ. */
lt_status lt_primitive_memory(lt_onednn *onednn, dnnl_memory_t *out, lt_md_in md);
lt_status lt_primitive_scratchpad(lt_onednn *onednn, lt_primitive *prim,
                                  const_dnnl_primitive_desc_t pd);

/* Sets prim->w's handle to w in the primitive's layout. w has w_user's layout and dtype; version 0:
 * it is prepacked at each call. */
lt_status lt_prepack_weight(lt_cpu *cpu, lt_primitive *prim, const void *data, uint64_t version);
/* The same of w times a factor for each output channel, [K], contiguous; both f32. A copy is made at the first use. */
lt_status lt_prepack_scaled(lt_cpu *cpu, lt_primitive *prim, const lt_view *w,
                            const lt_view *factor);

/* Runs the primitive on arguments whose handles are set, with our scratchpad. */
lt_status lt_primitive_run(lt_cpu *cpu, lt_primitive *prim, const dnnl_exec_arg_t *args, int count);

/* The view's memory if it has this dtype and is without gaps in the library's storage order, else a
 * copy in the slot that is. */
lt_status lt_onednn_read(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                         void **data);
/* A weight of f32 counts as rounded to the activations' dtype, whatever computes with it: *w becomes a
 * rounded copy in LT_CPU_PREPACKED, where that differs. */
lt_status lt_onednn_round(lt_cpu *cpu, lt_dtype dtype, lt_view *w);
/* Where to write so that lt_onednn_written() can bring it to view. */
lt_status lt_onednn_write(lt_cpu *cpu, lt_cpu_slot slot, const lt_view *view, lt_dtype dtype,
                          void **data);
lt_status lt_onednn_written(lt_cpu *cpu, const lt_view *view, lt_dtype dtype, void *data);

#endif
