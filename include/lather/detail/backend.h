/** For writing a backend: the table a backend folder fills in. */
#ifndef LATHER_DETAIL_BACKEND_H
#define LATHER_DETAIL_BACKEND_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/attention_kernels.h"
#include "lather/detail/kernels.h"
#include "lather/detail/queues.h"

typedef enum lt_copy_kind { LT_COPY_IN, LT_COPY_OUT, LT_COPY_WITHIN } lt_copy_kind;

/** Every entry, as rows X(name, kind, cpu): ext/entry.h says what the columns mean. */
#define LT_BACKEND_ENTRIES(X) \
    LT_OPERATION_ENTRIES(X)   \
    LT_POINTWISE_ENTRIES(X)   \
    LT_NORM_ENTRIES(X)        \
    LT_PIXEL_ENTRIES(X)       \
    LT_ATTENTION_ENTRIES(X)   \
    LT_OPTIM_ENTRIES(X)       \
    LT_VEC_ENTRIES(X)         \
    LT_MATRIX_ENTRIES(X)

/** A device is opened by name: "cuda:1" is ordinal 1 of the backend "cuda". Entries are basic
 *  (never NULL in ref and cpu; in others NULL is LT_E_UNSUPPORTED naming it) or fused (marked;
 *  NULL: the operation composes it from basic ones). All are called by the tape's thread and
 *  queued in order: a call may return before its work is done. Outputs are overwritten; inputs
 *  and outputs do not overlap unless an entry says "in place". Signatures: ext/kernels.h. */
typedef struct lt_backend {
    const char *name; /**< "ref", "cpu", "cuda" */

    /* Device and memory. */
    lt_status (*open)(void **ctx, int ordinal, const lt_device_config *config);
    void (*close)(void *ctx);
    lt_status (*alloc)(void *ctx, size_t bytes, void **out); /**< aligned to 64 bytes */
    void (*free)(void *ctx, void *data, size_t bytes);
    size_t (*taken)(void *ctx); /**< bytes of the device, work memory too; NULL: the pool's */
    lt_status (*copy)(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind);
    lt_status (*sync)(void *ctx);
    lt_status (*profiler)(void *ctx, bool on);   /**< whether a profiler records; NULL: never */
    bool (*has_fast)(void *ctx, lt_dtype dtype); /**< see lt_device_has_fast() */
    int (*threads)(void *ctx);
    bool host_memory; /**< tensors can be read and written by the host directly */
    size_t reserve;   /**< bytes that cost nothing to allocate until used: the pool takes them
                           at once; 0: none */
    const lt_graph_ops *graphs;   /**< NULL: a step is a plain call */
    const lt_upload_ops *uploads; /**< NULL: copy() and sync() instead */
    const lt_weight_ops *weights; /**< NULL: each pass sees to its copies */
    /** conv2d_grad_w and conv2d_norm_grad_w round a gradient to dy's 16 bits whatever dw's dtype is, and add,
     *  grad_norm, sgd, adagrad, adam and vec (as a) read one that stays in them. */
    bool rounds_grad_w;

#define LT_BACKEND_MEMBER(name, kind, cpu) lt_##name##_fn *name;
    LT_BACKEND_ENTRIES(LT_BACKEND_MEMBER)
#undef LT_BACKEND_MEMBER
} lt_backend;

/** What a plugin liblather-NAME.so exports as lt_plugin_NAME: hardware is loaded, not linked. */
typedef struct lt_backend_plugin {
    const char *version; /**< of the library whose headers it was built with */
    size_t table_bytes;  /**< sizeof(lt_backend) */
    const lt_backend *backend;
    const char *(*info)(void); /**< its libraries' versions, for lt_build_info() */
} lt_backend_plugin;

/** The plain loops: every entry filled, and what a CPU-side backend starts as a copy of. */
LT_API const lt_backend *lt_backend_ref(void);

#endif
