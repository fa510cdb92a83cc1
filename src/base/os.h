/* System calls that POSIX lacks: os_*.c have a form for Linux and a portable one, which -Dportable=true selects on
 * Linux too. Only those files include Linux's headers (tools/check_includes). */
#ifndef LT_BASE_OS_H
#define LT_BASE_OS_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(__linux__) && !defined(LT_PORTABLE)
#define LT_LINUX 1
#else
#define LT_LINUX 0
#endif

/* --- Processes --- */

/* Opens a descriptor, closed by exec, that is readable once the process has ended: a pidfd. *fd is -1 on systems without
 * such descriptors. Returns false with errno on failure. */
bool lt_os_process_open(int *fd, pid_t pid);
/* Waits at most `seconds` (INFINITY: without limit) for the end of a process; fd: of lt_os_process_open(). Returns true
 * if it has ended. */
bool lt_os_process_wait(int fd, pid_t pid, double seconds);
/* Returns true if a child of this process has ended. Its status remains for waitpid(). */
bool lt_os_child_has_ended(pid_t pid);
/* Waits for a child. Returns its status, or -1 for another process. */
int lt_os_wait(pid_t pid);
/* Kills (SIGKILL) the other processes of this user that have the variable in their first environment. Returns their number;
 * portable: 0. */
int lt_os_kill_marked(const char *variable, const char *value);
/* Returns true if /proc/PID/stat has state T; false without such files. */
bool lt_os_is_stopped(pid_t process);
/* Lets the kernel send a signal to this process when its parent ends; portable: no effect. */
void lt_os_die_with_parent(int signal_);
/* Names this process in ps; portable: no effect. */
void lt_os_process_name(const char *name);
/* Writes the path of the running program. Portable: from argv[0]. Returns false if it is unknown. */
bool lt_os_program_path(char *path, size_t size);
/* Asks for the use of AMX's tiles (arch_prctl); portable: false. */
bool lt_os_request_tiles(void);
/* Returns true if the system reports ARM64's bf16 instructions (HWCAP2_BF16); portable: false. */
bool lt_os_has_bfdot(void);

/* --- Files --- */

/* pipe() whose ends are closed by exec. Returns 0, or -1 with errno. */
int lt_os_pipe(int ends[2]);
/* Closes all descriptors from `first` on. */
void lt_os_close_from(int first);
/* Opens an unnamed file in memory; portable: in TMPDIR or /tmp. Returns -1 with errno on failure. */
int lt_os_memory_file(const char *name);
/* Exchanges two paths in one step. Returns -1 with errno on failure; portable: always. */
int lt_os_exchange(const char *one, const char *other);
/* Starts read-ahead of a range; size 0: to the end. Portable: no effect. */
void lt_os_read_ahead(int fd, uint64_t offset, uint64_t size);
/* Fills bytes with random numbers of the kernel. Returns false with errno on failure. */
bool lt_os_random(void *bytes, size_t size);

/* Commands of fcntl() for locks. Linux: of an open file description, so that threads exclude each other; portable: of the
 * process, which loses them when it closes any descriptor of the file. */
#if LT_LINUX
enum { LT_SETLK = F_OFD_SETLK, LT_SETLKW = F_OFD_SETLKW, LT_GETLK = F_OFD_GETLK };
#else
enum { LT_SETLK = F_SETLK, LT_SETLKW = F_SETLKW, LT_GETLK = F_GETLK };
#endif

/* --- Sockets --- */

/* Flag of send(): no SIGPIPE. Where it is missing lt_os_socket() and lt_os_accept() set an option instead. */
#if defined(MSG_NOSIGNAL) || !defined(__APPLE__)
#define LT_NO_SIGPIPE MSG_NOSIGNAL
#else
#define LT_NO_SIGPIPE 0
#endif

/* Opens a stream socket that exec closes. Returns -1 with errno on failure. */
int lt_os_socket(int family, bool blocks);
/* Accepts a blocking connection that exec closes. Returns -1 with errno on failure. */
int lt_os_accept(int listener);
/* Returns the process at the other end of a Unix socket, or -1 if unknown. */
pid_t lt_os_peer(int fd);
/* --- Threads, memory, the C library --- */

/* Waits until *at differs from value, at most `seconds`; may return earlier. Works between processes that share the
 * memory. Portable: polls every millisecond. */
void lt_os_wait_while_equal(_Atomic uint32_t *at, uint32_t value, double seconds);
/* Wakes all that wait for a change of *at. */
void lt_os_wake_all(_Atomic uint32_t *at);
/* poll() with this signal mask: ppoll(). Portable: a signal just before it is noticed after the timeout. */
int lt_os_poll(struct pollfd *fds, size_t count, double seconds, const sigset_t *mask);
/* Requests the shortest scheduler slice, 0.1 ms, for the calling thread, which mostly waits for messages: on a busy core
 * it then runs sooner after waking, with an unchanged CPU share. Effective on Linux 6.12 and later, else a no-op.
 * sched(7), sched_setattr(2), "EEVDF: custom slices". */
void lt_sched_slice_shorten(void);
/* Sets the bits of the processors that this process may use; portable: of all online ones. */
void lt_os_affinity(uint64_t *mask, int words);
/* Maps zeroed memory that costs nothing until it is written, in huge pages if possible; munmap() frees it. NULL on
 * failure. */
void *lt_os_map(size_t bytes);
/* qsort_r() with the order of arguments that GNU has. */
void lt_os_sort(void *base, size_t count, size_t size,
                int (*compare)(const void *a, const void *b, void *context), void *context);

#endif
