/* Runs kernels on the host. The threads of a block are fibers that take turns at barriers.
 * LATHER_EMULATE=forward, backward or shuffled sets the order of turns, so that a missing barrier gives a wrong
 * result in at least one of them: in forward and backward order a warp runs as far as it can before the next one
 * begins; in shuffled order all threads run from barrier to barrier together. A barrier that only some threads of a
 * block reach aborts the program. */

#include "emulate_races.h"

#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <map>
#include <memory>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

enum state { NEW, READY, AT_BLOCK, AT_WARP, DONE };
enum { STACK = 256 << 10, WARP = 32, MOST = 1024 };
/* A stack belongs to one thread of a team where a sanitizer looks at it, or to whichever thread runs. */
#ifdef LT_EMULATE_RACES
enum { OWNERS = MOST };
#else
enum { OWNERS = 1 };
#endif

/* A stack, and where its owner stopped. Once begun, changes go by longjmp, which makes no system call;
 * sanitizers know the other way only. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(LT_EMULATE_RACES)
enum { LONG_WAY = 1 };
#else
enum { LONG_WAY = 0 };
#endif
struct place {
    ucontext_t context;
    jmp_buf jump;
    bool begun;
};

/* Runs one thread after another; one that stops at a barrier keeps it until it is done. */
struct fiber {
    place at;
    std::unique_ptr<char[]> stack;
    unsigned thread;
};

std::vector<std::unique_ptr<fiber>> fibers;
std::vector<fiber *> idle[LT_EMULATE_TEAMS * OWNERS]; /* by owner, or of any */
place scheduler = {{}, {}, true};
fiber *active;
state now[MOST];
fiber *owner[MOST];
unsigned threads;                /* per block */
unsigned first, count, position; /* threads that have turns now, and the next of them */
const std::function<void()> *work;
uint64_t exchanged[MOST];
uint64_t block_number;               /* blocks that began, of all launches */
std::map<void *, uint64_t> last_use; /* the block that shared variables belong to */

void change(place *from, place *to)
{
    if (LONG_WAY) {
        swapcontext(&from->context, &to->context);
    } else if (!_setjmp(from->jump)) {
        if (to->begun)
            _longjmp(to->jump, 1);
        to->begun = true;
        setcontext(&to->context);
    }
}

void wait_at(state barrier)
{
    fiber *mine = active;
    now[mine->thread] = barrier;
    owner[mine->thread] = mine;
    if (barrier == AT_BLOCK)
        races_arrive();
    change(&mine->at, &scheduler);
    if (barrier == AT_BLOCK)
        races_pass();
}

char order()
{
    static const char *const chosen = getenv("LATHER_EMULATE");
    return chosen ? chosen[0] : 'f';
}

/* Returns the thread that takes the i-th turn of n. */
unsigned in_turn(unsigned i, unsigned many)
{
    if (order() == 'b')
        return many - 1 - i;
    if (order() == 's')
        return (i * 77 + 13) % many; /* a permutation of 256, 128, ... */
    return i;
}

std::vector<fiber *> &idle_of(unsigned thread)
{
    return idle[OWNERS == 1 ? 0 : lt_emulate_team() * OWNERS + thread];
}

void set_thread(fiber *f, unsigned thread)
{
    f->thread = thread;
    threadIdx.x = thread;
    races_enter(lt_emulate_team(), thread);
}

/* Threads that meet no barrier follow each other without a change of stacks. */
void run_threads()
{
    for (;;) {
        fiber *mine = active;
        races_begin_thread();
        (*work)();
        races_end_thread();
        races_leave();
        now[mine->thread] = DONE;
        const unsigned next = position < count ? first + in_turn(position, count) : 0;
        if (OWNERS == 1 && position < count && now[next] == NEW) {
            position++;
            set_thread(mine, next);
            continue;
        }
        idle_of(mine->thread).push_back(mine);
        change(&mine->at, &scheduler);
    }
}

fiber *idle_fiber(unsigned thread)
{
    std::vector<fiber *> &stacks = idle_of(thread);
    if (stacks.empty()) {
        fiber *f = new fiber();
        fibers.emplace_back(f);
        f->stack.reset(new char[STACK]);
        getcontext(&f->at.context);
        f->at.context.uc_stack.ss_sp = f->stack.get();
        f->at.context.uc_stack.ss_size = STACK;
        f->at.context.uc_link = NULL;
        makecontext(&f->at.context, run_threads, 0);
        stacks.push_back(f);
    }
    fiber *f = stacks.back();
    stacks.pop_back();
    return f;
}

