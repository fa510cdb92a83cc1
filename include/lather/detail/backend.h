/** Interface for writing a backend: its table of kernels and device functions. */
#ifndef LATHER_DETAIL_BACKEND_H
#define LATHER_DETAIL_BACKEND_H

/* Not a stable interface: may change in any release. */

#include "lather/detail/attention_kernels.h"
#include "lather/detail/kernels.h"
#include "lather/detail/queues.h"
#include "lather/detail/select_kernels.h"

typedef enum lt_copy_kind { LT_COPY_IN, LT_COPY_OUT, LT_COPY_WITHIN } lt_copy_kind;

/** All kernels, as rows X(name, kind, cpu); detail/entry.h defines the columns. */
#define LT_BACKEND_ENTRIES(X) \
    LT_OPERATION_ENTRIES(X)   \
    LT_POINTWISE_ENTRIES(X)   \
    LT_NORM_ENTRIES(X)        \
    LT_PIXEL_ENTRIES(X)       \
    LT_ATTENTION_ENTRIES(X)   \
    LT_OPTIM_ENTRIES(X)       \
    LT_VEC_ENTRIES(X)         \
    LT_MATRIX_ENTRIES(X)      \
    LT_SELECT_ENTRIES(X)

/** A backend: its devices and kernels. Devices are opened by name: "cuda:1" is ordinal 1 of the backend "cuda".
 *  Kernels are basic or host (never NULL in ref and cpu; NULL in others is LT_E_UNSUPPORTED, naming the kernel) or
 *  fused (NULL: the operation composes it of basic kernels). The tape's thread calls them, and they run in that
 *  order; a call may return before its work is done. Outputs are overwritten. Inputs and outputs do not overlap
 *  unless a kernel's comment has "in place". Signatures: detail/kernels.h. */
typedef struct lt_backend {
    const char *name; /**< name of the backend: "ref", "cpu", "cuda" */

    /* Functions for the device and its memory. */
    lt_status (*open)(void **ctx, int ordinal, const lt_device_config *config);
    void (*close)(void *ctx);
    lt_status (*alloc)(void *ctx, size_t bytes, void **out); /**< memory aligned to 64 bytes */
    void (*free)(void *ctx, void *data, size_t bytes);
    /** Returns the bytes taken from the device, including workspace; NULL: those of the caching allocator. */
    size_t (*taken)(void *ctx);
    lt_status (*copy)(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind);
    lt_status (*sync)(void *ctx);
    /** Starts or stops an attached profiler; NULL: not supported. */
    lt_status (*profiler)(void *ctx, bool on);
    bool (*has_fast)(void *ctx, lt_dtype dtype); /**< implements lt_device_has_fast_dtype() */
    int (*threads)(void *ctx);
    bool host_memory; /**< the host can read and write tensors directly */
    /** Bytes that the caching allocator reserves at once because untouched memory costs nothing; 0: none. */
    size_t reserve;
    const lt_graph_ops *graphs;   /**< graph capture; NULL: steps run eagerly */
    const lt_upload_ops *uploads; /**< asynchronous uploads; NULL: copy() and sync() instead */
    const lt_weight_ops *weights; /**< cached casts of weights; NULL: none between passes */
    /** conv2d_grad_w and conv2d_norm_grad_w round a gradient to dy's 16-bit dtype whatever dw's dtype is; add,
     *  grad_norm, sgd, adagrad, adam and vec (as a) read 16-bit gradients. */
    bool rounds_grad_w;
/* NOLINTNEXTLINE(bugprone-macro-parentheses): `name` declares */
#define LT_BACKEND_MEMBER(name, kind, cpu) lt_##name##_fn *name;
    LT_BACKEND_ENTRIES(LT_BACKEND_MEMBER)
#undef LT_BACKEND_MEMBER
} lt_backend;

/** Symbol lt_plugin_NAME of a plugin liblather-NAME.so, by which a backend is loaded at run time. */
typedef struct lt_backend_plugin {
    const char *version; /**< version of the library whose headers it was built with */
    size_t table_bytes;  /**< sizeof(lt_backend), to reject a plugin built with other headers */
    const lt_backend *backend;
    const char *(*info)(void); /**< returns the versions of its libraries, for lt_build_info() */
} lt_backend_plugin;

/** Returns the reference backend: plain loops, all kernels present. A backend for host memory starts as a copy
 *  of it. */
LT_API const lt_backend *lt_backend_ref(void);

#endif
