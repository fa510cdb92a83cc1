/* What the files of the cpu backend share. */
#ifndef LT_BACKEND_CPU_INTERNAL_H
#define LT_BACKEND_CPU_INTERNAL_H

#include "base/alloc.h"
#include "tensor/backend/cpu/isa.h"

#include "lather/detail/backend.h"

/* Work memory that grows to the largest need and is used again by every call. */
typedef enum lt_cpu_slot {
    LT_CPU_SCRATCHPAD, /* oneDNN's */
    LT_CPU_PREPACKED,  /* a weight in a primitive's own layout */
    LT_CPU_BIAS,
    LT_CPU_COPY_X, /* operands whose strides or dtype no primitive takes */
    LT_CPU_COPY_W,
    LT_CPU_COPY_Y,
    LT_CPU_PARTIAL,   /* partial sums of chunks */
    LT_CPU_WGRAD,     /* packed operands of each thread */
    LT_CPU_ATTENTION, /* packed operands and a tile of each thread */
    LT_CPU_ROTARY,    /* cosines and sines */
    LT_CPU_COEF,
    LT_CPU_SLOTS
} lt_cpu_slot;

typedef struct lt_cpu_buffer {
    void *data;
    size_t bytes;
    size_t asked; /* by the last request: tests look for writes behind it */
} lt_cpu_buffer;

/* LATHER_CPU_KERNELS=auto|own|onednn: whose convolutions, with parts of batch norm or without; matrix
 * products and direct gradients of w are not asked. docs/guides/cpu.md. */
typedef enum lt_cpu_choice {
    LT_KERNELS_AUTO, /* own kernels where they were measured to be faster */
    LT_KERNELS_OWN,  /* wherever there are such */
    LT_KERNELS_ONEDNN
} lt_cpu_choice;

/* What the variable says; unset: auto. Errors: LT_E_ARG (no such name). */
lt_status lt_cpu_choice_find(lt_cpu_choice *out);

/* What a table of rotary positions was made for. */
typedef struct lt_cpu_rotary_key {
    double base;
    int64_t first, tokens, d;
    bool interleaved;
} lt_cpu_rotary_key;

/* An opened device. */
typedef struct lt_cpu {
    const lt_backend
        *table; /* its entries: oneDNN's or ref's where there is none of this backend */
    lt_cpu_isa isa;
    lt_cpu_choice choice;
    lt_fused fused;                /* parts of batch norm in convolutions */
    const lt_cpu_kernels *kernels; /* compiled for isa */
    struct lt_onednn *onednn;      /* oneDNN's primitives and prepacked weights; NULL without it */
    lt_cpu_buffer slot[LT_CPU_SLOTS];
    lt_cpu_rotary_key rotary; /* of what LT_CPU_ROTARY holds; d 0: nothing */
} lt_cpu;

/* The slot's memory, at least bytes, 64-byte aligned; NULL with the message set. */
void *lt_cpu_scratch(lt_cpu *cpu, lt_cpu_slot slot, size_t bytes);

static inline bool lt_cpu_has(const lt_view *view)
{
    return view && view->data;
}

static inline int64_t lt_cpu_count(const lt_view *view)
{
    return lt_shape_count(view->shape);
}

/* True for the dtypes that the kernels of isa.h store and load. */
static inline bool lt_cpu_is_fast_dtype(lt_dtype dtype)
{
    return dtype == LT_F32 || dtype == LT_BF16;
}

/* How the kernels of isa.h store a fast dtype. */
static inline lt_cpu_store lt_cpu_store_of(lt_dtype dtype)
{
    return dtype == LT_BF16 ? LT_STORE_BF16 : LT_STORE_F32;
}

/* True if absent, or f32. */
static inline bool lt_cpu_is_f32(const lt_view *view)
{
    return !view || view->dtype == LT_F32;
}

/* True if the elements of each row of a matrix are adjacent, and of a fast dtype. */
static inline bool lt_cpu_has_rows(const lt_view *view)
{
    return lt_cpu_is_fast_dtype(view->dtype) && (view->stride[1] == 1 || view->shape.dim[1] == 1);
}

static inline void *lt_cpu_row(const lt_view *view, int64_t n)
{
    return (char *)view->data + n * view->stride[0] * (int64_t)lt_dtype_size(view->dtype);
}

/* True if all views have a's shape and the same strides, without gaps: then element i of one lies
 * where element i of the others does. */
bool lt_cpu_same_dense(const lt_view *a, const lt_view *b);

/* Copies x to y whatever their strides, if their dtypes are the same, or f32 and bf16; else false. */
bool lt_cpu_copy(const lt_cpu *cpu, const lt_view *x, const lt_view *y);

/* A channels-last (4-D) or row-major view of shape on memory. */
lt_view lt_cpu_dense_view(void *data, lt_dtype dtype, lt_shape shape);

/* Does job index of a list. */
typedef lt_status lt_cpu_job_fn(void *context, int64_t index);

/* Runs all jobs of a list on the team, each on one thread, and returns the first failure. Its
 * message was set on the thread that failed: here it is only "cpu: what failed". */
lt_status lt_cpu_each(const char *what, size_t count, lt_cpu_job_fn *fn, void *context);

/* The entries that are the cpu backend's own. */
#define LT_CPU_OWN(name) lt_##name##_fn lt_cpu_##name;
#define LT_CPU_LIBRARY(name)
#define LT_CPU_REF(name)
#define LT_CPU_NONE(name)
#define LT_CPU_ENTRY(name, kind, cpu) LT_CPU_##cpu(name)
LT_BACKEND_ENTRIES(LT_CPU_ENTRY)

/* conv2d_affine by oneDNN; not done without it. */
lt_conv2d_affine_fn lt_cpu_onednn_affine;

/* Put oneDNN's entries, and LAPACK's, in place of ref's; nothing in a build without. */
void lt_cpu_install_convs(lt_backend *be);
void lt_cpu_install_products(lt_backend *be);
void lt_cpu_install_matrix(lt_backend *be);

/* Opens and closes what a library needs; succeeds without it. */
lt_status lt_cpu_onednn_open(lt_cpu *cpu);
void lt_cpu_onednn_close(lt_cpu *cpu);
const char *lt_cpu_onednn_info(void);
const char *lt_cpu_matrix_info(void);

#endif
