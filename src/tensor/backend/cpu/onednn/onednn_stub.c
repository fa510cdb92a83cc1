/* Stubs for a build without oneDNN: convolutions and products are the built-in ones. */

#include "tensor/backend/cpu/conv/conv_call.h"
#include "tensor/backend/cpu/gemm/matmul_job.h"

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

lt_status lt_onednn_conv(lt_cpu *cpu, const lt_conv_call *c, lt_dtype dtype, bool *done)
{
    (void)cpu, (void)c, (void)dtype;
    *done = false;
    return LT_OK;
}

lt_status lt_onednn_multiply_f32(lt_cpu *cpu, const lt_matmul_job *p, bool *done)
{
    (void)cpu, (void)p;
    *done = false;
    return LT_OK;
}

lt_status lt_onednn_multiply_bf16(lt_cpu *cpu, const lt_matmul_job *p, bool *done)
{
    (void)cpu, (void)p;
    *done = false;
    return LT_OK;
}

const char *lt_cpu_onednn_info(void)
{
    return "oneDNN: not in this build";
}
