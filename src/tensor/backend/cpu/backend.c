/* The cpu backend's table, its devices and their work memory. */

#include "base/parallel.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/cpu/internal.h"

#include <pthread.h>
#include <stdio.h>

void *lt_cpu_scratch(lt_cpu *cpu, lt_cpu_slot slot, size_t bytes)
{
    lt_cpu_buffer *b = &cpu->slot[slot];
    if (bytes > b->bytes) {
        lt_free(b->data);
        b->data = lt_alloc_aligned(64, bytes);
        b->bytes = b->data ? bytes : 0;
    }
    b->asked = bytes;
    return b->data;
}

bool lt_cpu_same_dense(const lt_view *a, const lt_view *b)
{
    if (!lt_shape_equal(a->shape, b->shape))
        return false;
    for (int d = 0; d < a->shape.ndim; d++)
        if (a->shape.dim[d] > 1 && a->stride[d] != b->stride[d])
            return false;
    return lt_view_is_dense(a);
}

lt_view lt_cpu_dense_view(void *data, lt_dtype dtype, lt_shape shape)
{
    lt_view v = {.data = data, .dtype = dtype, .shape = shape};
    int64_t step = 1;
    for (int d = shape.ndim - 1; d >= 0; d--) {
        if (shape.ndim == 4 && d == 1)
            continue; /* channels are innermost, and were stepped over first */
        if (shape.ndim == 4 && d == 3)
            step = shape.dim[1];
        v.stride[d] = step;
        step *= shape.dim[d];
    }
    if (shape.ndim == 4)
        v.stride[1] = 1;
    return v;
}

static void close_device(void *ctx)
{
    lt_cpu *cpu = ctx;
    lt_cpu_products_close(cpu);
    for (int i = 0; i < LT_CPU_SLOTS; i++)
        lt_free(cpu->slot[i].data);
    lt_free(cpu);
}

static lt_status open_device(void **ctx, int ordinal, const lt_device_config *config)
{
    (void)ordinal;
    lt_cpu_isa isa;
    LT_TRY(lt_cpu_isa_find(&isa));
    lt_cpu *cpu = lt_alloc(1, sizeof *cpu);
    if (!cpu)
        return LT_E_NOMEM;
    lt_parallel_set_threads(config->threads ? config->threads : lt_cpu_threads());
    cpu->isa = isa;
    cpu->kernels = lt_cpu_isa_kernels(isa);
    lt_status st = lt_cpu_products_open(cpu);
    if (st) {
        close_device(cpu);
        return st;
    }
    *ctx = cpu;
    return LT_OK;
}

/* In bf16 the products' speed decides, and those need the CPU's own bf16 products. */
static bool has_fast(void *ctx, lt_dtype dtype)
{
    const lt_cpu *cpu = ctx;
    return dtype == LT_F32 || (dtype == LT_BF16 && cpu->isa >= LT_ISA_AVX512_BF16);
}

static int threads(void *ctx)
{
    (void)ctx;
    return lt_parallel_threads();
}

static lt_backend table;

static void fill_table(void)
{
    table = *lt_backend_ref(); /* right, but slow */
    table.name = "cpu";
    table.open = open_device;
    table.close = close_device;
    table.has_fast = has_fast;
    table.threads = threads;
#define SET_OWN(name) table.name = lt_cpu_##name;
#define SET_LIBRARY(name)
#define SET_REF(name)
#define SET_NONE(name)
#define SET(name, kind, cpu) SET_##cpu(name)
    LT_BACKEND_ENTRIES(SET)
    lt_cpu_install_memory(&table);
    lt_cpu_install_products(&table);
    lt_cpu_install_matrix(&table);
}

const lt_backend *lt_backend_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_table);
    return &table;
}

const char *lt_cpu_build_info(int index)
{
    static __thread char line[64];
    lt_cpu_isa isa;
    switch (index) {
    case 0:
        return lt_cpu_products_info();
    case 1:
        return lt_cpu_matrix_info();
    case 2:
        snprintf(line, sizeof line, "CPU kernels: %s",
                 lt_cpu_isa_find(&isa) ? "?" : lt_cpu_isa_name(isa));
        return line;
    default:
        return NULL;
    }
}
