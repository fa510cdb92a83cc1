/* As much of CUDA C++ as the kernels of this project use, for the host's compiler, which gets types like
 * dim3 from CUDA's headers. emulate.py turns launches into calls of lt_emulate(). */
#ifndef LT_TESTS_THREADS_H
#define LT_TESTS_THREADS_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

#undef __global__
#undef __device__
#undef __host__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

/* State of the running thread. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

void __syncthreads();
/* Returns true if the condition holds for any thread of the block. */
int __syncthreads_or(int it_is);
#ifdef LT_EMULATE_RACES
enum { LT_EMULATE_TEAMS = 4 }; /* teams of threads, see emulate_races.h */
void __threadfence();
void lt_emulate_atomic(void *variable);
#else
enum { LT_EMULATE_TEAMS = 1 };
static inline void __threadfence()
{
}
static inline void lt_emulate_atomic(void *)
{
}
#endif
/* The team of the block that runs. One block runs at a time. */
unsigned lt_emulate_team();
/* A block's shared variable: garbage (NaN, as floats) until the block writes it. */
void lt_emulate_shared(void *variable, size_t bytes);
template <class T> struct lt_emulate_variable {
    T of[LT_EMULATE_TEAMS];
    T &mine()
    {
        T &variable = of[lt_emulate_team()];
        lt_emulate_shared(&variable, sizeof variable);
        return variable;
    }
};
/* The values of the warp's other threads; all of them must take part. */
uint64_t lt_emulate_exchange(uint64_t bits, unsigned lane);

template <class T> T lt_emulate_shuffle(T x, unsigned lane)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = lt_emulate_exchange(bits, lane);
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <class T> T __shfl_down_sync(unsigned, T x, unsigned step)
{
    const unsigned lane = threadIdx.x % 32;
    return lt_emulate_shuffle(x, lane + step < 32 ? lane + step : lane);
}
template <class T> T __shfl_xor_sync(unsigned, T x, unsigned bits)
{
    return lt_emulate_shuffle(x, threadIdx.x % 32 ^ bits);
}
template <class T> T __shfl_sync(unsigned, T x, unsigned lane)
{
    return lt_emulate_shuffle(x, lane % 32);
}

template <class T> T atomicAdd(T *to, T more)
{
    const T before = __atomic_fetch_add(to, more, __ATOMIC_RELAXED);
    lt_emulate_atomic(to);
    return before;
}

static inline int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
using std::signbit;
static inline double cospi(double x)
{
    return std::cos(3.14159265358979323846 * x);
}
static inline double sinpi(double x)
{
    return std::sin(3.14159265358979323846 * x);
}

/* Runs the body once for each thread of each block, now. */
void lt_emulate_run(dim3 grid, dim3 block, const char *name, const std::function<void()> &thread);

/* Runs the kernel at once, or queues it on its stream. */
void lt_emulate_queue(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, const char *name,
                      const std::function<void()> &thread);

/* A launch: arguments are copied, as a device's are. */
template <class Kernel, class... Arguments>
void lt_emulate(dim3 grid, dim3 block, size_t shared, cudaStream_t stream, const char *name,
                Kernel kernel, const Arguments &...arguments)
{
    static_assert((sizeof(Arguments) + ... + 0) <= 32764, "a kernel's parameters have a limit");
    const std::tuple<std::decay_t<Arguments>...> taken(arguments...);
    lt_emulate_queue(grid, block, shared, stream, name,
                     [kernel, taken] { std::apply(kernel, taken); });
}

#endif
