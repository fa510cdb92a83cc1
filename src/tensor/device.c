/* Devices, and the registry of backends. */

#include "lather/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/parallel.h"
#include "base/plugins/plugin.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/kernel_stubs.h"
#include "tensor/memory_use.h"
#include "tensor/tensor.h"

#include "lather/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double SLOW = 2; /* seconds of opening a device that are logged */

/* The cuda backend from its plugin. */
typedef struct loaded_plugin {
    lt_backend table; /* missing kernels are stubs; name is NULL until the plugin is loaded */
    const lt_backend_plugin *plugin;
} loaded_plugin;

static lt_status load_cuda(loaded_plugin *into)
{
    static const char user[] = "device cuda";
    const void *found;
    LT_TRY(lt_plugin_open(user, "cuda", "lt_plugin_cuda", &found));
    const lt_backend_plugin *plugin = found;
    LT_TRY(lt_plugin_check_version(user, plugin->version));
    if (plugin->table_bytes != sizeof(lt_backend))
        return lt_fail(
            LT_E_UNSUPPORTED,
            "%s: the plugin's kernel table has %zu bytes, the library's %zu: one of them "
            "is from an older build",
            user, plugin->table_bytes, sizeof(lt_backend));
    into->table = *plugin->backend;
    into->plugin = plugin;
    lt_backend_stub_missing_kernels(&into->table);
    return LT_OK;
}

static loaded_plugin cuda;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool cuda_is_loaded(void)
{
    pthread_mutex_lock(&lock);
    const bool loaded = cuda.table.name;
    pthread_mutex_unlock(&lock);
    return loaded;
}

/* After a failure the next call tries again, because LATHER_PLUGIN_PATH may have changed. */
static lt_status load_cuda_once(const loaded_plugin **out)
{
    pthread_mutex_lock(&lock);
    lt_status st = cuda.table.name ? LT_OK : load_cuda(&cuda);
    pthread_mutex_unlock(&lock);
    *out = &cuda;
    return st;
}

lt_status lt_backend_find(const char *name, const lt_backend **out)
{
    const lt_backend *const linked[] = {lt_backend_ref(), lt_backend_cpu()};
    const loaded_plugin *found;
    for (size_t i = 0; i < sizeof linked / sizeof(lt_backend *); i++)
        if (linked[i] && !strcmp(linked[i]->name, name)) {
            *out = linked[i];
            return LT_OK;
        }
    if (!strcmp(name, "cpu"))
        return lt_fail(LT_E_UNSUPPORTED, "device cpu: not in this build (-Dcpu=disabled)");
    if (strcmp(name, "cuda") != 0)
        return lt_fail(LT_E_ARG, "device: no device '%s'; known: ref, cpu, cuda", name);
    LT_TRY(load_cuda_once(&found));
    *out = &found->table;
    return LT_OK;
}

/* Splits a device's name and ordinal: "cuda:1" -> "cuda", 1. */
static lt_status parse_device_name(const char *text, char *name, size_t bytes, int *ordinal)
{
    size_t length = strcspn(text, ":");
    *ordinal = 0;
    if (length >= bytes)
        return lt_fail(LT_E_ARG, "device: no device '%s'; known: ref, cpu, cuda", text);
    memcpy(name, text, length);
    name[length] = 0;
    if (text[length]) {
        char *end;
        long n = strtol(text + length + 1, &end, 10);
        if (*end || end == text + length + 1 || n < 0 || n > 255)
            return lt_fail(LT_E_ARG, "device: '%s' is not NAME:NUMBER", text);
        *ordinal = (int)n;
    }
    return LT_OK;
}

static lt_status choose_backend(const char *text, bool f64, const lt_backend **backend,
                                int *ordinal)
{
    char name[16];
    LT_TRY(parse_device_name(text, name, sizeof name, ordinal));
    LT_TRY(lt_backend_find(name, backend));
    if (*ordinal > 0 && (*backend)->host_memory)
        return lt_fail(LT_E_ARG, "device: no device %s; only %s:0 exists", text, name);
    if (f64) /* only the reference backend computes in f64 */
        *backend = lt_backend_ref();
    return LT_OK;
}

static lt_status open_with_backend(lt_device **out, const char *name, const lt_backend *backend,
                                   int ordinal, const lt_device_config *config)
{
    lt_device *d = NULL;
    LT_TRY(LT_ALLOC(&d, 1));
    snprintf(d->name, sizeof d->name, "%s", name);
    d->backend = backend;
    d->config = *config;
    lt_status st = backend->open(&d->ctx, ordinal, config);
    if (!st) {
        st = lt_allocator_new(&d->allocator, backend, d->ctx);
        if (st)
            backend->close(d->ctx);
    }
    if (st) {
        lt_free(d);
        return st;
    }
    *out = d;
    return LT_OK;
}

