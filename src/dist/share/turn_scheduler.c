/* Turn scheduler: a session's file on one device, with its jobs and the current turn.
 *
 * 1. The table is accessed only with the lock on byte 0, which the kernel releases when a process ends. The table is
 *    valid after each store, so a process may end in the middle of a change.
 * 2. A live job holds a lock on its member's byte, which distinguishes it from a killed one even in another pid namespace
 *    or as a zombie. Locks belong to an open file description: threads exclude each other as processes do.
 * 3. Waiters sleep on a futex: a pthread condition would count a killed waiter forever and block.
 * 4. The next turn is that of the smallest (stamp, start, job), even if its job does not ask for it yet; no turn starts
 *    at or after the bound of a joining job. */

#include "dist/share/turn_scheduler.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/os.h"
#include "base/shared_file.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMBERS = 16, MAP_TEXT = 512 };
static const uint64_t MAGIC = UINT64_C(0x3165726168735F6C); /* "l_share1" */
/* Stamp increment of weight 1. Divisible by the weights 1 to 24, whose stamps are therefore exact. */
static const int64_t ROUND = INT64_C(5354228880);

typedef enum member_state { FREE, JOINING, ACTIVE } member_state;

typedef struct member {
    int64_t job;
    int64_t weight;
    int64_t start; /* stamp of its join; the bound while it is joining */
    int64_t taken; /* number of turns so far */
    int32_t pid;   /* for messages */
    int32_t state; /* member_state */
} member;

typedef struct table {
    uint64_t magic;
    _Atomic uint32_t wake; /* futex that counts changes */
    int32_t holder;        /* 1 + index of the member that computes; 0 if none does */
    int64_t position;      /* stamp of the last turn that started */
    int64_t turns;         /* number of turns so far */
    int32_t rank, ranks;   /* rank of each job that uses this device, and number of ranks */
    uint64_t map_hash;
    char map[MAP_TEXT]; /* truncated map, for messages */
    member member[MEMBERS];
} table;

struct lt_turn_scheduler {
    char *path;
    int file, slot; /* slot: index in table.member, -1 if not a member */
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

static bool is_alive(const lt_turn_scheduler *t, int slot)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1 + slot, .l_len = 1};
    return slot == t->slot || (!fcntl(t->file, LT_GETLK, &range) && range.l_type != F_UNLCK);
}

static lt_status lock_table(const lt_turn_scheduler *t)
{
    return set_lock(t->file, LT_SETLKW, F_WRLCK, 0) ? io_error(t->path, "lock") : LT_OK;
}

/* Releases the lock; changed: wakes the waiters. */
static void unlock_table(const lt_turn_scheduler *t, bool changed)
{
    if (changed)
        atomic_fetch_add(&t->table->wake, 1);
    set_lock(t->file, LT_SETLK, F_UNLCK, 0);
    if (changed)
        lt_os_wake_all(&t->table->wake);
}

/* --- The order of turns --- */

static int64_t next_stamp(const member *m)
{
    return m->start + (m->taken + 1) * ROUND / m->weight;
}

static bool is_turn_before(const member *a, const member *b)
{
    const int64_t sa = next_stamp(a), sb = next_stamp(b);
    if (sa != sb)
        return sa < sb;
    return a->start != b->start ? a->start < b->start : a->job < b->job;
}

/* Returns the member whose turn is next; -1 if there is no job, or a joining job may precede it. */
static int next_turn_member(const table *tab)
{
    int best = -1;
    for (int i = 0; i < MEMBERS; i++)
        if (tab->member[i].state == ACTIVE
            && (best < 0 || is_turn_before(&tab->member[i], &tab->member[best])))
            best = i;
    for (int i = 0; best >= 0 && i < MEMBERS; i++)
        if (tab->member[i].state == JOINING
            && next_stamp(&tab->member[best]) >= tab->member[i].start)
            return -1;
    return best;
}

/* Removes members that died; returns true if there were any. */
static bool remove_dead_members(const lt_turn_scheduler *t)
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

/* Returns false if the last job deleted the file after this process opened it. */
static bool is_still_linked(const lt_turn_scheduler *t)
{
    struct stat own, named;
    return !fstat(t->file, &own) && !stat(t->path, &named) && own.st_ino == named.st_ino
           && own.st_dev == named.st_dev;
}

