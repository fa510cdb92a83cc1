/* conv_fuzz [--seconds N] [--count N] [--only INDEX] [--without-rules] [--control spoil|crash]: random
 * convolutions by the cpu backend against ref in double, with conform's bound and guard zones, and
 * with NaN in all of oneDNN's work memory. Exits 0 if all conform, 1 if not.
 *
 * Without --seconds and --count it runs for 10 seconds. The seed is printed; LATHER_SEED repeats it, --only runs one of its
 * forms. Forms run in separate processes, so that a crash is reported and the rest continues. Failures are printed
 * as options of benchdnn, oneDNN's test program. --without-rules takes oneDNN's first choice, wrong or not, to show
 * the need for the rules. The controls must fail. */

#include "base/alloc.h"
#include "conv_forms.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/onednn/onednn.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 90, HANGS_AFTER = 120, NAMES = 64, GUARD = 1 << 16, FILLED = 0xFF /* NaN */ };

/* Record of one implementation. */
typedef struct maker {
    char name[LT_PRIMITIVE_NAME];
    conv_way way;
    lt_dtype dtype;
    long tried, wrong;
} maker;

/* Memory shared by the processes. */
typedef struct board {
    uint64_t index;
    form form;
    char by[LT_PRIMITIVE_NAME];
    long passed, failed;
    maker makers[NAMES];
} board;

typedef struct options {
    long seconds;
    uint64_t count, only, seed;
    bool one, without_rules, spoil, crash;
} options;

static board *shared;
static lt_cpu *device;

static void note_maker(bool wrong)
{
    conv_way way = shared->form.way == GRAD_W_ROWS ? GRAD_W : shared->form.way;
    for (maker *m = shared->makers; m < shared->makers + NAMES; m++) {
        const bool same =
            m->way == way && m->dtype == shared->form.dtype && !strcmp(m->name, shared->by);
        if (m->tried && !same)
            continue;
        memcpy(m->name, shared->by, sizeof m->name);
        m->way = way;
        m->dtype = shared->form.dtype;
        m->tried++;
        m->wrong += wrong;
        return;
    }
}

static void print_failure(const char *what, const char *why, int threads)
{
    const dnnl_version_t *v = dnnl_version();
    const char *isa = getenv("LATHER_CPU_ISA");
    printf("FAIL form %llu, %d threads, %s: %s: %s\n     oneDNN %d.%d.%d %s: benchdnn %s\n",
           (unsigned long long)shared->index, threads, isa && *isa ? isa : "all instructions", what,
           why, v->major, v->minor, v->patch, shared->by, shared->form.told);
    fflush(stdout);
    shared->failed++;
    note_maker(true);
}

/* Reallocates oneDNN's work memory with the size that it requested, followed by a guard. */
static void fill_slot(lt_cpu_buffer *slot)
{
    lt_free(slot->data);
    slot->bytes = slot->requested + GUARD;
    slot->data = lt_alloc_aligned(64, slot->bytes);
    LT_ASSERT(slot->data);
    memset(slot->data, FILLED, slot->bytes);
}

static size_t bytes_past_end(const lt_cpu_buffer *slot)
{
    const unsigned char *data = slot->data;
    size_t count = 0;
    for (size_t i = slot->requested; i < slot->bytes; i++)
        count += data[i] != FILLED;
    return count;
}

static call_fn *entry;

/* Calls once to learn the size of the work memory, then in guarded memory. */
static lt_status call_guarded(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                              bool absolute)
{
    static const lt_cpu_slot slots[] = {LT_CPU_SCRATCHPAD, LT_CPU_PREPACKED};
    if (strcmp(be->name, "cpu") != 0)
        return entry(t, be, ctx, v, absolute);
    lt_cpu *cpu = ctx;
    for (size_t i = 0; i < COUNT_OF(slots); i++)
        cpu->slot[slots[i]].requested = 0;
    lt_status st = entry(t, be, ctx, v, absolute);
    snprintf(shared->by, sizeof shared->by, "%s", cpu->last_conv);
    LT_TRY(st);
    for (size_t i = 0; i < COUNT_OF(slots); i++)
        fill_slot(&cpu->slot[slots[i]]);
    LT_TRY(entry(t, be, ctx, v, absolute));
    for (size_t i = 0; i < COUNT_OF(slots); i++) {
        const size_t past = bytes_past_end(&cpu->slot[slots[i]]);
        if (past)
            return lt_fail(LT_E_DEVICE,
                           "%zu bytes past the end of %zu bytes of work memory were written", past,
                           cpu->slot[slots[i]].requested);
    }
    return LT_OK;
}

