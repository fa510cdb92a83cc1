/* Which convolutions own kernels make: LATHER_CPU_KERNELS, and a table of what was measured. A committed
 * table and no timing at run time: the same program takes the same kernels on every machine of an
 * instruction set, so that a run that goes on has the same bits. docs/adr/0053. */

#include "direct_conv.h"

/* A class of convolutions where own kernels take less CPU time than oneDNN 2.6.3's and batch norm's
 * passes, measured layer by layer on Zen 5, on AVX2 on Zen 3: docs/adr/0053. In bf16 with VDPBF16PS: where there is
 * AMX, oneDNN has it. */
typedef struct row {
    lt_dtype dtype;
    bool backward, wide, strided; /* wide: more than one tap */
    int64_t least, most, written; /* channels that are read, and written at least */
} row;

enum { ANY = INT32_MAX };

static const row rows_avx2[] = {
    {LT_F32, false, true, true, 64, ANY, 64},
    {LT_F32, true, true, true, 128, ANY, 64},
    {LT_F32, true, false, false, 64, ANY, 64},
};

static const row rows_avx512[] = {
    {LT_F32, false, false, false, 64, ANY, 64},  {LT_F32, false, false, true, 64, ANY, 64},
    {LT_F32, false, true, true, 64, ANY, 64},    {LT_F32, false, true, false, 512, ANY, 64},
    {LT_F32, true, false, false, 64, ANY, 64},   {LT_F32, true, true, true, 128, 256, 64},
    {LT_F32, true, true, false, 256, 256, 64},   {LT_BF16, false, false, false, 64, ANY, 128},
    {LT_BF16, false, false, true, 64, ANY, 128}, {LT_BF16, true, false, false, 512, ANY, 64},
    {LT_BF16, true, true, false, 256, ANY, 64},  {LT_BF16, true, true, true, 128, ANY, 64},
    {LT_BF16, false, true, true, 64, ANY, 64},
};

static bool is_in(const row *rows, size_t count, const lt_own_conv *c)
{
    const int64_t *w = c->w->shape.dim, read = c->from->shape.dim[1], written = c->to->shape.dim[1];
    const bool wide = w[2] * w[3] > 1;
    const bool strided = c->config->stride_h * c->config->stride_w > 1;
    const lt_dtype dtype = c->from->dtype;
    for (size_t i = 0; i < count; i++)
        if (rows[i].dtype == dtype && rows[i].backward == c->backward && rows[i].wide == wide
            && rows[i].strided == strided && read >= rows[i].least && read <= rows[i].most
            && written >= rows[i].written)
            return true;
    return false;
}

bool lt_own_conv_listed(lt_cpu_isa isa, const lt_own_conv *c)
{
    enum { LEAST_PIXELS = 1024 }; /* fewer are too few blocks for all threads */
    const int64_t *to = c->to->shape.dim;
    if (to[0] * to[2] * to[3] < LEAST_PIXELS || isa < LT_ISA_AVX2)
        return false;
    return isa == LT_ISA_AVX2 ? is_in(rows_avx2, sizeof rows_avx2 / sizeof *rows_avx2, c)
                              : is_in(rows_avx512, sizeof rows_avx512 / sizeof *rows_avx512, c);
}

bool lt_own_conv_wanted(const lt_cpu *cpu, const lt_own_conv *c)
{
    if (cpu->choice == LT_KERNELS_ONEDNN || !lt_own_conv_can(cpu, c))
        return false;
    return cpu->choice == LT_KERNELS_OWN || lt_own_conv_listed(cpu->isa, c);
}
