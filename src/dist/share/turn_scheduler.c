/* A session's file on one device: who takes part, and which turn it is.
 *
 * 1. Only who has the lock on byte 0 reads or changes the table; the kernel gives it back when a process ends. Each
 *    change is valid after any of its stores, so a process may end in the middle of one.
 * 2. A job holds a lock on a byte of its own while it lives, which tells it from one that was killed, in another
 *    pid namespace and as a zombie too. These locks are of an open file description: ranks that are threads exclude
 *    each other as processes do.
 * 3. Who waits sleeps on a futex. A condition of pthreads would count a killed waiter for ever, and stop.
 * 4. The next turn is that of the smallest (stamp, start, job), whether its job is there for it or not; none at or
 *    behind the bound of a job that is joining. */

#include "dist/share/turn_scheduler.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/shared_file.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MEMBERS = 16, MAP_TEXT = 512 };
static const uint64_t MAGIC = UINT64_C(0x3165726168735F6C); /* "l_share1" */
/* A stamp's unit: turns of weights 1 to 24 have exact stamps, so that weights 1 and 3 meet every third time. */
static const int64_t ROUND = INT64_C(5354228880);

typedef enum member_state { FREE, JOINING, ACTIVE } member_state;

typedef struct member {
    int64_t job;
    int64_t weight;
    int64_t start; /* stamp of its join; while it is joining, the bound */
    int64_t taken; /* turns so far */
    int32_t pid;   /* for messages */
    int32_t state; /* member_state */
} member;

typedef struct table {
    uint64_t magic;
    _Atomic uint32_t wake; /* counts changes: what waiters sleep on */
    int32_t holder;        /* index of the member that computes, plus 1; 0: none */
    int64_t position;      /* stamp of the last turn that was given out */
    int64_t turns;         /* given out */
    int32_t rank, ranks;   /* which of a job's ranks this device is */
    uint64_t map_hash;
    char map[MAP_TEXT]; /* its begin, for messages */
    member member[MEMBERS];
} table;

struct lt_turnstile {
    char *path;
    int file, slot; /* slot -1: not a member */
    table *table;
    bool has_turn;
};

/* --- Locks --- */

static lt_status io_error(const char *path, const char *what)
{
    return lt_fail(LT_E_IO, "%s: %s: %s", path, what, strerror(errno));
}

static int set_lock(int file, int command, short type, off_t byte)
{
    struct flock range = {
        .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1}; /* l_pid 0 */
    int failed;
    do
        failed = fcntl(file, command, &range);
    while (failed && errno == EINTR);
    return failed;
}

static bool is_alive(const lt_turnstile *t, int slot)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};
    return slot == t->slot || (!fcntl(t->file, F_OFD_GETLK, &range) && range.l_type != F_UNLCK);
}

static lt_status lock(const lt_turnstile *t)
{
    return set_lock(t->file, F_OFD_SETLKW, F_WRLCK, 0) ? io_error(t->path, "lock") : LT_OK;
}

