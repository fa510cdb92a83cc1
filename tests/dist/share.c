/* Device time-sharing: ranks are threads, and each device is a file in the test's folder. */

#include "lather/share.h"

#include "base/clock.h"
#include "base/os.h"
#include "temp_folder.h"

#include "lather/device.h"
#include "lather/ext/fail.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { RANKS = 2, JOBS = 3, MOST_TURNS = 512, PATIENCE = 120, WAITS_AT = 25 };

/* A turn as a rank saw it. */
typedef struct seen {
    int job, turn;
    int64_t number;
    double begin, end;
} seen;

/* Configuration of a job. */
typedef struct job {
    int weight, ranks;
    int turns;  /* 0: until all other jobs are done */
    int late;   /* number of job 0's turns after which it joins */
    bool waits; /* for its other rank, within a turn */
} job;

typedef struct player {
    const job *job;
    int index, rank;
    lt_device *device;
    lt_comm *comm;
    seen turn[MOST_TURNS];
    int turns;
    lt_status status;
    char why[512];
    pthread_t thread;
} player;

static player players[JOBS][RANKS];
/* to_open, to_join: ranks that have not opened the session yet; to_join those that are late. */
static _Atomic int taken_by_first, running, to_open, to_join;

static lt_share_config config_of(lt_comm *comm, int weight)
{
    return (lt_share_config){.session = "row",
                             .weight = weight,
                             .comm = comm,
                             .device = "cpu",
                             .folder = folder,
                             .deadline = PATIENCE};
}

static void pause_briefly(void)
{
    usleep(200);
}

static lt_status take_turn(player *p, lt_share *share)
{
    lt_share_turn turn;
    seen *s = &p->turn[p->turns];
    LT_TRY(lt_share_begin(share, &turn));
    s->begin = lt_clock_seconds();
    if (p->job->waits)
        LT_TRY(lt_comm_barrier(p->comm));
    pause_briefly();
    s->end = lt_clock_seconds();
    s->number = turn.number;
    s->job = p->index;
    s->turn = p->turns++;
    if (!p->index && !p->rank)
        taken_by_first++;
    return lt_share_end(share);
}

static lt_status take_turns(player *p, lt_share *share)
{
    const job *j = p->job;
    while (p->turns < (j->turns ? j->turns : MOST_TURNS)) {
        if (!j->turns && running == j->ranks)
            return LT_OK;
        while (!p->index && p->turns == WAITS_AT && to_join)
            pause_briefly();
        LT_TRY(take_turn(p, share));
        if (p->comm)
            LT_TRY(lt_comm_barrier(p->comm)); /* stands for the reduction of gradients */
    }
    return LT_OK;
}

static void *play(void *context)
{
    player *p = context;
    lt_share *share = NULL;
    const lt_share_config c = config_of(p->comm, p->job->weight);
    while (p->job->late > taken_by_first)
        pause_briefly();
    p->status = lt_share_open(&share, &c);
    if (p->job->late)
        to_join--;
    else
        for (to_open--; to_open;) /* a session ends with its last job: start together */
            pause_briefly();
    if (!p->status)
        p->status = take_turns(p, share);
    if (p->status)
        snprintf(p->why, sizeof p->why, "%s", lt_error_message());
    lt_share_close(&share);
    running--;
    return NULL;
}

static void open_job(int index, const job *j)
{
    lt_device *device[RANKS];
    lt_comm *comm[RANKS] = {NULL};
    for (int r = 0; r < j->ranks; r++) {
        player *p = &players[index][r];
        *p = (player){.job = j, .index = index, .rank = r};
        assert_ok(lt_device_open(&p->device, "ref", NULL));
        device[r] = p->device;
    }
    if (j->ranks > 1)
        assert_ok(lt_comm_open_threads(comm, device, j->ranks));
    for (int r = 0; r < j->ranks; r++)
        players[index][r].comm = comm[r];
}

static void play_jobs(const job *jobs, int count)
{
    taken_by_first = running = to_open = to_join = 0;
    for (int i = 0; i < count; i++) {
        open_job(i, &jobs[i]);
        running += jobs[i].ranks;
        *(jobs[i].late ? &to_join : &to_open) += jobs[i].ranks;
    }
    for (int i = 0; i < count; i++)
        for (int r = 0; r < jobs[i].ranks; r++) {
            player *p = &players[i][r];
            assert_int_equal(pthread_create(&p->thread, NULL, play, p), 0);
        }
    for (int i = 0; i < count; i++)
        for (int r = 0; r < jobs[i].ranks; r++)
            pthread_join(players[i][r].thread, NULL);
    for (int i = 0; i < count; i++)
        for (int r = 0; r < jobs[i].ranks; r++) {
            lt_comm_close(&players[i][r].comm);
            lt_device_close(&players[i][r].device);
        }
}