/* Opens the file, creating it if absent, and locks it. */
static lt_status open_locked(lt_turn_scheduler *t)
{
    do {
        if (t->file >= 0)
            close(t->file);
        LT_TRY(lt_shared_open(&t->file, t->path, O_RDWR | O_CREAT, 0600));
        LT_TRY(lock_table(t));
    } while (!is_still_linked(t));
    return LT_OK;
}

static bool has_members(const lt_turn_scheduler *t)
{
    bool any = false;
    for (int i = 0; i < MEMBERS; i++)
        any = any || is_alive(t, i);
    return any;
}

static bool is_valid_table(const table *tab)
{
    bool sane = tab->magic == MAGIC && tab->holder >= 0 && tab->holder <= MEMBERS;
    for (const member *m = tab->member; sane && m < tab->member + MEMBERS; m++)
        sane = m->state == FREE
               || (m->state > FREE && m->state <= ACTIVE && m->weight >= 1
                   && m->weight <= LT_SHARE_WEIGHT);
    return sane;
}

/* Maps the table. A file without live jobs is stale and is cleared. */
static lt_status map_table(lt_turn_scheduler *t)
{
    struct stat info;
    const bool used = has_members(t);
    if (fstat(t->file, &info))
        return io_error(t->path, "stat");
    if (used && (size_t)info.st_size != sizeof(table))
        return lt_fail(LT_E_IO, "%s: has %lld bytes, want %zu: jobs of another version use it",
                       t->path, (long long)info.st_size, sizeof(table));
    if (!used && (ftruncate(t->file, 0) || ftruncate(t->file, sizeof(table))))
        return io_error(t->path, "truncate");
    void *at = mmap(NULL, sizeof(table), PROT_READ | PROT_WRITE, MAP_SHARED, t->file, 0);
    if (at == MAP_FAILED)
        return io_error(t->path, "map");
    t->table = at;
    if (!used)
        t->table->magic = MAGIC;
    return is_valid_table(t->table) ? LT_OK : lt_fail(LT_E_IO, "%s: corrupt, and in use", t->path);
}

/* --- Joining and leaving --- */

static lt_status check_device_map(const lt_turn_scheduler *t, const lt_turn_job *job)
{
    const table *tab = t->table;
    const uint64_t hash = lt_fnv1a_text(LT_FNV1A_BEGIN, job->map);
    if (tab->rank == job->rank && tab->ranks == job->ranks && tab->map_hash == hash)
        return LT_OK;
    return lt_fail(
        LT_E_ARG,
        "%s: this device is rank %d of %d of this job, rank %d of %d of the others; all jobs of a "
        "session need the same ranks on the same devices: this job is on %s, the others on %s",
        t->path, job->rank, job->ranks, tab->rank, tab->ranks, job->map, tab->map);
}

static lt_status set_or_check_device_map(const lt_turn_scheduler *t, const lt_turn_job *job)
{
    table *tab = t->table;
    remove_dead_members(t);
    if (tab->ranks) /* 0 in a new table */
        return check_device_map(t, job);
    tab->rank = job->rank;
    tab->ranks = job->ranks;
    tab->map_hash = lt_fnv1a_text(LT_FNV1A_BEGIN, job->map);
    snprintf(tab->map, MAP_TEXT, "%s", job->map);
    return LT_OK;
}

static lt_status add_member(lt_turn_scheduler *t, const lt_turn_job *job, int64_t *bound)
{
    table *tab = t->table;
    LT_TRY(set_or_check_device_map(t, job));
    int slot = 0;
    while (slot < MEMBERS && tab->member[slot].state != FREE)
        slot++;
    if (slot == MEMBERS)
        return lt_fail(LT_E_UNSUPPORTED, "%s: %d jobs share this device already, the maximum",
                       t->path, MEMBERS);
    if (set_lock(t->file, LT_SETLK, F_WRLCK, 1 + slot))
        return io_error(t->path, "lock");
    t->slot = slot;
    *bound = tab->position + ROUND; /* others run for a round while this job's ranks agree */
    tab->member[slot] = (member){
        .job = job->id, .weight = job->weight, .start = *bound, .pid = getpid(), .state = JOINING};
    return LT_OK;
}

