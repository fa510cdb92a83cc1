/** Devices: where tensors live and kernels run. */
#ifndef LATHER_DEVICE_H
#define LATHER_DEVICE_H

#include "lather/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum lt_dtype { LT_F32, LT_F64, LT_F16, LT_BF16, LT_I32, LT_I64, LT_U8 } lt_dtype;

/** Returns the size of one element in bytes. */
LT_API size_t lt_dtype_size(lt_dtype dtype);
/** Returns "f32", "bf16", ... */
LT_API const char *lt_dtype_name(lt_dtype dtype);

typedef struct lt_device lt_device;

/** Fusion of convolutions with part of batch norm into one kernel, on cuda and cpu. */
typedef enum lt_fused {
    /** Fused if faster: cuda times both ways at the first call with a shape, cpu has a table. */
    LT_FUSED_AUTO,
    LT_FUSED_ON, /**< fused wherever such a kernel exists */
    LT_FUSED_OFF
} lt_fused;

typedef struct lt_device_config {
    /** Parameters and passes in f64, computed by the ref kernels: exact tests, replay. */
    bool f64;
    /** Number of compute threads; 0: all that affinity mask and cgroup allow. */
    int threads;
    /** Bitwise identical results for the same build, CPU type and thread count. */
    bool deterministic;
    /** cpu: bitwise identical results on every processor, for any number of threads: no library,
     *  no instruction whose rounding others lack. Refused by cuda. */
    bool reproducible;
    lt_fused fused;
    bool tf32;       /**< cuda: products of f32 data may round factors to TF32's 11 bits */
    bool background; /**< cuda: kernels yield to those of other devices on this GPU */
} lt_device_config;

/** Opens a device by name: "ref" (plain loops), "cpu", "cuda" or "cuda:1". config NULL: all
 *  zeros. Errors: LT_E_ARG (unknown name), LT_E_UNSUPPORTED (missing in this build, or no such
 *  hardware; the message distinguishes them), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_device_open(lt_device **out, const char *name,
                                              const lt_device_config *config);
/** Closes *device and sets it to NULL. Free everything that was made on it first. */
LT_API void lt_device_close(lt_device **device);

/** Waits until all queued work is done. Errors: LT_E_DEVICE. */
LT_API LT_MUST_CHECK lt_status lt_device_sync(lt_device *device);

/** Returns "ref", "cpu", "cuda:0", ... */
LT_API const char *lt_device_name(const lt_device *device);
/** Returns the dtype of parameters, loss and optimizer state: LT_F32, or LT_F64 if opened with
 *  f64. */
LT_API lt_dtype lt_device_master_dtype(const lt_device *device);
/** Returns true if it was opened with reproducible. */
LT_API bool lt_device_is_reproducible(const lt_device *device);
/** Returns true if the hardware has fast arithmetic in this dtype; bf16 needs AVX512_BF16, for
 *  example. */
LT_API bool lt_device_has_fast_dtype(const lt_device *device, lt_dtype dtype);
/** Returns the number of compute threads that the calling thread uses. */
LT_API int lt_device_threads(const lt_device *device);
/** Sets the number of compute threads of the calling thread; 0: all that affinity mask and
 *  cgroup allow. */
LT_API void lt_device_set_threads(lt_device *device, int threads);

/** Makes waiting compute threads sleep after a short spin, so that a busy machine does not lose
 *  cores to spinning. Call it first in main(). OpenMP reads this setting before main(), so the
 *  program re-executes itself with GOMP_SPINCOUNT=1000. Does nothing if GOMP_SPINCOUNT or
 *  OMP_WAIT_POLICY is set (this also ends the repetition), or if the exec fails. */
LT_API void lt_threads_set_passive_wait(char **argv);

/** Tensor memory in bytes, as counted by the caching allocator. */
typedef struct lt_memory {
    size_t used;     /**< bytes in live tensors */
    size_t peak;     /**< largest used since open or lt_device_reset_peak() */
    size_t reserved; /**< obtained from the system, including cached blocks and workspace */
} lt_memory;

/** Returns the current counts. */
LT_API lt_memory lt_device_memory(const lt_device *device);
/** Sets the peak to the current use. */
LT_API void lt_device_reset_peak(lt_device *device);

/** Returns the number of compute threads that affinity mask and cgroup allow: at least 1. */
LT_API int lt_cpu_threads(void);

/** Returns one line on backends, libraries and CPU features of this build and machine, for
 *  --version. index counts from 0; NULL after the last line. Borrowed until the next call on
 *  this thread. */
LT_API const char *lt_build_info(int index);

#endif