lt_status lt_device_open(lt_device **out, const char *name, const lt_device_config *config)
{
    const lt_device_config none = {0};
    const lt_backend *backend;
    int ordinal;
    config = config ? config : &none;
    if (config->threads < 0)
        return lt_fail(LT_E_ARG, "device: got %d threads, want 0 or more", config->threads);
    if (config->reproducible && strcmp(name, "cpu") != 0 && strcmp(name, "ref") != 0)
        return lt_fail(LT_E_UNSUPPORTED,
                       "device %s: reproducible is of cpu only; a GPU's sums have another order",
                       name);
    const double begun = lt_clock_seconds();
    LT_TRY(choose_backend(name, config->f64, &backend, &ordinal));
    LT_TRY(open_with_backend(out, name, backend, ordinal, config));
    const double seconds = lt_clock_seconds() - begun;
    if (seconds > SLOW)
        lt_log(LT_LOG_INFO, "tensor", "device %s: took %.1f s to open and load its libraries", name,
               seconds);
    return LT_OK;
}

lt_status lt_device_open_like(lt_device **out, const lt_device *like, int threads)
{
    lt_device_config config = like->config;
    char name[sizeof like->name];
    int ordinal;
    config.threads = threads;
    config.background = true;
    LT_TRY(parse_device_name(like->name, name, sizeof name, &ordinal));
    return open_with_backend(out, like->name, like->backend, ordinal, &config);
}

void lt_device_close(lt_device **device)
{
    lt_device *d = *device;
    if (!d)
        return;
    LT_ASSERT(!lt_allocator_memory(d->allocator).used); /* a tensor would outlive its device */
    lt_allocator_free(&d->allocator);
    d->backend->close(d->ctx);
    lt_free(d);
    *device = NULL;
}

lt_status lt_device_sync(lt_device *device)
{
    return device->backend->sync(device->ctx);
}

lt_status lt_device_set_profiler(lt_device *device, bool on)
{
    const lt_backend *b = device->backend;
    if (!b->profiler)
        return LT_OK;
    LT_TRY(b->sync(device->ctx));
    return b->profiler(device->ctx, on);
}

const char *lt_device_name(const lt_device *device)
{
    return device->name;
}

lt_dtype lt_device_master_dtype(const lt_device *device)
{
    return device->config.f64 ? LT_F64 : LT_F32;
}

bool lt_device_is_reproducible(const lt_device *device)
{
    return device->config.reproducible;
}

bool lt_device_has_fast_dtype(const lt_device *device, lt_dtype dtype)
{
    return device->backend->has_fast(device->ctx, dtype);
}

int lt_device_threads(const lt_device *device)
{
    return device->backend->threads(device->ctx);
}

void lt_device_set_threads(lt_device *device, int threads)
{
    (void)device; /* compute threads belong to the calling thread, for all its devices */
    lt_parallel_set_threads(threads > 0 ? threads : lt_cpu_threads());
}

lt_memory lt_device_memory(const lt_device *device)
{
    lt_memory memory = lt_allocator_memory(device->allocator);
    if (device->backend->taken)
        memory.reserved = device->backend->taken(device->ctx);
    return memory;
}

int lt_device_memory_by_op(const lt_device *device, lt_memory_use *out, int count)
{
    return lt_memory_uses_list(lt_allocator_memory_uses(device->allocator), out, count);
}

void lt_device_reset_peak(lt_device *device)
{
    lt_allocator_reset_peak(device->allocator);
}

const char *lt_device_isa(bool reproducible)
{
    return lt_cpu_isa_in_use(reproducible);
}

const char *lt_device_conv_kernels(bool reproducible)
{
    return lt_cpu_conv_kernels_in_use(reproducible);
}

const char *lt_build_info_line(int index, bool load)
{
    const char *line;
    if (index == 0)
        return "lather " LT_VERSION;
    if (index == 1) {
        static __thread char backends[64];
        snprintf(backends, sizeof backends, "backends: ref%s%s", lt_backend_cpu() ? " cpu" : "",
                 lt_plugin_exists("cuda") ? " cuda" : "");
        return backends;
    }
    line = lt_cpu_build_info(index - 2);
    if (line || (index > 2 && !lt_cpu_build_info(index - 3)))
        return line;
    const loaded_plugin *found; /* the line after the cpu's last */
    if (!lt_plugin_exists("cuda") || (!load && !cuda_is_loaded()))
        return NULL;
    return load_cuda_once(&found) ? lt_error_message() : found->plugin->info();
}

const char *lt_build_info(int index)
{
    return lt_build_info_line(index, true);
}
