/* A stand-in for CUDA on the host: what those of its libraries build on. Device memory is host memory
 * that only queued work may touch: a call takes its host arguments by value, checks them, and queues
 * the rest. When that runs is up to the order that was asked for (LATHER_STANDIN), at the latest when
 * a thread waits for it; in a capture it is recorded, and runs at each launch of the graph. */
#ifndef LT_TESTS_STANDIN_H
#define LT_TESTS_STANDIN_H

#include <cuda_runtime_api.h>
#include <functional>
#include <string>

/* Queues work on the stream. what: its name, for messages; it must live as long as the program. The
 * work may read and write device memory, and must not call the runtime. */
void standin_queue(cudaStream_t stream, std::function<void()> work, const char *what = "library");

/* The same, called again and again until it returns true, other streams' work in between: what
 * waits for another rank. Each launch of a graph runs a fresh copy. A stream that cannot go on otherwise
 * polls without a pause: do not block in it. */
void standin_queue_until(cudaStream_t stream, std::function<bool()> work,
                         const char *what = "library");

/* From within work: bytes of device memory that it reads and writes, each once, and its arithmetic. rows: of a
 * triangular matrix whose rows are found one after the other. */
void standin_moved(uint64_t read, uint64_t written, double flops = 0, int64_t rows = 0);

/* Whether libraries compute nothing: work then writes 0, or 1 where 0 would be singular. */
bool standin_dry();
/* Whether kernels compute nothing either, so that the device's memory is all 0: lists of pointers too. */
bool standin_idle();

/* The text, for as long as the program lives. */
const char *standin_name(const std::string &text);

/* Whether what is queued there now is recorded. */
bool standin_capturing(cudaStream_t stream);

/* For calls that no capture allows: false, with the capture invalidated, if this thread captures. */
bool standin_allowed(const char *what);

/* Ends the program with a message unless p..p+bytes lies in one allocation of device memory, or of
 * memory that is not the device's. NULL with 0 bytes is both. */
void standin_check_device(const void *p, size_t bytes, const char *what);
void standin_check_host(const void *p, size_t bytes, const char *what);
bool standin_is_device(const void *p);

/* A fault of the device, as an invalid address makes one: from now on every call fails. For work. */
void standin_fault(const char *what);
/* Ends the program: what no real library would let pass. */
[[noreturn]] void standin_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The n-th call of this name fails if LATHER_STANDIN_FAIL=name:n was asked for (name:-n: all
 * from it on); libraries ask with the name of their own functions and return an error of their own. */
bool standin_fails(const char *name);
/* Whether it fails as for want of device memory (LATHER_STANDIN_NO_MEMORY=1). */
bool standin_no_memory();

#endif
