/* oneDNN primitives, created once per geometry, and weights, prepacked once per version. */
#ifndef LT_BACKEND_CPU_PRODUCTS_H
#define LT_BACKEND_CPU_PRODUCTS_H

#include "onednn_compat.h"
#include "tensor/backend/cpu/internal.h"

enum { LT_PRIMITIVE_KEY = 22, LT_PRIMITIVE_BUCKETS = 256, LT_PRIMITIVE_NAME = 64 };

/* A primitive with its memory objects, which are created once; each call sets their handles. */
typedef struct lt_primitive {
    int64_t key[LT_PRIMITIVE_KEY];
    struct lt_primitive *next;
    dnnl_primitive_t primitive; /* the primitive; NULL if oneDNN has none for this problem */
    dnnl_primitive_t reorder;   /* converts w from our layout to the primitive's; NULL if equal */
    dnnl_memory_t x, w, w_user, b, y, scratchpad; /* w_user: w in our layout */
    size_t w_bytes, scratchpad_bytes;
    char implementation[LT_PRIMITIVE_NAME]; /* oneDNN's name; "" for matrix products */
    bool unverified; /* LATHER_VERIFY: not compared yet; the first run gets a scratchpad of NaN */
} lt_primitive;

/* A weight in a primitive's layout. In training each version is used once: it is prepacked in a workspace and copy is
 * NULL. The second use of a version allocates a copy, which is kept until any primitive reads a newer version. */
typedef struct lt_prepacked {
    const void *data;
    const lt_primitive *prim;
    uint64_t version; /* version of the weight that the copy is of */
    uint64_t factors; /* hash of the per-channel factors in the copy */
    void *copy;
    struct lt_prepacked *next;
} lt_prepacked;

typedef struct lt_onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* attributes of all primitives: caller-provided scratchpad */
    lt_primitive *primitive[LT_PRIMITIVE_BUCKETS];
    lt_prepacked *prepacked[LT_PRIMITIVE_BUCKETS];
    size_t primitives, prepacks;
    bool without_rules; /* for tests: uses oneDNN's first implementation, even if wrong */
} lt_onednn;

/* Converts a oneDNN status: LT_OK, LT_E_NOMEM, or LT_E_DEVICE with the status in the message. */
lt_status lt_dnnl_check(dnnl_status_t status, const char *what);

/* Finds the primitive with this key; on a miss calls fill to create it from `problem`. */
typedef lt_status lt_primitive_fill(lt_onednn *onednn, lt_primitive *prim, const void *problem);
lt_status lt_primitive_find_or_create(lt_onednn *onednn, const int64_t key[LT_PRIMITIVE_KEY],
                                      lt_primitive_fill *fill, const void *problem,
                                      lt_primitive **out);

/* Create a memory object, and a primitive's scratchpad. */
lt_status lt_primitive_create_memory(lt_onednn *onednn, dnnl_memory_t *out, lt_md_in md);
lt_status lt_primitive_create_scratchpad(lt_onednn *onednn, lt_primitive *prim,
                                         const_dnnl_primitive_desc_t pd);

/* Sets prim->w's handle to data in the primitive's layout; data has w_user's layout. version 0: prepacks at each
 * call. */
lt_status lt_prepack_weight(lt_cpu *cpu, lt_primitive *prim, const void *data, uint64_t version);
/* Does the same for w times a factor per output channel, [K] contiguous, both f32. Copies at the first use. */
lt_status lt_prepack_scaled_weight(lt_cpu *cpu, lt_primitive *prim, const lt_view *w,
                                   const lt_view *factor);

/* Runs the primitive on arguments whose handles are set, with the device's scratchpad. */
lt_status lt_primitive_run(lt_cpu *cpu, lt_primitive *prim, const dnnl_exec_arg_t *args, int count);

#endif
