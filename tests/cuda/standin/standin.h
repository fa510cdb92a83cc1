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
/* Returns true if the call fails for lack of device memory (LATHER_STANDIN_NO_MEMORY=1). */
bool standin_no_memory();

#endif