lt_status lt_turn_begin_join(lt_turn_scheduler **out, const char *path, const lt_turn_job *job,
                             int64_t *bound)
{
    lt_turn_scheduler *t = NULL;
    LT_TRY(LT_ALLOC(&t, 1));
    t->file = t->slot = -1;
    t->path = lt_strdup(path);
    lt_status st = t->path ? open_locked(t) : LT_E_NOMEM;
    if (!st) {
        st = map_table(t);
        if (!st)
            st = add_member(t, job, bound);
        set_lock(t->file, LT_SETLK, F_UNLCK, 0);
    }
    if (st)
        lt_turn_close(&t);
    else
        *out = t;
    return st;
}

lt_status lt_turn_finish_join(lt_turn_scheduler *t, int64_t start)
{
    member *own = &t->table->member[t->slot];
    LT_TRY(lock_table(t));
    own->start = start;
    own->state = ACTIVE;
    unlock_table(t, true);
    return LT_OK;
}

static void leave_session(lt_turn_scheduler *t)
{
    table *tab = t->table;
    if (lock_table(t))
        return; /* the kernel releases this job's locks at its end, which ends its turns */
    if (tab->holder == t->slot + 1)
        tab->holder = 0;
    tab->member[t->slot].state = FREE;
    set_lock(t->file, LT_SETLK, F_UNLCK, 1 + t->slot);
    t->slot = -1;
    if (!has_members(t) && is_still_linked(t))
        unlink(t->path);
    unlock_table(t, true);
}

void lt_turn_close(lt_turn_scheduler **scheduler)
{
    lt_turn_scheduler *t = *scheduler;
    *scheduler = NULL;
    if (!t)
        return;
    if (t->slot >= 0)
        leave_session(t);
    if (t->table)
        munmap(t->table, sizeof *t->table);
    if (t->file >= 0)
        close(t->file);
    lt_free(t->path);
    lt_free(t);
}

/* --- Turns --- */

/* Starts this job's turn. The caller holds the lock. */
static void start_turn(lt_turn_scheduler *t, lt_share_turn *turn)
{
    table *tab = t->table;
    member *own = &tab->member[t->slot];
    tab->position = next_stamp(own);
    tab->holder = t->slot + 1;
    own->taken++;
    turn->number = ++tab->turns;
    t->has_turn = true;
}

static lt_status turn_timeout_error(const lt_turn_scheduler *t, double seconds, int blamed,
                                    bool holds)
{
    return lt_fail(LT_E_COMM, "%s: no turn for %.0f s: process %d %s", t->path, seconds,
                   blamed < 0 ? 0 : (int)t->table->member[blamed].pid,
                   holds         ? "does not end its turn"
                   : blamed >= 0 ? "does not take its turn"
                                 : "(unknown) does not finish joining");
}

/* Takes the turn and sets *done if it is this job's, else sleeps until a change or a poll. */
static lt_status try_turn(lt_turn_scheduler *t, double until, lt_share_turn *turn, bool *done)
{
    const double poll = 0.1; /* maximum delay until a death is noticed */
    table *tab = t->table;
    LT_TRY(lock_table(t));
    const bool changed = remove_dead_members(t);
    const int next = next_turn_member(tab), holder = tab->holder - 1;
    *done = holder < 0 && next == t->slot;
    if (*done)
        start_turn(t, turn);
    const uint32_t seen = atomic_load(&tab->wake) + changed;
    unlock_table(t, changed);
    if (*done)
        return LT_OK;
    if (until > 0 && lt_clock_seconds() > until)
        return turn_timeout_error(t, turn->seconds, holder >= 0 ? holder : next, holder >= 0);
    lt_os_wait_while_equal(&tab->wake, seen, poll);
    return LT_OK;
}

lt_status lt_turn_begin(lt_turn_scheduler *t, double deadline, lt_share_turn *turn)
{
    const double begin = lt_clock_seconds();
    bool done = false;
    if (t->has_turn)
        return lt_fail(LT_E_ARG, "share: lt_share_begin() without lt_share_end() of the last turn");
    while (!done) {
        turn->seconds = lt_clock_seconds() - begin;
        LT_TRY(try_turn(t, deadline > 0 ? begin + deadline : 0, turn, &done));
    }
    turn->seconds = lt_clock_seconds() - begin;
    return LT_OK;
}

lt_status lt_turn_end(lt_turn_scheduler *t)
{
    if (!t->has_turn)
        return lt_fail(LT_E_ARG, "share: lt_share_end() without lt_share_begin()");
    LT_TRY(lock_table(t));
    t->table->holder = 0;
    t->has_turn = false;
    unlock_table(t, true);
    return LT_OK;
}
