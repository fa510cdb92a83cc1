/* The cpu backend: table of entries, devices, tensor memory. */

#include "base/os.h"
#include "base/parallel.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void close_device(void *ctx)
{
    lt_cpu *cpu = ctx;
    lt_cpu_onednn_close(cpu);
    for (int i = 0; i < LT_CPU_SLOTS; i++)
        lt_free(cpu->slot[i].data);
    lt_free(cpu);
}

/* bf16 instructions flush subnormals, and ARM64's round to odd: they are left out. LATHER_CPU_KERNELS=builtin has no effect, as kernels that it
 * forces on small images would make other bits. */
static lt_status choose_reproducible(lt_cpu_isa *isa, lt_cpu_choice *choice)
{
    if (*choice == LT_KERNELS_ONEDNN)
        return lt_fail(LT_E_ARG, "LATHER_CPU_KERNELS=onednn: a reproducible device has built-in "
                                 "kernels only");
#if defined(__aarch64__)
    const lt_cpu_isa most = LT_ISA_NEON;
#else
    const lt_cpu_isa most = LT_ISA_AVX512;
#endif
    *choice = LT_KERNELS_AUTO;
    if (*isa > most)
        *isa = most;
    return LT_OK;
}

/* Chooses by the machine and the environment. */
static lt_status choose(bool reproducible, lt_cpu_isa *isa, lt_cpu_choice *choice)
{
    LT_TRY(lt_cpu_choose_isa(isa));
    LT_TRY(lt_cpu_read_kernel_choice(choice));
    return reproducible ? choose_reproducible(isa, choice) : LT_OK;
}

static lt_status open_device(void **ctx, int ordinal, const lt_device_config *config)
{
    (void)ordinal;
    lt_cpu_isa isa;
    lt_cpu_choice choice;
    LT_TRY(choose(config->reproducible, &isa, &choice));
    lt_cpu *cpu = NULL;
    LT_TRY(LT_ALLOC(&cpu, 1));
    lt_parallel_set_threads(config->threads ? config->threads : lt_cpu_threads());
    cpu->table = lt_backend_cpu();
    cpu->isa = isa;
    cpu->choice = choice;
    cpu->reproducible = config->reproducible;
    cpu->fused = config->fused;
    cpu->kernels = lt_cpu_isa_kernels(isa, config->reproducible);
    /* oneDNN's sums depend on the CPU. */
    const lt_status st = cpu->reproducible ? LT_OK : lt_cpu_onednn_open(cpu);
    if (st) {
        close_device(cpu);
        return st;
    }
    *ctx = cpu;
    return LT_OK;
}

/* Tensor memory. The caching allocator reserves one range of addresses as large as the machine's memory: untouched
 * pages cost nothing, and a single range avoids the fragmentation of many segments (a tenth of a training step's
 * memory). Huge pages make the first touch cheap. */
enum { MIN_MAPPED = 1 << 30 }; /* bytes; smaller requests come from the heap instead of mmap() */

static lt_status allocate_memory(void *ctx, size_t bytes, void **out)
{
    if (bytes < MIN_MAPPED)
        return lt_backend_ref()->alloc(ctx, bytes, out);
    void *memory = lt_os_map(bytes);
    if (!memory)
        return lt_fail(LT_E_NOMEM, "cpu: cannot map %zu MiB of address space", bytes >> 20);
    *out = memory;
    return LT_OK;
}

static void release_memory(void *ctx, void *data, size_t bytes)
{
    if (bytes < MIN_MAPPED)
        lt_backend_ref()->free(ctx, data, bytes);
    else
        munmap(data, bytes);
}

static void set_memory_functions(lt_backend *be)
{
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    be->alloc = allocate_memory;
    be->free = release_memory;
    be->reserve = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
}

/* bf16 is fast only where the CPU multiplies bf16. */
static bool has_fast_dtype(void *ctx, lt_dtype dtype)
{
    const lt_cpu *cpu = ctx;
    return dtype == LT_F32 || (dtype == LT_BF16 && cpu->kernels->pairs);
}

static int thread_count(void *ctx)
{
    (void)ctx;
    return lt_parallel_threads();
}

static lt_backend table;

static void fill_table(void)
{
    table = *lt_backend_ref(); /* correct, but slow */
    table.name = "cpu";
    table.open = open_device;
    table.close = close_device;
    table.has_fast = has_fast_dtype;
    table.threads = thread_count;
#define SET_OWN(name) table.name = lt_cpu_##name;
#define SET_REF(name)
#define SET_NONE(name)
#define SET(name, kind, cpu) SET_##cpu(name)
    LT_BACKEND_ENTRIES(SET)
    set_memory_functions(&table);
}

const lt_backend *lt_backend_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    return &table;
}

const char *lt_cpu_isa_in_use(bool reproducible)
{
    lt_cpu_isa isa;
    lt_cpu_choice choice;
    return choose(reproducible, &isa, &choice) ? "" : lt_cpu_isa_name(isa);
}

const char *lt_cpu_conv_kernels_in_use(bool reproducible)
{
    lt_cpu_isa isa;
    lt_cpu_choice choice;
    return choose(reproducible, &isa, &choice) ? "" : lt_cpu_choice_name(choice);
}

const char *lt_cpu_build_info(int index)
{
    static __thread char line[96];
    const char *isa, *same;
    bool other;
    switch (index) {
    case 0:
        return lt_cpu_onednn_info();
    case 1:
        isa = lt_cpu_isa_in_use(false);
        same = lt_cpu_isa_in_use(true);
        other = *same && strcmp(isa, same) != 0;
        snprintf(line, sizeof line, "CPU kernels: %s%s%s", *isa ? isa : "?",
                 other ? "; with --reproducible " : "", other ? same : "");
        return line;
    default:
        return NULL;
    }
}