static void play_well(const job *jobs, int count)
{
    play_jobs(jobs, count);
    for (int i = 0; i < count; i++)
        for (int r = 0; r < jobs[i].ranks; r++)
            if (players[i][r].status)
                fail_msg("job %d, rank %d: %s", i, r, players[i][r].why);
}

static int by_begin(const void *a, const void *b)
{
    const seen *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* All turns on the device of a rank, in order of time. */
static int turns_on(int rank, int jobs, seen out[JOBS * MOST_TURNS])
{
    int count = 0;
    for (int i = 0; i < jobs; i++)
        for (int k = 0; rank < players[i][0].job->ranks && k < players[i][rank].turns; k++)
            out[count++] = players[i][rank].turn[k];
    qsort(out, (size_t)count, sizeof *out, by_begin);
    return count;
}

static void assert_in_turn(int rank, int jobs)
{
    static seen s[JOBS * MOST_TURNS];
    const int count = turns_on(rank, jobs, s);
    for (int i = 0; i < count; i++)
        assert_int_equal(s[i].number, i + 1);
    for (int i = 1; i < count; i++)
        if (!(s[i].begin >= s[i - 1].end))
            fail_msg("turn %d begins before the previous one ends", i + 1);
}

static void assert_same_turns(int jobs)
{
    static seen a[JOBS * MOST_TURNS], b[JOBS * MOST_TURNS];
    const int count = turns_on(0, jobs, a);
    assert_int_equal(turns_on(1, jobs, b), count);
    for (int i = 0; i < count; i++)
        if (a[i].job != b[i].job || a[i].turn != b[i].turn || a[i].number != b[i].number)
            fail_msg("turn %d is turn %d of job %d on one device, %d of %d on the other", i + 1,
                     a[i].turn, a[i].job, b[i].turn, b[i].job);
}

/* Returns the second job's fraction of the turns while both jobs were present. */
static double part_of_second(void)
{
    static seen s[JOBS * MOST_TURNS];
    const int count = turns_on(0, 2, s);
    int first = 0, last = 0, second = 0;
    while (first < count && !s[first].job)
        first++;
    for (int i = first; i < count; i++)
        if (!s[i].job)
            last = i;
    for (int i = first; i <= last; i++)
        second += s[i].job;
    return (double)second / (last + 1 - first);
}

/* --- Rows --- */

static void test_disjoint(void **state)
{
    (void)state;
    const job jobs[] = {{.weight = 1, .ranks = 1, .turns = 100},
                        {.weight = 2, .ranks = 1, .turns = 150},
                        {.weight = 5, .ranks = 1, .turns = 50}};
    play_well(jobs, 3);
    assert_in_turn(0, 3);
}

static void test_same(void **state)
{
    (void)state;
    const job jobs[] = {{.weight = 1, .ranks = 2, .turns = 60, .waits = true},
                        {.weight = 2, .ranks = 2, .turns = 90, .waits = true},
                        {.weight = 3, .ranks = 2, .turns = 40, .waits = true, .late = 20}};
    play_well(jobs, 3);
    for (int r = 0; r < RANKS; r++)
        assert_in_turn(r, 3);
    assert_same_turns(3);
    assert_int_equal(temp_count(folder, ""), 0);
}

static void test_weights(void **state)
{
    (void)state;
    const job jobs[] = {{.weight = 1, .ranks = 1, .turns = 100},
                        {.weight = 3, .ranks = 1, .turns = 300}};
    play_well(jobs, 2);
    const double part = part_of_second();
    if (!(part >= 0.98 * 0.75 && part <= 1.02 * 0.75))
        fail_msg("weights 1 and 3: %.4f of the turns are the second job's", part);
}

/* Starts a process that takes a turn and never ends it. */
static pid_t start_holder(lt_share *other)
{
    int ready[2];
    char byte;
    lt_share_turn turn;
    assert_int_equal(pipe(ready), 0);
    assert_ok(lt_share_begin(other, &turn));
    assert_ok(lt_share_end(other));
    pid_t child = fork();
    if (!child) {
        lt_share *own = NULL;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* in case the test fails */
        const lt_share_config c = config_of(NULL, 1);
        bool good = !lt_share_open(&own, &c) && write(ready[1], "", 1) == 1
                    && !lt_share_begin(own, &turn) && write(ready[1], "", 1) == 1;
        if (good)
            for (;;)
                pause();
        _exit(1);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    for (int i = 0; i < 2; i++) { /* the child joined a round later and loses ties */
        assert_ok(lt_share_begin(other, &turn));
        assert_ok(lt_share_end(other));
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void test_killed(void **state)
{
    (void)state;
    lt_share *share = NULL;
    lt_share_turn turn;
    const lt_share_config c = config_of(NULL, 1);
    assert_ok(lt_share_open(&share, &c));
    pid_t child = start_holder(share);
    const double killed = lt_clock_seconds();
    assert_int_equal(kill(child, SIGKILL), 0); /* it is now a zombie without locks */
    assert_ok(lt_share_begin(share, &turn));
    printf("the device of a killed job was free after %.3f s\n", lt_clock_seconds() - killed);
    assert_ok(lt_share_end(share));
    for (int i = 0; i < 5; i++) { /* it has no turns either */
        assert_ok(lt_share_begin(share, &turn));
        assert_ok(lt_share_end(share));
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    lt_share_close(&share);
}

/* share's job gets no turn: the process of another job does not end, or not take, its own. */
static void assert_blamed(lt_share *share, pid_t process, const char *what)
{
    lt_share_turn turn;
    char blame[96];
    snprintf(blame, sizeof blame, "process %d does not %s its turn", (int)process, what);
    assert_int_equal(lt_share_begin(share, &turn), LT_E_COMM);
    if (!strstr(lt_error_message(), blame))
        fail_msg("'%s' without '%s'", lt_error_message(), blame);
}

static void test_deadline(void **state)
{
    (void)state;
    lt_share *share = NULL, *second = NULL;
    lt_share_turn turn;
    lt_share_config c = config_of(NULL, 1);
    c.deadline = 0.3;
    assert_ok(lt_share_open(&share, &c));
    pid_t child = start_holder(share);
    assert_blamed(share, child, "end");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_ok(lt_share_begin(share, &turn)); /* the first job of the session */
    assert_ok(lt_share_open(&second, &c));
    assert_blamed(second, getpid(), "end");
    assert_ok(lt_share_end(share));
    while (!lt_share_begin(second, &turn)) /* until it is the first's turn */
        assert_ok(lt_share_end(second));
    assert_blamed(second, getpid(), "take");
    lt_share_close(&second);
    lt_share_close(&share);
}

static void test_order_of_calls(void **state)
{
    (void)state;
    lt_share *share = NULL;
    lt_share_turn turn;
    const lt_share_config c = config_of(NULL, 1);
    assert_ok(lt_share_open(&share, &c));
    assert_int_equal(lt_share_end(share), LT_E_ARG);
    assert_ok(lt_share_begin(share, &turn));
    assert_int_equal(lt_share_begin(share, &turn), LT_E_ARG);
    assert_ok(lt_share_end(share));
    assert_int_equal(lt_share_end(share), LT_E_ARG);
    lt_share_close(&share);
}

/* A job of two ranks in a session with a job of one. */
static void test_maps(void **state)
{
    (void)state;
    lt_share *share = NULL;
    const lt_share_config c = config_of(NULL, 1);
    const job two = {.weight = 1, .ranks = 2, .turns = 1};
    assert_ok(lt_share_open(&share, &c));
    play_jobs(&two, 1);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(players[0][r].status, LT_E_ARG);
        if (!strstr(players[0][r].why, "rank 0 of 2 of this job, rank 0 of 1 of the others"))
            fail_msg("rank %d: %s", r, players[0][r].why);
    }
    lt_share_close(&share);
    play_well(&two, 1); /* succeeds without the other job */
}

static void session_path(char *path)
{
    temp_path(path, folder, "lather-row-cpu.0");
}

static void test_stale(void **state)
{
    (void)state;
    char path[TEMP_PATH], noise[3000];
    lt_share *share = NULL;
    lt_share_turn turn;
    const lt_share_config c = config_of(NULL, 1);
    memset(noise, 0x5A, sizeof noise);
    session_path(path);
    for (size_t bytes = 0; bytes <= sizeof noise; bytes += 1000) {
        temp_write(path, noise, bytes);
        assert_ok(lt_share_open(&share, &c));
        assert_ok(lt_share_begin(share, &turn));
        assert_int_equal(turn.number, 1);
        lt_share_close(&share);
        assert_false(temp_exists("lather-row-cpu.0"));
    }
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(lt_share_open(&share, &c), LT_E_IO);
}

/* A corrupt file is not cleared while another job uses it. */
static void test_damaged(void **state)
{
    enum { HOLDER = 12, FIRST = 560, WEIGHT = FIRST + 8, STATE = FIRST + 36, ACTIVE = 2 };
    static const struct {
        off_t at;
        uint8_t bytes;
        bool valid;
        int64_t value;
    } fields[] = {{HOLDER, 4, .value = -1},
                  {HOLDER, 4, .value = 17},
                  {HOLDER, 4, .value = 16, .valid = true},
                  {WEIGHT, 8, .value = 0},
                  {WEIGHT, 8, .value = 1001},
                  {WEIGHT, 8, .value = 1000, .valid = true},
                  {STATE, 4, .value = -1},
                  {STATE, 4, .value = ACTIVE + 1}};
    (void)state;
    char path[TEMP_PATH];
    lt_share *share = NULL, *other = NULL;
    const lt_share_config c = config_of(NULL, 1);
    session_path(path);
    assert_ok(lt_share_open(&share, &c));
    int file = open(path, O_RDWR);
    assert_true(file >= 0);
    for (size_t i = 0; i < COUNT_OF(fields); i++) {
        int64_t old;
        assert_int_equal(pread(file, &old, fields[i].bytes, fields[i].at), fields[i].bytes);
        pwrite(file, &fields[i].value, fields[i].bytes, fields[i].at);
        if (lt_share_open(&other, &c) != (fields[i].valid ? LT_OK : LT_E_IO))
            fail_msg("%lld at byte %d: '%s'", (long long)fields[i].value, (int)fields[i].at,
                     lt_error_message());
        lt_share_close(&other);
        pwrite(file, &old, fields[i].bytes, fields[i].at);
    }
    assert_int_equal(pwrite(file, "nonsense", 8, 0), 8);
    assert_int_equal(lt_share_open(&other, &c), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "corrupt, and in use"));
    assert_int_equal(ftruncate(file, 10000), 0);
    assert_int_equal(lt_share_open(&other, &c), LT_E_IO);
    assert_non_null(strstr(lt_error_message(), "has 10000 bytes, want "));
    close(file);
    lt_share_close(&share);
}

static void test_too_many(void **state)
{
    (void)state;
    enum { MOST = 16 };
    lt_share *share[MOST + 1] = {NULL};
    const lt_share_config c = config_of(NULL, 1);
    for (int i = 0; i < MOST; i++)
        assert_ok(lt_share_open(&share[i], &c));
    assert_int_equal(lt_share_open(&share[MOST], &c), LT_E_UNSUPPORTED);
    lt_share_close(&share[3]);
    assert_ok(lt_share_open(&share[MOST], &c));
    for (int i = 0; i <= MOST; i++)
        lt_share_close(&share[i]);
}

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text, *session;
        int weight;
    } good[] = {{"night", "night", 1}, {"a.b_c-9:3", "a.b_c-9", 3}, {"x:1000", "x", 1000}};
    static const char *const bad[] = {
        "",      ":2",   "a:",
        "a:0",   "a:-1", "a:1001",
        "a:1.5", "a:2x", "a/b",
        "..:1 ", "a b",  "a0123456789012345678901234567890123456789012345678901234567890123"};
    lt_share_config c;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_ok(lt_share_parse(&c, good[i].text));
        assert_string_equal(c.session, good[i].session);
        assert_int_equal(c.weight, good[i].weight);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        if (lt_share_parse(&c, bad[i]) != LT_E_ARG)
            fail_msg("'%s' is accepted", bad[i]);
    assert_int_equal(lt_share_parse(&c, "a:0"), LT_E_ARG);
    assert_string_equal(lt_error_message(), "share: weight 0, want a number from 1 to 1000");
}

#define ROW(name, test)                             \
    {                                               \
        name, test, temp_setup, temp_teardown, NULL \
    }

int main(void)
{
    enum { SKIPPED = 77 };
    if (!LT_LINUX) /* jobs are threads here, which only Linux's locks tell apart */
        return SKIPPED;
    const struct CMUnitTest rows[] = {
        ROW("turns of three jobs never overlap and are numbered consecutively", test_disjoint),
        ROW("two ranks have the same turns, with a job that joins late and waits within turns",
            test_same),
        ROW("weights 1 and 3 give 1 and 3 of 4 turns within 2 %", test_weights),
        ROW("a killed job releases the device, and its turns are skipped", test_killed),
        ROW("a job that does not end its turn is named at the deadline", test_deadline),
        ROW("unpaired begins and ends are rejected", test_order_of_calls),
        ROW("jobs with ranks on different devices are rejected on all ranks", test_maps),
        ROW("a stale session file is cleared, a symbolic link is not followed", test_stale),
        ROW("a corrupt session file in use is rejected", test_damaged),
        ROW("a seventeenth job is rejected until one leaves", test_too_many),
        ROW("session names and weights are parsed", test_parse),
    };
    return cmocka_run_group_tests(rows, NULL, NULL);
}
