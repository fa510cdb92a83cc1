/* Device, workspaces and views shared by the files of the cpu backend. */
#ifndef LT_BACKEND_CPU_INTERNAL_H
#define LT_BACKEND_CPU_INTERNAL_H

#include "base/alloc.h"
#include "tensor/backend/cpu/isa.h"

#include "lather/detail/backend.h"

/* Workspaces of a device. Each grows to its largest request and is reused by every call. */
typedef enum lt_cpu_slot {
    LT_CPU_SCRATCHPAD, /* scratchpad of oneDNN's primitives */
    LT_CPU_PREPACKED,  /* a weight prepacked in a primitive's layout */
    LT_CPU_BIAS,
    LT_CPU_COPY_X, /* copies of operands whose strides or dtype no primitive supports */
    LT_CPU_COPY_W,
    LT_CPU_COPY_Y,
    LT_CPU_PARTIAL,   /* partial sums of chunks */
    LT_CPU_WGRAD,     /* per thread: packed operands of convolutions and matrix products */
    LT_CPU_ATTENTION, /* per thread: packed operands and a tile of attention */
    LT_CPU_ROTARY,    /* table of cosines and sines of rotary positions */
    LT_CPU_COEF,
    LT_CPU_SLOTS
} lt_cpu_slot;

typedef struct lt_cpu_buffer {
    void *data;
    size_t bytes;
    size_t requested; /* bytes of the last request; tests detect writes past it */
} lt_cpu_buffer;

/* LATHER_CPU_KERNELS=auto|builtin|onednn: the convolution kernels to use, fused with batch norm or not. Matrix products
 * are unaffected. docs/guides/cpu.md. */
typedef enum lt_cpu_choice {
    LT_KERNELS_AUTO,    /* built-in kernels where measured to be faster */
    LT_KERNELS_BUILTIN, /* built-in kernels wherever supported */
    LT_KERNELS_ONEDNN
} lt_cpu_choice;

/* Returns the choice as a value of LATHER_CPU_KERNELS. */
const char *lt_cpu_choice_name(lt_cpu_choice choice);
/* Reads LATHER_CPU_KERNELS; auto if unset. Errors: LT_E_ARG (unknown value). */
lt_status lt_cpu_read_kernel_choice(lt_cpu_choice *out);

/* Arguments of a cached table of rotary positions. */
typedef struct lt_cpu_rotary_key {
    double base;
    int64_t first, tokens, d;
    bool interleaved;
} lt_cpu_rotary_key;

/* An opened device. */
typedef struct lt_cpu {
    const lt_backend *table; /* kernel table: entries of this backend, oneDNN or the reference */
    lt_cpu_isa isa;
    lt_cpu_choice choice;
    bool reproducible; /* same bits on every CPU: built-in kernels only, isa at most AVX512 */
    lt_fused fused;    /* fusion of batch norm into convolutions */
    const lt_cpu_kernels *kernels; /* kernels compiled for isa */
    struct lt_onednn *onednn; /* cached primitives and prepacked weights; NULL without oneDNN */
    const char *last_conv;    /* implementation of the last convolution, for tests */
    lt_cpu_buffer slot[LT_CPU_SLOTS];
    lt_cpu_rotary_key rotary; /* key of the table in LT_CPU_ROTARY; d is 0 if empty */
} lt_cpu;

/* Returns the workspace of at least `bytes`, 64-byte aligned, or NULL with the message set. */
void *lt_cpu_scratch(lt_cpu *cpu, lt_cpu_slot slot, size_t bytes);

/* Returns true if built-in convolutions are used wherever supported: requested, or without oneDNN. */
static inline bool lt_cpu_prefers_builtin(const lt_cpu *cpu)
{
    return cpu->choice == LT_KERNELS_BUILTIN || !cpu->onednn;
}

static inline bool lt_cpu_has_data(const lt_view *view)
{
    return view && view->data;
}

static inline int64_t lt_cpu_element_count(const lt_view *view)
{
    return lt_shape_count(view->shape);
}

/* Returns true for the dtypes that the kernels load and store. */
static inline bool lt_cpu_is_fast_dtype(lt_dtype dtype)
{
    return dtype == LT_F32 || dtype == LT_BF16;
}

static inline lt_cpu_store lt_cpu_store_from_dtype(lt_dtype dtype)
{
    return dtype == LT_BF16 ? LT_STORE_BF16 : LT_STORE_F32;
}

/* Returns true if the view is absent or f32. */
static inline bool lt_cpu_is_f32(const lt_view *view)
{
    return !view || view->dtype == LT_F32;
}

/* Returns true if view is channels-last and of this dtype. */
static inline bool lt_cpu_is_channels_last(const lt_view *view, lt_dtype dtype)
{
    return view->dtype == dtype && lt_view_is_channels_last(view);
}

/* Returns true if a matrix has contiguous rows of a fast dtype. */
static inline bool lt_cpu_has_contiguous_rows(const lt_view *view)
{
    return lt_cpu_is_fast_dtype(view->dtype) && (view->stride[1] == 1 || view->shape.dim[1] == 1);
}

static inline void *lt_cpu_row(const lt_view *view, int64_t n)
{
    return (char *)view->data + n * view->stride[0] * (int64_t)lt_dtype_size(view->dtype);
}

/* Returns true if both views are dense, with equal shapes and strides: element i has the same offset in both. */
bool lt_cpu_has_same_layout(const lt_view *a, const lt_view *b);

/* Writes y's dimensions of size > 1, except `skip` (-1: none), to order by falling stride. Returns their count. */
int lt_cpu_sort_dims_by_stride(const lt_view *y, int skip, int order[LT_MAX_DIMS]);

/* Copies x to y at any strides. Returns false if the dtypes differ and are not f32 and bf16. */
bool lt_cpu_copy_strided(const lt_cpu *cpu, const lt_view *x, const lt_view *y);

/* Returns a channels-last (4-D) or row-major view of memory. */
lt_view lt_cpu_dense_view(void *data, lt_dtype dtype, lt_shape shape);

/* Type of a function that runs job `index` of a list: lt_cpu_run_jobs(). */
typedef lt_status lt_cpu_job_fn(void *context, int64_t index);

/* Runs all jobs of a list on the team, one thread per job. Returns the first failure, with the message "cpu: WHAT
 * failed", as messages are thread-local. */
lt_status lt_cpu_run_jobs(const char *what, size_t count, lt_cpu_job_fn *fn, void *context);

/* Declares lt_cpu_NAME, for each kernel NAME that this backend has itself. */
#define LT_CPU_OWN(name) lt_##name##_fn lt_cpu_##name;
#define LT_CPU_REF(name)
#define LT_CPU_NONE(name)
#define LT_CPU_ENTRY(name, kind, cpu) LT_CPU_##cpu(name)
LT_BACKEND_ENTRIES(LT_CPU_ENTRY)

/* conv2d_affine by oneDNN; sets after->done to false in a build without it. */
lt_conv2d_affine_fn lt_cpu_onednn_affine;

/* Open and close oneDNN's engine and caches; no-ops in a build without oneDNN. */
lt_status lt_cpu_onednn_open(lt_cpu *cpu);
void lt_cpu_onednn_close(lt_cpu *cpu);
const char *lt_cpu_onednn_info(void);

#endif
