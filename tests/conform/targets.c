/* Opening of the devices that conform compares. */

#include "targets.h"

#include "tensor/backend/cpu/cpu.h"
#include "tensor/backend/ref/ref.h"
#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

const lt_backend *backend_of(const char *name)
{
    const lt_backend *unit = wgrad_backend(name), *found;
    unit = unit ? unit : emulated_backend(name);
    return unit ? unit : lt_backend_find(name, &found) ? NULL : found;
}

static lt_status add(targets *t, const lt_backend *be, const lt_device_config *config,
                     const char *label, const char *filter)
{
    target next = {.be = be, .label = label, .filter = filter};
    LT_ASSERT(t->count < MAX_TARGETS);
    LT_TRY(be->open(&next.ctx, 0, config));
    t->at[t->count++] = next;
    return LT_OK;
}

lt_status targets_open(targets *t, const char *backend, const lt_device_config *config)
{
    const lt_backend *be = backend_of(backend);
    *t = (targets){.count = 0};
    return be ? add(t, be, config, "", "") : LT_E_ARG; /* lt_backend_find() lists the names */
}

/* A way to open the cpu backend; kernels: LATHER_CPU_KERNELS, or "reproducible". */
typedef struct level {
    const char *label, *isa, *kernels, *filter;
    lt_fused fused;
} level;

static const level levels[] = {
    {" [amx]", "amx", "", "", LT_FUSED_AUTO}, /* the best first: oneDNN keeps the first level */
    {" [avx512_bf16]", "avx512_bf16", "", "", LT_FUSED_AUTO},
    {" [avx512]", "avx512", "", "", LT_FUSED_AUTO},
    {" [avx2]", "avx2", "", "", LT_FUSED_AUTO},
    {" [neon_bf16]", "neon_bf16", "", "", LT_FUSED_AUTO},
    {" [neon]", "neon", "", "", LT_FUSED_AUTO},
    {" [generic]", "generic", "", "", LT_FUSED_AUTO},
    {" [avx512_bf16, builtin, fused]", "avx512_bf16", "builtin", "conv2d", LT_FUSED_ON},
    {" [avx512_bf16, builtin, not fused]", "avx512_bf16", "builtin", "conv2d", LT_FUSED_OFF},
    {" [avx512, builtin, fused]", "avx512", "builtin", "conv2d", LT_FUSED_ON},
    {" [avx512, builtin, not fused]", "avx512", "builtin", "conv2d", LT_FUSED_OFF},
    {" [avx2, builtin, fused]", "avx2", "builtin", "conv2d", LT_FUSED_ON},
    {" [avx2, builtin, not fused]", "avx2", "builtin", "conv2d", LT_FUSED_OFF},
    {" [avx512, reproducible]", "avx512", "reproducible", "conv2d", LT_FUSED_AUTO},
    {" [generic, reproducible]", "generic", "reproducible", "conv2d", LT_FUSED_AUTO},
    {" [avx2, reproducible]", "avx2", "reproducible", "linear", LT_FUSED_AUTO},
    {" [avx512, reproducible]", "avx512", "reproducible", "matmul", LT_FUSED_AUTO},
    {" [neon_bf16, builtin, fused]", "neon_bf16", "builtin", "conv2d", LT_FUSED_ON},
    {" [neon_bf16, builtin, not fused]", "neon_bf16", "builtin", "conv2d", LT_FUSED_OFF},
    {" [neon, builtin, fused]", "neon", "builtin", "conv2d", LT_FUSED_ON},
    {" [neon, builtin, not fused]", "neon", "builtin", "conv2d", LT_FUSED_OFF},
    {" [neon, reproducible]", "neon", "reproducible", "", LT_FUSED_AUTO},
};

static lt_status open_level(targets *t, const level *l, const lt_device_config *config)
{
    lt_device_config c = *config;
    const lt_backend *be = backend_of("cpu");
    if (!be)
        return lt_fail(LT_E_UNSUPPORTED, "this build has no cpu backend");
    setenv("LATHER_CPU_ISA", l->isa, 1);
    c.reproducible = !strcmp(l->kernels, "reproducible");
    setenv("LATHER_CPU_KERNELS", c.reproducible ? "" : l->kernels, 1);
    if (strcmp(lt_cpu_isa_in_use(false), l->isa) != 0)
        return LT_OK; /* not supported by this processor, or limited by the user */
    c.fused = l->fused;
    return add(t, be, &c, l->label, l->filter);
}

lt_status targets_open_levels(targets *t, const lt_device_config *config)
{
    *t = (targets){.count = 0};
    LT_TRY(add(t, lt_backend_ref(), config, " [ref]", ""));
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        LT_TRY(open_level(t, &levels[i], config));
    return LT_OK;
}

void targets_close(targets *t)
{
    for (int i = 0; i < t->count; i++)
        t->at[i].be->close(t->at[i].ctx);
}
