/* Fails the k-th call that the library makes to a lower layer: memory, a kernel of a backend, a file, a thread,
 * a socket. faults_each() repeats an action for k = 1, 2, ... until nothing fails.
 *
 * For one source of a program that is linked with fault_link_args and has entry_calls.h among its sources
 * (tests/faults/meson.build): the linker sends the library's calls of NAME to __wrap_NAME. */
#ifndef LT_TESTS_FAULTS_H
#define LT_TESTS_FAULTS_H

#include "near.h"
#include "tensor/tensor.h"

#include "lather/detail/backend.h"
#include "lather/ext/fail.h"
#include "lather/log.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum {
    FAULT_MEMORY = 1,
    FAULT_KERNEL = 2,
    FAULT_FILE = 4,
    FAULT_THREAD = 8,
    FAULT_SOCKET = 16,
};

/* --- Which call fails --- */

static _Atomic int64_t fault_countdown; /* the call that brings it to 0 fails; 0: none will */
static _Atomic unsigned fault_kinds;
static _Atomic(const char *) fault_name; /* name of the failed call, or NULL */
static _Atomic unsigned fault_kind;      /* kind of the failed call */
static _Atomic int64_t fault_live;       /* allocations that were not freed */
static _Atomic int fault_exit; /* the call ends the process with this status; 0: it fails */

/* Call site of each call: a hash of its frames, for calls that are counted down from FAULT_BEYOND. */
enum { FAULT_BEYOND = 1 << 30, FAULT_SITES = 1 << 14, FAULT_FRAMES = 24 };
static uint64_t fault_site[FAULT_SITES];

static inline void fault_note(int64_t k)
{
    void *frame[FAULT_FRAMES];
    uint64_t hash = 0;
    if (k < 0 || k >= FAULT_SITES)
        return;
    for (int i = backtrace(frame, FAULT_FRAMES) - 1; i >= 0; i--)
        hash = (hash ^ (uint64_t)(uintptr_t)frame[i]) * 1099511628211U;
    fault_site[k] = hash;
}

static inline bool fault_due(unsigned kind, const char *name)
{
    if (!(atomic_load(&fault_kinds) & kind) || atomic_load(&fault_countdown) <= 0)
        return false;
    const int64_t left = atomic_fetch_sub(&fault_countdown, 1);
    if (left != 1) {
        fault_note(FAULT_BEYOND - left);
        return false;
    }
    if (atomic_load(&fault_exit))
        _exit(atomic_load(&fault_exit));
    atomic_store(&fault_kind, kind);
    atomic_store(&fault_name, name);
    if (getenv("LATHER_FAULT_TRACE")) {
        void *frame[FAULT_FRAMES];
        backtrace_symbols_fd(frame, backtrace(frame, FAULT_FRAMES), STDERR_FILENO);
    }
    errno = kind == FAULT_MEMORY   ? ENOMEM
            : kind == FAULT_FILE   ? EIO
            : kind == FAULT_SOCKET ? ECONNRESET
                                   : EAGAIN;
    return true;
}

static inline void faults_arm(unsigned kinds, int64_t k)
{
    atomic_store(&fault_name, NULL);
    atomic_store(&fault_kinds, kinds);
    atomic_store(&fault_countdown, k);
}

static int64_t fault_left; /* remaining countdown of the last armed action */

/* The name of the call that failed, or NULL. */
static inline const char *faults_disarm(void)
{
    const int64_t left = atomic_exchange(&fault_countdown, 0);
    fault_left = left ? left : fault_left;
    return atomic_load(&fault_name);
}

/* --- Calls that the linker sends here --- */