/* Control: one element too large by an eighth. */
static lt_status call_spoilt(const test *t, const lt_backend *be, void *ctx, const lt_view *v,
                             bool absolute)
{
    LT_TRY(call_guarded(t, be, ctx, v, absolute));
    const lt_view *out = &v[t->operands - 1];
    lt_view one = *out;
    one.shape = LT_SHAPE(1, 1, 1, 1);
    return strcmp(be->name, "cpu") != 0 ? LT_OK : be->scale(ctx, 1.125, &one, &one);
}

static void name_the_crash(int number)
{
    if (device && device->last_conv)
        snprintf(shared->by, sizeof shared->by, "%s", device->last_conv);
    signal(number, SIG_DFL);
    raise(number);
}

static void check_form(const options *o, int threads)
{
    test t;
    form *f = &shared->form;
    form_draw(o->seed, shared->index, f);
    f->row.name = f->told;
    conv_make(&f->row, f->way, &t);
    entry = t.call;
    t.call = o->spoil ? call_spoilt : call_guarded;
    if (o->crash)
        raise(SIGSEGV);
    const char *problem = conform(&t, f->dtype, lt_backend_cpu(), device, NULL);
    if (problem) {
        print_failure("wrong", problem, threads);
    } else {
        note_maker(false);
        shared->passed++;
    }
}

/* Runs forms in a process, from shared->index on, before end. */
static void run_batch(const options *o, uint64_t end, int threads)
{
    static const int signals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
    const lt_device_config config = {.threads = threads};
    void *ctx = NULL;
    for (size_t i = 0; i < COUNT_OF(signals); i++)
        signal(signals[i], name_the_crash);
    LT_ASSERT(!lt_backend_cpu()->open(&ctx, 0, &config));
    device = ctx;
    device->onednn->without_rules = o->without_rules;
    for (; shared->index < end; shared->index++) {
        alarm(HANGS_AFTER);
        check_form(o, threads);
    }
    lt_backend_cpu()->close(ctx);
    fflush(stdout);
    _exit(0);
}

static void run_forked(const options *o, uint64_t end)
{
    const int threads = 1 + (int)(shared->index / BATCH % 4);
    int status = 0;
    strcpy(shared->by, "?");
    fflush(stdout);
    pid_t child = fork();
    LT_ASSERT(child >= 0);
    if (!child)
        run_batch(o, end, threads);
    LT_ASSERT(waitpid(child, &status, 0) == child);
    if (status) {
        print_failure(WIFSIGNALED(status) ? "crashed" : "ended",
                      WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "too early", threads);
        shared->index++;
    }
}

static bool parse_control(const char *name, options *o)
{
    o->spoil = !strcmp(name, "spoil");
    o->crash = !strcmp(name, "crash");
    return o->spoil || o->crash;
}

static bool parse(int argc, char **argv, options *o)
{
    const char *seed = getenv("LATHER_SEED");
    *o = (options){.count = UINT64_MAX};
    o->seed = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--without-rules")) {
            o->without_rules = true;
            continue;
        }
        if (!strcmp(argv[i], "--seconds"))
            o->seconds = atol(value);
        else if (!strcmp(argv[i], "--count"))
            o->count = strtoull(value, NULL, 0);
        else if (!strcmp(argv[i], "--only"))
            o->one = true, o->only = strtoull(value, NULL, 0);
        else if (strcmp(argv[i], "--control") != 0 || !parse_control(value, o))
            return false;
        i++;
    }
    if (!o->seconds)
        o->seconds = o->count == UINT64_MAX ? 10 : INT32_MAX;
    return true;
}

static void print_makers(void)
{
    static const char *const names[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w"};
    for (const maker *m = shared->makers; m < shared->makers + NAMES && m->tried; m++)
        printf("%-14s %-5s %-40s tried %6ld, wrong %ld\n", names[m->way], lt_dtype_name(m->dtype),
               m->name, m->tried, m->wrong);
}

int main(int argc, char **argv)
{
    options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: conv_fuzz [--seconds N] [--count N] [--only INDEX] "
                        "[--without-rules] [--control spoil|crash]\n");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    LT_ASSERT(shared != MAP_FAILED);
    printf("LATHER_SEED=%llu\n", (unsigned long long)o.seed);
    shared->index = o.one ? o.only : 0;
    const uint64_t end = o.one ? o.only + 1 : o.count;
    const time_t stop = time(NULL) + o.seconds;
    while (shared->index < end && (o.one || time(NULL) < stop)) {
        const uint64_t next = (shared->index / BATCH + 1) * BATCH;
        run_forked(&o, next < end ? next : end);
    }
    print_makers();
    printf("%ld passed, %ld failed\n", shared->passed, shared->failed);
    return shared->failed || !shared->passed;
}
