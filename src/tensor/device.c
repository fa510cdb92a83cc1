/* Devices: the registry of backends, and what every backend shares. */

#include "lather/device.h"

#include "base/alloc.h"
#include "base/parallel.h"
#include "tensor/backend/cpu/cpu.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every backend of this build. Hardware is a module, opened on the first use of its name. */
static const lt_backend *find_backend(const char *name)
{
    const lt_backend *const all[] = {lt_backend_ref(), lt_backend_cpu()};
    for (size_t i = 0; i < sizeof all / sizeof(lt_backend *); i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}

/* "cuda:1" -> "cuda", 1. */
static lt_status parse_name(const char *text, char *name, size_t bytes, int *ordinal)
{
    size_t length = strcspn(text, ":");
    *ordinal = 0;
    if (length >= bytes)
        return lt_fail(LT_E_ARG, "device: no device '%s'; there are ref, cpu, cuda", text);
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
    LT_TRY(parse_name(text, name, sizeof name, ordinal));
    *backend = find_backend(name);
    if (!*backend && !strcmp(name, "cuda"))
        return lt_fail(LT_E_UNSUPPORTED, "device cuda: this build has no CUDA module");
    if (!*backend)
        return lt_fail(LT_E_ARG, "device: no device '%s'; there are ref, cpu, cuda", text);
    if (*ordinal > 0)
        return lt_fail(LT_E_ARG, "device: %s: there is only %s:0", text, name);
    if (f64) /* the specification, whatever is fast */
        *backend = lt_backend_ref();
    return LT_OK;
}

static lt_status open_on(lt_device **out, const char *name, const lt_backend *backend, int ordinal,
                         const lt_device_config *config)
{
    lt_device *d = lt_alloc(1, sizeof *d);
    if (!d)
        return LT_E_NOMEM;
    snprintf(d->name, sizeof d->name, "%s", name);
    d->backend = backend;
    d->f64 = config->f64;
    d->deterministic = config->deterministic;
    lt_status st = backend->open(&d->ctx, ordinal, config);
    if (!st) {
        st = lt_pool_new(&d->pool, backend, d->ctx);
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
        return lt_fail(LT_E_ARG, "device: %d threads", config->threads);
    LT_TRY(choose_backend(name, config->f64, &backend, &ordinal));
    return open_on(out, name, backend, ordinal, config);
}

lt_status lt_device_open_like(lt_device **out, const lt_device *like, int threads)
{
    const lt_device_config config = {
        .f64 = like->f64, .threads = threads, .deterministic = like->deterministic};
    char name[sizeof like->name];
    int ordinal;
    LT_TRY(parse_name(like->name, name, sizeof name, &ordinal));
    return open_on(out, like->name, like->backend, ordinal, &config);
}

void lt_device_close(lt_device **device)
{
    lt_device *d = *device;
    if (!d)
        return;
    LT_ASSERT(!lt_pool_memory(d->pool).used); /* a tensor would outlive its device */
    lt_pool_free(&d->pool);
    d->backend->close(d->ctx);
    lt_free(d);
    *device = NULL;
}

lt_status lt_device_sync(lt_device *device)
{
    return device->backend->sync(device->ctx);
}

const char *lt_device_name(const lt_device *device)
{
    return device->name;
}

lt_dtype lt_device_master(const lt_device *device)
{
    return device->f64 ? LT_F64 : LT_F32;
}

bool lt_device_has_fast(const lt_device *device, lt_dtype dtype)
{
    return device->backend->has_fast(device->ctx, dtype);
}

int lt_device_threads(const lt_device *device)
{
    return device->backend->threads(device->ctx);
}

void lt_device_set_threads(lt_device *device, int threads)
{
    (void)device; /* compute threads are the calling thread's, for all its devices */
    lt_parallel_set_threads(threads > 0 ? threads : lt_cpu_threads());
}

lt_memory lt_device_memory(const lt_device *device)
{
    return lt_pool_memory(device->pool);
}

void lt_device_reset_peak(lt_device *device)
{
    lt_pool_reset_peak(device->pool);
}

const char *lt_build_info(int index)
{
    if (index == 0)
        return "lather " LT_VERSION;
    if (index == 1)
        return "backends: ref cpu";
    return lt_cpu_build_info(index - 2);
}