void run(unsigned thread)
{
    active = now[thread] == NEW ? idle_fiber(thread) : owner[thread];
    set_thread(active, thread);
    now[thread] = READY;
    change(&scheduler, &active->at);
    races_leave();
}

/* Releases threads begin..end-1 once every unfinished one has reached the barrier. */
bool release(unsigned begin, unsigned end, state barrier, bool all)
{
    unsigned there = 0, done = 0;
    for (unsigned i = begin; i < end; i++) {
        there += now[i] == barrier;
        done += now[i] == DONE;
    }
    if (!there || there + done < end - begin || (all && done))
        return false;
    for (unsigned i = begin; i < end; i++)
        if (now[i] == barrier)
            now[i] = READY;
    return true;
}

bool release_some()
{
    bool any = release(0, threads, AT_BLOCK, false);
    for (unsigned w = 0; w < threads; w += WARP)
        any = release(w, w + WARP < threads ? w + WARP : threads, AT_WARP, true) || any;
    return any;
}

void take_turns(unsigned begin, unsigned many)
{
    first = begin;
    count = many;
    for (position = 0; position < count;) {
        const unsigned thread = first + in_turn(position++, count);
        if (now[thread] == NEW || now[thread] == READY)
            run(thread);
    }
}

/* As far as it can without the block's others. */
void run_warp(unsigned warp)
{
    const unsigned begin = warp * WARP,
                   many = threads - begin < WARP ? threads - begin : (unsigned)WARP;
    do
        take_turns(begin, many);
    while (release(begin, begin + many, AT_WARP, true));
}

void run_all()
{
    const unsigned warps = (threads + WARP - 1) / WARP;
    if (order() == 's')
        take_turns(0, threads);
    else
        for (unsigned i = 0; i < warps; i++)
            run_warp(in_turn(i, warps));
}

void run_block(const char *name)
{
    block_number++;
    for (unsigned i = 0; i < threads; i++)
        now[i] = NEW;
    for (;;) {
        unsigned done = 0;
        run_all();
        for (unsigned i = 0; i < threads; i++)
            done += now[i] == DONE;
        if (done == threads)
            return;
        if (!release_some()) {
            fprintf(stderr, "emulate: %s: threads of a block wait at different barriers\n", name);
            abort();
        }
    }
}

} /* namespace */

void __syncthreads()
{
    wait_at(AT_BLOCK);
}

int __syncthreads_or(int it_is)
{
    static int any; /* one block runs at a time */
    any += it_is != 0;
    wait_at(AT_BLOCK);
    const int found = any != 0;
    wait_at(AT_BLOCK);
    any = 0;
    wait_at(AT_BLOCK);
    return found;
}

unsigned lt_emulate_team()
{
    return (unsigned)(block_number % LT_EMULATE_TEAMS);
}

void lt_emulate_shared(void *variable, size_t bytes)
{
    uint64_t &mine = last_use[variable];
    if (mine == block_number)
        return;
    mine = block_number;
    for (size_t i = 0; i < bytes; i++) /* memset() would be this thread's, for a sanitizer */
        ((volatile unsigned char *)variable)[i] = 0xFF;
}

uint64_t lt_emulate_exchange(uint64_t bits, unsigned lane)
{
    const unsigned mine = threadIdx.x;
    exchanged[mine] = bits;
    wait_at(AT_WARP);
    const uint64_t other = exchanged[mine / WARP * WARP + lane];
    wait_at(AT_WARP);
    return other;
}

void lt_emulate_run(dim3 grid, dim3 block, const char *name, const std::function<void()> &thread)
{
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (!blocks || !block.x || block.y != 1 || block.z != 1 || block.x > MOST || grid.x > INT32_MAX
        || grid.y > 65535 || grid.z > 65535) {
        fprintf(stderr, "emulate: %s: no device launches %u x %u x %u blocks of %u threads\n", name,
                grid.x, grid.y, grid.z, block.x);
        abort();
    }
    work = &thread;
    threads = block.x;
    gridDim = grid;
    blockDim = block;
    races_begin_launch();
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t b = in_turn(0, 2) ? blocks - 1 - i : i;
        blockIdx = dim3((unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                        (unsigned)(b / grid.x / grid.y));
        run_block(name);
    }
    races_end_launch();
}