#define FAULT_WRAP(kind, failed, type, name, parameters, arguments)         \
    type __real_##name parameters;                                          \
    type __wrap_##name parameters                                           \
    {                                                                       \
        return fault_due(kind, #name) ? (failed) : __real_##name arguments; \
    }                                                                       \
    _Static_assert(1, "a semicolon follows")

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_realpath(const char *path, char *into);
void __real_free(void *memory);
int __real_fclose(FILE *file);

static inline void *fault_count(void *memory)
{
    if (memory)
        atomic_fetch_add(&fault_live, 1);
    return memory;
}

void *__wrap_malloc(size_t bytes)
{
    return fault_due(FAULT_MEMORY, "malloc") ? NULL : fault_count(__real_malloc(bytes));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fault_due(FAULT_MEMORY, "calloc") ? NULL : fault_count(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t bytes)
{
    if (fault_due(FAULT_MEMORY, "realloc"))
        return NULL;
    return old ? __real_realloc(old, bytes) : fault_count(__real_realloc(NULL, bytes));
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    if (fault_due(FAULT_MEMORY, "posix_memalign"))
        return ENOMEM;
    const int failed = __real_posix_memalign(out, alignment, bytes);
    (void)fault_count(failed ? NULL : *out);
    return failed;
}

char *__wrap_realpath(const char *path, char *into)
{
    char *real = fault_due(FAULT_FILE, "realpath") ? NULL : __real_realpath(path, into);
    return into ? real : fault_count(real);
}

char *__wrap_strdup(const char *text)
{
    return fault_due(FAULT_MEMORY, "strdup") ? NULL : fault_count(__real_strdup(text));
}

void __wrap_free(void *memory)
{
    if (memory)
        atomic_fetch_sub(&fault_live, 1);
    __real_free(memory);
}

/* A stream remembers that a call failed. */
static _Atomic(FILE *) fault_stream;

static inline int fault_broke(FILE *stream)
{
    atomic_store(&fault_stream, stream);
    return 0;
}

int __real_ferror(FILE *file);
int __wrap_ferror(FILE *file)
{
    return file == atomic_load(&fault_stream) || __real_ferror(file);
}

/* open() has a third argument only if it creates a file: the registers are the same. */
FAULT_WRAP(FAULT_FILE, -1, int, open, (const char *p, int how, mode_t mode), (p, how, mode));
FAULT_WRAP(FAULT_FILE, -1, int, open64, (const char *p, int how, mode_t mode), (p, how, mode));
FAULT_WRAP(FAULT_FILE, -1, int, openat64, (int at, const char *p, int how, mode_t mode),
           (at, p, how, mode));
FAULT_WRAP(FAULT_FILE, -1, ssize_t, read, (int fd, void *to, size_t bytes), (fd, to, bytes));
FAULT_WRAP(FAULT_FILE, -1, ssize_t, pread64, (int fd, void *to, size_t bytes, int64_t at),
           (fd, to, bytes, at));
FAULT_WRAP(FAULT_FILE, -1, ssize_t, write, (int fd, const void *of, size_t bytes), (fd, of, bytes));
FAULT_WRAP(FAULT_FILE, -1, ssize_t, pwrite64, (int fd, const void *of, size_t bytes, int64_t at),
           (fd, of, bytes, at));
FAULT_WRAP(FAULT_FILE, -1, int, fsync, (int fd), (fd));
FAULT_WRAP(FAULT_FILE, -1, int, ftruncate64, (int fd, int64_t bytes), (fd, bytes));
FAULT_WRAP(FAULT_FILE, -1, int, rename, (const char *from, const char *to), (from, to));
FAULT_WRAP(FAULT_FILE, -1, int, mkdir, (const char *p, mode_t mode), (p, mode));
FAULT_WRAP(FAULT_FILE, -1, int, symlink, (const char *to, const char *p), (to, p));
FAULT_WRAP(FAULT_FILE, -1, int, fstat64, (int fd, void *info), (fd, info));
FAULT_WRAP(FAULT_FILE, NULL, DIR *, opendir, (const char *p), (p));
FAULT_WRAP(FAULT_FILE, NULL, FILE *, fopen64, (const char *p, const char *mode), (p, mode));
FAULT_WRAP(FAULT_FILE, NULL, FILE *, fdopen, (int fd, const char *mode), (fd, mode));
FAULT_WRAP(FAULT_FILE, (size_t)fault_broke(f), size_t, fread,
           (void *to, size_t size, size_t count, FILE *f), (to, size, count, f));
FAULT_WRAP(FAULT_FILE, (size_t)fault_broke(f), size_t, fwrite,
           (const void *of, size_t size, size_t count, FILE *f), (of, size, count, f));
FAULT_WRAP(FAULT_FILE, EOF + fault_broke(f), int, fflush, (FILE * f), (f));
FAULT_WRAP(FAULT_FILE, (void *)-1, void *, mmap64,
           (void *want, size_t bytes, int may, int how, int fd, int64_t at),
           (want, bytes, may, how, fd, at));
FAULT_WRAP(FAULT_THREAD, EAGAIN, int, pthread_create,
           (pthread_t * t, const pthread_attr_t *a, void *(*run)(void *), void *of),
           (t, a, run, of));
/* A connection that was reset is so to both sides. */
static inline int fault_cut(int fd)
{
    shutdown(fd, SHUT_RDWR);
    errno = ECONNRESET;
    return -1;
}

FAULT_WRAP(FAULT_SOCKET, -1, int, socket, (int domain, int type, int protocol),
           (domain, type, protocol));
FAULT_WRAP(FAULT_SOCKET, -1, int, connect, (int fd, const void *to, socklen_t bytes),
           (fd, to, bytes));
FAULT_WRAP(FAULT_SOCKET, -1, int, bind, (int fd, const void *to, socklen_t bytes), (fd, to, bytes));
FAULT_WRAP(FAULT_SOCKET, -1, int, listen, (int fd, int most), (fd, most));
FAULT_WRAP(FAULT_SOCKET, fault_cut(fd), ssize_t, send,
           (int fd, const void *of, size_t bytes, int how), (fd, of, bytes, how));
FAULT_WRAP(FAULT_SOCKET, fault_cut(fd), ssize_t, sendmsg, (int fd, const void *of, int how),
           (fd, of, how));
FAULT_WRAP(FAULT_SOCKET, fault_cut(fd), ssize_t, recv, (int fd, void *to, size_t bytes, int how),
           (fd, to, bytes, how));

/* Fails only for files that were written: closing one that was read loses nothing. */
int __wrap_fclose(FILE *file)
{
    const bool failed = __fwritable(file) && fault_due(FAULT_FILE, "fclose");
    if (file == atomic_load(&fault_stream))
        atomic_store(&fault_stream, NULL);
    const int closed = __real_fclose(file);
    if (failed)
        errno = EIO;
    return failed ? EOF : closed;
}

#ifdef FAULT_ONEDNN
/* The int is a dnnl_status_t: 1 is out of memory. */
FAULT_WRAP(FAULT_KERNEL, 1, int, dnnl_primitive_execute,
           (const void *primitive, void *stream, int count, const void *arguments),
           (primitive, stream, count, arguments));
FAULT_WRAP(FAULT_KERNEL, 1, int, dnnl_stream_wait, (void *stream), (stream));
FAULT_WRAP(FAULT_KERNEL, 1, int, dnnl_sgemm,
           (char at, char bt, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
            int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc),
           (at, bt, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
#endif

/* --- A backend's entries --- */

static lt_backend fault_real, fault_table; /* one kind of device at a time */

#include "entry_calls.h"

static lt_status fault_copy(void *ctx, void *dst, const void *src, size_t bytes, lt_copy_kind kind)
{
    return fault_due(FAULT_KERNEL, "copy") ? lt_fail(LT_E_DEVICE, "copy: a fault of the test")
                                           : fault_real.copy(ctx, dst, src, bytes, kind);
}

static lt_status fault_sync(void *ctx)
{
    return fault_due(FAULT_KERNEL, "sync") ? lt_fail(LT_E_DEVICE, "sync: a fault of the test")
                                           : fault_real.sync(ctx);
}

/* From here on kernels of the device may fail. */
static inline void faults_attach(lt_device *device)
{
    if (device->backend == &fault_table)
        return;
    fault_real = fault_table = *device->backend;
#define FAULT_ENTRY(name, kind, cpu) fault_table.name = fault_real.name ? fault_##name : NULL;
    LT_BACKEND_ENTRIES(FAULT_ENTRY)
#undef FAULT_ENTRY
    fault_table.copy = fault_copy;
    fault_table.sync = fault_sync;
    device->backend = &fault_table;
}

/* --- An action, again and again --- */

typedef struct fault_case {
    const char *name;
    unsigned kinds;
    void (*open)(void *context);     /* nothing fails in it; NULL: nothing */
    lt_status (*act)(void *context); /* one call of it fails */
    void (*after)(void *context,
                  lt_status st);  /* nothing fails; checks what act left; NULL: nothing */
    void (*close)(void *context); /* NULL: nothing */
    void *context;
    /* Calls whose failure act may survive without their result: " open read "; "*": any; NULL: none. */
    const char *survives;
    bool any_status; /* a failure is reported by a status of the caller's, as across a connection */
    bool frees_others; /* memory that another library allocated: allocations are not counted */
    int64_t least;     /* calls in act, at least */
} fault_case;

static inline int fault_entries_of(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    while (dir && readdir(dir))
        count++;
    if (dir)
        closedir(dir);
    return count;
}

typedef struct fault_holdings {
    int64_t allocations;
    int files, threads;
} fault_holdings;

static inline fault_holdings fault_holds(void)
{
    return (fault_holdings){atomic_load(&fault_live), fault_entries_of("/proc/self/fd"),
                            fault_entries_of("/proc/self/task")};
}

static const fault_case *fault_running;
static int64_t fault_k;

static void fault_hangs(int number)
{
    char text[256];
    (void)number;
    const int bytes = snprintf(text, sizeof text, "%s: hangs after call %lld (%s) failed\n",
                               fault_running->name, (long long)fault_k, atomic_load(&fault_name));
    if (bytes > 0)
        (void)!__real_write(STDERR_FILENO, text, (size_t)bytes);
    abort();
}

static inline void fault_quiet(void *context, lt_log_level level, const char *area,
                               const char *text)
{
    (void)context;
    (void)level;
    (void)area;
    (void)text;
}

/* Returns true if st is a valid status for the kind of call that failed. */
static inline bool fault_fits(const fault_case *c, lt_status st)
{
    if (c->any_status)
        return true;
    if (atomic_load(&fault_kind) & (FAULT_MEMORY | FAULT_THREAD))
        return st == LT_E_NOMEM;
    if (atomic_load(&fault_kind) == FAULT_KERNEL)
        return st == LT_E_DEVICE || st == LT_E_NOMEM; /* oneDNN's own are out of memory */
    return true;
}

static inline bool fault_may_survive(const fault_case *c, const char *name)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", name);
    return c->survives && (*c->survives == '*' || strstr(c->survives, word));
}

/* One k. Returns whether a call failed. */
static inline bool fault_try(const fault_case *c, int64_t k, bool warm)
{
    const fault_holdings before = fault_holds();
    fault_k = k;
    if (c->open)
        c->open(c->context);
    faults_arm(c->kinds, k);
    const lt_status st = c->act(c->context);
    const char *failed = faults_disarm();
    if (!failed && st)
        fail_msg("%s: %s: %s, but no call failed", c->name, lt_status_name(st), lt_error_message());
    if (failed) {
        if (!st && !fault_may_survive(c, failed))
            fail_msg("%s: LT_OK though call %lld, %s, failed", c->name, (long long)k, failed);
        if (st && !fault_fits(c, st))
            fail_msg("%s: %s (%s) when call %lld, %s, failed", c->name, lt_status_name(st),
                     lt_error_message(), (long long)k, failed);
        if (st && !c->any_status && !*lt_error_message())
            fail_msg("%s: no message when call %lld, %s, failed", c->name, (long long)k, failed);
    }
    if (c->after)
        c->after(c->context, st);
    if (c->close)
        c->close(c->context);
    fault_holdings now = fault_holds();
    for (int i = 0; i < 2000 && now.threads > before.threads; i++, now = fault_holds())
        usleep(1000); /* the kernel lists a thread a moment longer than it can be joined */
    const bool leaks = !c->frees_others && now.allocations != before.allocations;
    if (!warm && (leaks || now.files != before.files || now.threads != before.threads))
        fail_msg("%s: after call %lld (%s) failed %lld allocations, %d files, %d threads are left",
                 c->name, (long long)k, failed ? failed : "none",
                 (long long)(now.allocations - before.allocations), now.files - before.files,
                 now.threads - before.threads);
    return failed;
}

/* Runs the rows, or those of the pattern LATHER_FAULT_ROW; LATHER_FAULT_TRACE=1 prints where each failing call came
 * from, as addresses for addr2line, and LATHER_FAULT_COUNTS=1 how many calls there are. */
static inline int faults_run(const char *name, const struct CMUnitTest *tests, size_t count,
                             CMFixtureFunction setup, CMFixtureFunction teardown)
{
    cmocka_set_test_filter(getenv("LATHER_FAULT_ROW"));
    return _cmocka_run_group_tests(name, tests, count, setup, teardown);
}

/* Returns true if call k + 1 is the first or the last of the action from its call site, identified by the frames, and
 * no earlier row failed such a call. */
static inline bool fault_is_new(int64_t k, int64_t calls)
{
    enum { SEEN = 1 << 18 };
    static uint64_t seen[SEEN];
    bool first = true, last = true;
    for (int64_t i = 0; i < calls && (first || last); i++) {
        first = first && !(i < k && fault_site[i] == fault_site[k]);
        last = last && !(i > k && fault_site[i] == fault_site[k]);
    }
    if (!first && !last)
        return false;
    const uint64_t key = first ? fault_site[k] : ~fault_site[k];
    size_t at = (size_t)(key >> 40) % SEEN;
    while (seen[at] && seen[at] != key)
        at = (at + 1) % SEEN;
    const bool new = seen[at] != key;
    seen[at] = key;
    return new;
}

/* Fails calls of the action, one at a time: the first and the last from each place in the program that no earlier row
 * reached; LATHER_TEST_FULL=1: each one. Returns how many calls there are. */
static inline int64_t faults_each(const fault_case *c)
{
    enum { SECONDS = 60 };
    const bool all = getenv("LATHER_TEST_FULL");
    int64_t failed = 0;
    fault_running = c;
    lt_log_set(fault_quiet, NULL);
    signal(SIGALRM, fault_hangs);
    (void)fault_try(c, FAULT_BEYOND, true); /* creates objects that are made once and kept */
    (void)fault_try(c, FAULT_BEYOND, false);
    const int64_t calls = FAULT_BEYOND - fault_left;
    if (calls < c->least || calls > FAULT_SITES)
        fail_msg("%s: %lld calls, want %lld to %d", c->name, (long long)calls, (long long)c->least,
                 FAULT_SITES);
    for (int64_t k = 0; k < calls; k++) {
        if (!all && !fault_is_new(k, calls))
            continue;
        alarm(SECONDS);
        failed += fault_try(c, k + 1, false);
    }
    alarm(0);
    lt_log_set(NULL, NULL);
    if (getenv("LATHER_FAULT_COUNTS"))
        printf("%s: %lld calls, of which %lld failed\n", c->name, (long long)calls,
               (long long)failed);
    return calls;
}

#endif
