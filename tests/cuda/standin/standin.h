/* A stand-in for CUDA on the host, shared by the stand-ins of its libraries. Device memory is host memory that only
 * queued work may access: a call takes its host arguments by value, checks them, and queues the work. LATHER_STANDIN
 * sets the order in which work runs, at the latest when a thread waits for it. In a capture the work is recorded, and
 * runs at each launch of the graph. */
#ifndef LT_TESTS_STANDIN_H
#define LT_TESTS_STANDIN_H

#include <cuda_runtime_api.h>
#include <functional>
#include <string>

/* Queues work on the stream. what: its name, for messages; it must live as long as the program. The
 * work may read and write device memory, and must not call the runtime. */
void standin_queue(cudaStream_t stream, std::function<void()> work, const char *what = "library");

/* Queues work that waits for another rank: it is called repeatedly until it returns true, with other streams' work in
 * between. Each launch of a graph runs a fresh copy. The work must not block: it may be polled without a pause. */
void standin_queue_until(cudaStream_t stream, std::function<bool()> work,
                         const char *what = "library");

/* Called by work: the bytes of device memory that it reads and writes, each counted once, and its arithmetic. rows:
 * sequential rows of a triangular solve. */
void standin_moved(uint64_t read, uint64_t written, double flops = 0, int64_t rows = 0);

/* Returns true if libraries compute nothing: they then write 0, or 1 where 0 would be singular. */
bool standin_dry();
/* Returns true if kernels compute nothing either, so that all device memory is 0, pointer lists included. */
bool standin_idle();

/* Returns a copy of the text that is never freed. */
const char *standin_name(const std::string &text);

/* Returns true if the stream is being captured. */
bool standin_capturing(cudaStream_t stream);

/* For calls that are illegal in a capture: returns false and invalidates the capture if this thread captures. */
bool standin_allowed(const char *what);

/* Abort with a message unless p..p+bytes lies in one allocation of device memory, or in host memory. NULL with 0
 * bytes passes both. */
void standin_check_device(const void *p, size_t bytes, const char *what);
void standin_check_host(const void *p, size_t bytes, const char *what);
bool standin_is_device(const void *p);

/* Called by work: a sticky device error, as after an invalid address. Every later call fails. */
void standin_fault(const char *what);
/* Prints the message and aborts: a misuse that no real library would accept. */
[[noreturn]] void standin_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns true for the n-th call of this name if LATHER_STANDIN_FAIL=name:n is set (name:-n: from the n-th on). Each
 * library passes its own functions' names and returns its own error. */
bool standin_fails(const char *name);
/* Behaviours of hardware that this stand-in has on request: LATHER_STANDIN_LIES=NAME[:N],NAME[:N]... */
enum standin_lie {
    STANDIN_NO_ALGORITHM, /* no-algorithm: cuBLASLt's heuristic finds none */
    STANDIN_NO_ENGINE,    /* no-engine: cuDNN's heuristics propose none */
    STANDIN_TF32_TRUNCATES, /* tf32-truncates: factors lose their last 13 bits instead of being rounded */
    STANDIN_NAN_7FFFFFFF, /* nan-7fffffff: a library's NaN has all bits of its fraction, no sign */
    STANDIN_RELU_KEEPS_NAN,  /* relu-keeps-nan: cuDNN's relu of NaN is NaN, not 0 */
    STANDIN_FAULT_AT_NODE,   /* fault-at-node:N: the n-th node of graphs that runs is a fault */
    STANDIN_REFUSES_CAPTURE, /* refuses-capture: plans of cuDNN cannot be captured */
    STANDIN_SLOW_LOAD,       /* slow-load:N: cuDNN takes N ms to load */
    STANDIN_LIES
};

/* Returns N, 1 if it is missing, or 0 if this lie was not asked for. */
long standin_lies(standin_lie lie);

/* A factor as TF32's tensor cores read it: rounded to 10 bits of fraction, ties away from zero, as PTX's cvt.rna.tf32, or
 * truncated. */
float standin_tf32(float x);

/* NaN as a library stores it: in 16 bits 0x7FFF where standin_is_own_nan() returns true. */
bool standin_is_own_nan(float x);
float standin_nan(float x);

/* Returns true if the call fails for lack of device memory (LATHER_STANDIN_NO_MEMORY=1). */
bool standin_no_memory();

#endif