/* changed: waiters look again. */
static void unlock(const lt_turnstile *t, bool changed)
{
    if (changed)
        atomic_fetch_add(&t->table->wake, 1);
    set_lock(t->file, F_OFD_SETLK, F_UNLCK, 0);
    if (changed)
        syscall(SYS_futex, &t->table->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* --- The order of turns --- */

static int64_t stamp_of(const member *m)
{
    return m->start + (m->taken + 1) * ROUND / m->weight;
}

static bool is_before(const member *a, const member *b)
{
    const int64_t sa = stamp_of(a), sb = stamp_of(b);
    if (sa != sb)
        return sa < sb;
    return a->start != b->start ? a->start < b->start : a->job < b->job;
}

/* Whose turn is next; -1: no job's, or one that a joining job may still come before. */
static int next_turn(const table *tab)
{
    int best = -1;
    for (int i = 0; i < MEMBERS; i++)
        if (tab->member[i].state == ACTIVE
            && (best < 0 || is_before(&tab->member[i], &tab->member[best])))
            best = i;
    for (int i = 0; best >= 0 && i < MEMBERS; i++)
        if (tab->member[i].state == JOINING && stamp_of(&tab->member[best]) >= tab->member[i].start)
            return -1;
    return best;
}

/* Members that died have no turns, nor the device. Whether there were any. */
static bool drop_dead(const lt_turnstile *t)
{
    table *tab = t->table;
    bool any = false;
    for (int i = 0; i < MEMBERS; i++) {
        if (tab->member[i].state == FREE || is_alive(t, i))
            continue;
        if (tab->holder == i + 1)
            tab->holder = 0;
        tab->member[i].state = FREE;
        any = true;
    }
    return any;
}

/* --- The file --- */

/* The last one that leaves deletes the file; then it is of no use to who opened it just before. */
static bool has_name(const lt_turnstile *t)
{
    struct stat own, named;
    return !fstat(t->file, &own) && !stat(t->path, &named) && own.st_ino == named.st_ino
           && own.st_dev == named.st_dev;
}

/* Opens the file of that name, and locks it. */
static lt_status open_locked(lt_turnstile *t)
{
    do {
        if (t->file >= 0)
            close(t->file);
        LT_TRY(lt_shared_open(&t->file, t->path, O_RDWR | O_CREAT, 0600));
        LT_TRY(lock(t));
    } while (!has_name(t));
    return LT_OK;
}

static bool has_members(const lt_turnstile *t)
{
    bool any = false;
    for (int i = 0; i < MEMBERS; i++)
        any = any || is_alive(t, i);
    return any;
}

static bool is_sane(const table *tab)
{
    bool sane = tab->magic == MAGIC && tab->holder >= 0 && tab->holder <= MEMBERS;
    for (const member *m = tab->member; sane && m < tab->member + MEMBERS; m++)
        sane = m->state == FREE
               || (m->state > FREE && m->state <= ACTIVE && m->weight >= 1
                   && m->weight <= LT_SHARE_WEIGHT);
    return sane;
}

/* A file that no job lives in is stale, whatever it holds: it begins anew. */
static lt_status map_table(lt_turnstile *t)
{
    struct stat info;
    const bool used = has_members(t);
    if (fstat(t->file, &info))
        return io_error(t->path, "stat");
    if (used && (size_t)info.st_size != sizeof(table))
        return lt_fail(LT_E_IO, "%s: has %lld bytes, not %zu: jobs of another version share there",
                       t->path, (long long)info.st_size, sizeof(table));
    if (!used && (ftruncate(t->file, 0) || ftruncate(t->file, sizeof(table))))
        return io_error(t->path, "make");
    void *at = mmap(NULL, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED, t->file, 0);
    if (at == MAP_FAILED)
        return io_error(t->path, "map");
    t->table = at;
    if (!used)
        t->table->magic = MAGIC;
    return is_sane(t->table) ? LT_OK : lt_fail(LT_E_IO, "%s: is damaged, and in use", t->path);
}

/* --- Joining and leaving --- */

static lt_status check_map(const lt_turnstile *t, const lt_turnstile_job *job)
{
    const table *tab = t->table;
    const uint64_t hash = lt_fnv1a_text(LT_FNV1A_BEGIN, job->map);
    if (tab->rank == job->rank && tab->ranks == job->ranks && tab->map_hash == hash)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "%s: this device is rank %d of %d of this job, rank %d of %d of the others; all jobs of "
        "a session want the same ranks on the same devices, these are on %s, the others' on %s",
        t->path, job->rank, job->ranks, tab->rank, tab->ranks, job->map, tab->map);
}

static lt_status join_map(const lt_turnstile *t, const lt_turnstile_job *job)
{
    table *tab = t->table;
    drop_dead(t);
    if (tab->ranks) /* one that begins is zeros */
        return check_map(t, job);
    tab->rank = job->rank;
    tab->ranks = job->ranks;
    tab->map_hash = lt_fnv1a_text(LT_FNV1A_BEGIN, job->map);
    snprintf(tab->map, MAP_TEXT, "%s", job->map);
    return LT_OK;
}

static lt_status add_member(lt_turnstile *t, const lt_turnstile_job *job, int64_t *bound)
{
    table *tab = t->table;
    LT_TRY(join_map(t, job));
    int slot = 0;
    while (slot < MEMBERS && tab->member[slot].state != FREE)
        slot++;
    if (slot == MEMBERS)
        return lt_fail(LT_E_UNSUPPORTED, "%s: %d jobs share this device, more are not possible",
                       t->path, MEMBERS);
    if (set_lock(t->file, F_OFD_SETLK, F_WRLCK, 1 + slot))
        return io_error(t->path, "lock");
    t->slot = slot;
    *bound = tab->position + ROUND; /* others have a round while the ranks agree */
    tab->member[slot] = (member){
        .job = job->id, .weight = job->weight, .start = *bound, .pid = getpid(), .state = JOINING};
    return LT_OK;
}

lt_status lt_turnstile_propose(lt_turnstile **out, const char *path, const lt_turnstile_job *job,
                               int64_t *bound)
{
    lt_turnstile *t = lt_alloc(1, sizeof *t);
    if (!t)
        return LT_E_NOMEM;
    t->file = t->slot = -1;
    t->path = lt_strdup(path);
    lt_status st = t->path ? open_locked(t) : LT_E_NOMEM;
    if (!st) {
        st = map_table(t);
        if (!st)
            st = add_member(t, job, bound);
        set_lock(t->file, F_OFD_SETLK, F_UNLCK, 0);
    }
    if (st)
        lt_turnstile_close(&t);
    else
        *out = t;
    return st;
}

lt_status lt_turnstile_confirm(lt_turnstile *t, int64_t start)
{
    member *own = &t->table->member[t->slot];
    LT_TRY(lock(t));
    own->start = start;
    own->state = ACTIVE;
    unlock(t, true);
    return LT_OK;
}

static void leave(lt_turnstile *t)
{
    table *tab = t->table;
    if (lock(t))
        return; /* the kernel ends its locks, and with them its turns */
    if (tab->holder == t->slot + 1)
        tab->holder = 0;
    tab->member[t->slot].state = FREE;
    set_lock(t->file, F_OFD_SETLK, F_UNLCK, 1 + t->slot);
    t->slot = -1;
    if (!has_members(t) && has_name(t))
        unlink(t->path);
    unlock(t, true);
}

void lt_turnstile_close(lt_turnstile **turnstile)
{
    lt_turnstile *t = *turnstile;
    *turnstile = NULL;
    if (!t)
        return;
    if (t->slot >= 0)
        leave(t);
    if (t->table)
        munmap(t->table, sizeof *t->table);
    if (t->file >= 0)
        close(t->file);
    lt_free(t->path);
    lt_free(t);
}

/* --- Turns --- */

static void give_out(lt_turnstile *t, lt_share_turn *turn)
{
    table *tab = t->table;
    member *own = &tab->member[t->slot];
    tab->position = stamp_of(own);
    tab->holder = t->slot + 1;
    own->taken++;
    turn->number = ++tab->turns;
    t->has_turn = true;
}

static lt_status too_late(const lt_turnstile *t, double seconds, int blamed, bool holds)
{
    return lt_fail(LT_E_COMM, "%s: no turn for %.0f s: process %d %s", t->path, seconds,
                   blamed < 0 ? 0 : (int)t->table->member[blamed].pid,
                   holds         ? "keeps the device"
                   : blamed >= 0 ? "does not come for its turn"
                                 : "(unknown) is joining and stuck");
}

/* Takes the turn if it is this job's, else sleeps a while; *done says which. */
static lt_status try_turn(lt_turnstile *t, double until, lt_share_turn *turn, bool *done)
{
    const struct timespec poll = {.tv_nsec = 100000000}; /* how late a death may be seen */
    table *tab = t->table;
    LT_TRY(lock(t));
    const bool changed = drop_dead(t);
    const int next = next_turn(tab), holder = tab->holder - 1;
    *done = holder < 0 && next == t->slot;
    if (*done)
        give_out(t, turn);
    const uint32_t seen = atomic_load(&tab->wake) + changed;
    unlock(t, changed);
    if (*done)
        return LT_OK;
    if (until > 0 && lt_clock_seconds() > until)
        return too_late(t, turn->seconds, holder >= 0 ? holder : next, holder >= 0);
    syscall(SYS_futex, &tab->wake, FUTEX_WAIT, seen, &poll, NULL, 0);
    return LT_OK;
}

lt_status lt_turnstile_take(lt_turnstile *t, double deadline, lt_share_turn *turn)
{
    const double begin = lt_clock_seconds();
    bool done = false;
    if (t->has_turn)
        return lt_fail(LT_E_ARG, "share: a turn was begun, and not ended");
    while (!done) {
        turn->seconds = lt_clock_seconds() - begin;
        LT_TRY(try_turn(t, deadline > 0 ? begin + deadline : 0, turn, &done));
    }
    turn->seconds = lt_clock_seconds() - begin;
    return LT_OK;
}

lt_status lt_turnstile_give(lt_turnstile *t)
{
    if (!t->has_turn)
        return lt_fail(LT_E_ARG, "share: no turn was begun");
    LT_TRY(lock(t));
    t->table->holder = 0;
    t->has_turn = false;
    unlock(t, true);
    return LT_OK;
}
