/* Selects direct kernels by LATHER_CPU_KERNELS and a table of measurements. The table is committed and nothing is timed
 * at run time: every machine of an instruction set uses the same kernels, so that a resumed run is bitwise identical.
 * docs/adr/0053. */

#include "conv_call.h"
#include "direct_conv.h"

/* A class of convolutions where direct kernels take less CPU time than oneDNN 2.6.3 plus batch norm's passes, measured
 * layer by layer on Zen 5 (AVX2: Zen 3): docs/adr/0053. bf16 with VDPBF16PS; with AMX oneDNN is used. */
typedef struct rule {
    lt_dtype dtype;
    bool backward, multi_tap, strided;
    int64_t min_read, max_read, min_written; /* channels read and written */
} rule;

enum { ANY = INT32_MAX };

static const rule rules_avx2[] = {
    {LT_F32, false, true, true, 64, ANY, 64},
    {LT_F32, true, true, true, 128, ANY, 64},
    {LT_F32, true, false, false, 64, ANY, 64},
};

static const rule rules_avx512[] = {
    {LT_F32, false, false, false, 64, ANY, 64},  {LT_F32, false, false, true, 64, ANY, 64},
    {LT_F32, false, true, true, 64, ANY, 64},    {LT_F32, false, true, false, 512, ANY, 64},
    {LT_F32, true, false, false, 64, ANY, 64},   {LT_F32, true, true, true, 128, 256, 64},
    {LT_F32, true, true, false, 256, 256, 64},   {LT_BF16, false, false, false, 64, ANY, 128},
    {LT_BF16, false, false, true, 64, ANY, 128}, {LT_BF16, true, false, false, 512, ANY, 64},
    {LT_BF16, true, true, false, 256, ANY, 64},  {LT_BF16, true, true, true, 128, ANY, 64},
    {LT_BF16, false, true, true, 64, ANY, 64},
};

static bool matches_any_rule(const rule *rules, size_t count, const lt_direct_conv *c)
{
    const int64_t *w = c->w->shape.dim, read = c->from->shape.dim[1],
                  min_written = c->to->shape.dim[1];
    const bool multi_tap = w[2] * w[3] > 1;
    const bool strided = c->config->stride_h * c->config->stride_w > 1;
    const lt_dtype dtype = c->from->dtype;
    for (size_t i = 0; i < count; i++)
        if (rules[i].dtype == dtype && rules[i].backward == c->backward
            && rules[i].multi_tap == multi_tap && rules[i].strided == strided
            && read >= rules[i].min_read && read <= rules[i].max_read
            && min_written >= rules[i].min_written)
            return true;
    return false;
}

bool lt_direct_conv_is_faster(lt_cpu_isa isa, const lt_direct_conv *c)
{
    enum { MIN_PIXELS = 1024 }; /* fewer give too few blocks for all threads */
    const int64_t *to = c->to->shape.dim;
    if (to[0] * to[2] * to[3] < MIN_PIXELS || isa < LT_ISA_AVX2 || c->config->groups > 1)
        return false;
    return isa == LT_ISA_AVX2
               ? matches_any_rule(rules_avx2, sizeof rules_avx2 / sizeof *rules_avx2, c)
               : matches_any_rule(rules_avx512, sizeof rules_avx512 / sizeof *rules_avx512, c);
}

bool lt_direct_conv_is_chosen(const lt_cpu *cpu, const lt_direct_conv *c)
{
    if (cpu->choice == LT_KERNELS_ONEDNN || !lt_direct_conv_supports(cpu, c)
        || lt_conv_is_depthwise(c->config, c->w))
        return false;
    return lt_cpu_prefers_builtin(cpu) || lt_direct_conv_is_faster(cpu->isa, c);
}
