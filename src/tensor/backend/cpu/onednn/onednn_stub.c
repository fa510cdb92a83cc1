/* Stubs for a build without oneDNN: convolutions and products use the reference backend. */

#include "tensor/backend/cpu/internal.h"

lt_status lt_cpu_onednn_open(lt_cpu *cpu)
{
    (void)cpu;
    return LT_OK;
}

void lt_cpu_onednn_close(lt_cpu *cpu)
{
    (void)cpu;
}

lt_status lt_cpu_onednn_affine(void *ctx, const lt_conv2d_config *config, const lt_view *x,
                               const lt_view *w, lt_conv_epilogue *after, const lt_view *y)
{
    (void)ctx, (void)config, (void)x, (void)w, (void)y;
    after->done = false;
    return LT_OK;
}

void lt_cpu_install_convs(lt_backend *be)
{
    (void)be;
}

void lt_cpu_install_products(lt_backend *be)
{
    (void)be;
}

const char *lt_cpu_onednn_info(void)
{
    return "oneDNN: not in this build, convolutions are slow";
}
