/** Devices: where tensors live and kernels run. */
#ifndef LATHER_DEVICE_H
#define LATHER_DEVICE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lt_dtype { LT_F32, LT_F64, LT_F16, LT_BF16, LT_I32, LT_I64, LT_U8 } lt_dtype;

/** Bytes of one element. */
LT_API size_t lt_dtype_size(lt_dtype dtype);
/** "f32", "bf16", ... */
LT_API const char *lt_dtype_name(lt_dtype dtype);

typedef struct lt_device lt_device;

/** cuda, cpu: convolutions with a part of batch norm in one kernel. */
typedef enum lt_fused {
    LT_FUSED_AUTO, /**< where that is faster: on cuda as timed at the first call with a shape, on the cpu
                        as a table says */
    LT_FUSED_ON, /**< wherever there is such a kernel */
    LT_FUSED_OFF
} lt_fused;

typedef struct lt_device_config {
    bool f64;           /**< masters and passes in f64, by ref's entries: exact tests, replay */
    int threads;        /**< compute threads; 0: what affinity mask and cgroup allow */
    bool deterministic; /**< the same bits for the same build, CPU type and thread count */
    lt_fused fused;
    bool tf32;       /**< cuda: products of f32 data may round factors to TF32's 11 bits */
    bool background; /**< cuda: kernels give way to those of the other devices on this GPU */
} lt_device_config;

/** Opens a device by name: "ref" (plain loops), "cpu", "cuda" or "cuda:1". config NULL: zeros.
 *  Errors: LT_E_ARG (no such name), LT_E_UNSUPPORTED (not in this build, or no such hardware:
 *  the message says which), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_device_open(lt_device **out, const char *name,
                                              const lt_device_config *config);
/** Closes *device and sets it to NULL. Everything made on it must be freed before. */
LT_API void lt_device_close(lt_device **device);

/** Waits until all queued work is done. Errors: LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_device_sync(lt_device *device);

/** "ref", "cpu", "cuda:0". */
LT_API const char *lt_device_name(const lt_device *device);
/** dtype of parameters, loss and optimizer state: LT_F32, or LT_F64 if opened so. */
LT_API lt_dtype lt_device_master(const lt_device *device);
/** Whether passes may run in this dtype at a useful speed: "bf16 needs AVX512_BF16". */
LT_API bool lt_device_has_fast(const lt_device *device, lt_dtype dtype);
/** Compute threads in use by the calling thread. */
LT_API int lt_device_threads(const lt_device *device);
/** Changes how many the calling thread uses; 0: what affinity mask and cgroup allow. */
LT_API void lt_device_set_threads(lt_device *device, int threads);

/** For the first line of main(): compute threads that wait shall sleep soon, so that a busy machine does not lose
 *  the cores on which they spin. OpenMP's runtime reads that from the environment before main(), so the program is
 *  started again with GOMP_SPINCOUNT=1000 in it. Does nothing where GOMP_SPINCOUNT or OMP_WAIT_POLICY is set, which
 *  keeps the user's choice and ends the repetition, or where the start fails. */
LT_API void lt_threads_sleep_soon(char **argv);

/** Tensor memory in bytes, as the caching allocator sees it. */
typedef struct lt_memory {
    size_t used;     /**< in live tensors */
    size_t peak;     /**< largest used since open or lt_device_reset_peak() */
    size_t reserved; /**< taken from the system: cached blocks and work memory included */
} lt_memory;

/** What it holds now; the second sets the peak to that. */
LT_API lt_memory lt_device_memory(const lt_device *device);
LT_API void lt_device_reset_peak(lt_device *device);

/** Compute threads that the affinity mask and the cgroup's CPU limit allow: >= 1. */
LT_API int lt_cpu_threads(void);

/** One line on backends, libraries and CPU features of this build and machine, for --version.
 *  Lent until the next call on this thread. index 0, 1, ...; NULL after the last line. */
LT_API const char *lt_build_info(int index);

#endif
