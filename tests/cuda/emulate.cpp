/* Runs kernels on the host: the threads of a block are fibers that take turns at barriers. The order
 * of turns is up to LATHER_EMULATE=forward, backward or shuffled, so that a barrier that is missing
 * shows as a wrong result in one of them. What no device allows ends the program: a barrier that some
 * threads of a block do not reach. */

#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <map>
#include <ucontext.h>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace
{

enum state { READY, AT_BLOCK, AT_WARP, DONE };
enum { STACK = 256 << 10, WARP = 32, MOST = 1024 };

struct fiber {
    ucontext_t context;
    std::vector<char> stack;
    state now;
};

std::vector<fiber> fibers;
ucontext_t scheduler;
unsigned current;
const std::function<void()> *work;
uint64_t exchanged[MOST];
uint64_t block;                      /* blocks that began, of all launches */
std::map<void *, uint64_t> last_use; /* the block that shared variables belong to */

void run_thread()
{
    (*work)();
    fibers[current].now = DONE;
    swapcontext(&fibers[current].context, &scheduler);
}

void wait_at(state barrier)
{
    fibers[current].now = barrier;
    swapcontext(&fibers[current].context, &scheduler);
}

void start(unsigned thread)
{
    fiber &f = fibers[thread];
    f.stack.resize(STACK);
    f.now = READY;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = NULL;
    makecontext(&f.context, run_thread, 0);
}

void run(unsigned thread)
{
    current = thread;
    threadIdx = dim3(thread, 0, 0);
    swapcontext(&scheduler, &fibers[thread].context);
}

/* Lets threads begin..end-1 go on if all that are not done have come to the barrier. */
bool release(unsigned begin, unsigned end, state barrier, bool all)
{
    unsigned there = 0, done = 0;
    for (unsigned i = begin; i < end; i++) {
        there += fibers[i].now == barrier;
        done += fibers[i].now == DONE;
    }
    if (!there || there + done < end - begin || (all && done))
        return false;
    for (unsigned i = begin; i < end; i++)
        if (fibers[i].now == barrier)
            fibers[i].now = READY;
    return true;
}

bool release_some(unsigned threads)
{
    bool any = release(0, threads, AT_BLOCK, false);
    for (unsigned w = 0; w < threads; w += WARP)
        any = release(w, w + WARP < threads ? w + WARP : threads, AT_WARP, true) || any;
    return any;
}

unsigned in_turn(unsigned i, unsigned count)
{
    static const char *const order = getenv("LATHER_EMULATE");
    if (order && order[0] == 'b')
        return count - 1 - i;
    if (order && order[0] == 's')
        return (i * 77 + 13) % count; /* a permutation of 256, 128, ... */
    return i;
}

void run_block(unsigned threads)
{
    block++;
    for (unsigned i = 0; i < threads; i++)
        start(i);
    for (;;) {
        unsigned done = 0;
        for (unsigned i = 0; i < threads; i++) {
            const unsigned thread = in_turn(i, threads);
            if (fibers[thread].now == READY)
                run(thread);
        }
        for (unsigned i = 0; i < threads; i++)
            done += fibers[i].now == DONE;
        if (done == threads)
            return;
        if (!release_some(threads)) {
            fprintf(stderr, "emulate: threads of a block wait at different barriers\n");
            abort();
        }
    }
}

} /* namespace */

void __syncthreads()
{
    wait_at(AT_BLOCK);
}

void lt_emulate_shared(void *variable, size_t bytes)
{
    uint64_t &owner = last_use[variable];
    if (owner == block)
        return;
    owner = block;
    memset(variable, 0xFF, bytes);
}

uint64_t lt_emulate_exchange(uint64_t bits, unsigned lane)
{
    exchanged[current] = bits;
    wait_at(AT_WARP);
    const uint64_t other = exchanged[current / WARP * WARP + lane];
    wait_at(AT_WARP);
    return other;
}

void lt_emulate(dim3 grid, dim3 threads, size_t, cudaStream_t, const std::function<void()> &body)
{
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    if (!blocks || !threads.x || threads.y != 1 || threads.z != 1 || threads.x > MOST
        || grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) {
        fprintf(stderr, "emulate: no device launches %u x %u x %u blocks of %u threads\n", grid.x,
                grid.y, grid.z, threads.x);
        abort();
    }
    if (fibers.size() < threads.x)
        fibers.resize(threads.x);
    work = &body;
    gridDim = grid;
    blockDim = threads;
    for (uint64_t i = 0; i < blocks; i++) {
        const uint64_t b = in_turn(0, 2) ? blocks - 1 - i : i;
        blockIdx = dim3((unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                        (unsigned)(b / grid.x / grid.y));
        run_block(threads.x);
    }
}
