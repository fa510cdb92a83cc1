/* Table of wrong oneDNN implementations. Findings, versions and reproduction: docs/results/onednn-wrong-primitives.md.
 *
 * A rule covers more forms than were seen to fail, since random tests find only some. It ends at a version only if that
 * version was tested and did not fail; untested versions are assumed to be as wrong as earlier ones. */

#include "conv_rules.h"

#include <string.h>

typedef lt_conv_axis axis;

lt_conv_axis lt_conv_get_axis(const lt_conv_form *f, int dim)
{
    const lt_conv2d_config *c = &f->config;
    const bool h = dim == LT_CONV_HEIGHT;
    return (axis){.size = f->x.dim[dim],
                  .taps = f->w.dim[dim],
                  .outputs = f->y.dim[dim],
                  .stride = h ? c->stride_h : c->stride_w,
                  .pad = h ? c->pad_h : c->pad_w,
                  .dilation = h ? c->dilation_h : c->dilation_w};
}

static bool reads_image_pixel(const axis *a, int64_t output, int64_t tap)
{
    const int64_t at = output * a->stride - a->pad + tap * a->dilation;
    return at >= 0 && at < a->size;
}

bool lt_conv_tap_sees_only_padding(const lt_conv_axis *a, int64_t tap)
{
    for (int64_t output = 0; output < a->outputs; output++)
        if (reads_image_pixel(a, output, tap))
            return false;
    return true;
}

static bool axis_has_padding_only_tap(axis a)
{
    for (int64_t tap = 0; tap < a.taps; tap++)
        if (lt_conv_tap_sees_only_padding(&a, tap))
            return true;
    return false;
}

static bool axis_has_padding_only_output(axis a)
{
    for (int64_t output = 0; output < a.outputs; output++) {
        bool meets = false;
        for (int64_t tap = 0; tap < a.taps && !meets; tap++)
            meets = reads_image_pixel(&a, output, tap);
        if (!meets)
            return true;
    }
    return false;
}

/* Returns true if the padding along an axis exceeds "same" padding of stride 1. */
static bool is_padded_widely(axis a)
{
    return 2 * a.pad > (a.taps - 1) * a.dilation;
}

static bool has_taps_in_padding_only(const lt_conv_form *f)
{
    return axis_has_padding_only_tap(lt_conv_get_axis(f, LT_CONV_HEIGHT))
           || axis_has_padding_only_tap(lt_conv_get_axis(f, LT_CONV_WIDTH));
}

static bool has_outputs_in_padding_only(const lt_conv_form *f)
{
    return axis_has_padding_only_output(lt_conv_get_axis(f, LT_CONV_HEIGHT))
           || axis_has_padding_only_output(lt_conv_get_axis(f, LT_CONV_WIDTH));
}

static bool has_wide_padding(const lt_conv_form *f)
{
    return is_padded_widely(lt_conv_get_axis(f, LT_CONV_HEIGHT))
           || is_padded_widely(lt_conv_get_axis(f, LT_CONV_WIDTH));
}

static bool is_dilated(const lt_conv_form *f)
{
    return f->config.dilation_h > 1 || f->config.dilation_w > 1;
}

static bool has_odd_output_channels(const lt_conv_form *f)
{
    return f->w.dim[0] / f->config.groups % 2 != 0;
}

static bool has_stride_of_3_or_more(const lt_conv_form *f)
{
    return f->config.stride_h > 2 || f->config.stride_w > 2;
}

/* Strided rows gathered for a 1x1 filter are counted with the actual channels but stored with 16: an overrun of 16320
 * bytes with 8 channels. Not seen with 16 or more. */
static bool is_strided_1x1_few_channels(const lt_conv_form *f)
{
    enum { BLOCK = 16 };
    return f->w.dim[1] < BLOCK && f->w.dim[LT_CONV_HEIGHT] == 1 && f->w.dim[LT_CONV_WIDTH] == 1
           && (f->config.stride_h > 1 || f->config.stride_w > 1);
}

/* A single output of one channel is paired with a zero and with the pixels one stride further, which are past the row;
 * the load mask keeps all but 1 or more of 16 of them, and NaN times 0 is NaN. jit_avx512_core_bf16_conv_kernel.cpp,
 * compute_ic_block_step_interleave: reorder_stride_overflow exceeds reorder_size. */
static bool is_stride_wider_than_row(const lt_conv_form *f)
{
    const axis a = lt_conv_get_axis(f, LT_CONV_WIDTH);
    return f->w.dim[1] == 1 && a.outputs == 1 && a.size + a.pad < a.stride;
}

/* The kernel computes a row of outputs in register blocks. With one full block and a tail it checks right padding
 * only in the tail: if the padding is wider, outputs of the full block read pixels of the next row. Its block sizes
 * leave such a tail only for stride 1, in part of a row of 2 * padding - 1 outputs. jit_brgemm_kernel.cpp,
 * bdb_loop_avx512: fixed in 3.1. */
static bool has_right_padding_wider_than_tail(const lt_conv_form *f)
{
    const axis a = lt_conv_get_axis(f, LT_CONV_WIDTH);
    const int64_t right = (a.taps - 1) * a.dilation + a.outputs - a.size - a.pad;
    return a.stride == 1 && right > 1 && a.pad <= right && a.outputs >= 2 * right - 1;
}

/* Channels are multiplied in pairs, in blocks of a multiple of 32. A tail block, which large filters have depending
 * on the cache, is rounded up to whole pairs: one value past the last pixel is read and multiplied by 0, which gives
 * NaN if that value is NaN. jit_brgemm_conv_utils.cpp, estimate_brgemm_ur: K_tail. */
static bool has_odd_channel_tail(const lt_conv_form *f)
{
    enum { BLOCK = 32 };
    const bool forward = f->kind == LT_CONV;
    const int64_t channels = forward ? f->w.dim[1] : f->w.dim[0] / f->config.groups;
    return channels > BLOCK && channels % 2 != 0;
}

/* 3.2: none of 2,307 random forms with AMX and stride 3 was wrong (2.6: 9 of 1,781), and right padding is checked in
 * the full block too. */
enum { FIRST_RIGHT = 3002 };

static const lt_conv_rule rules[] = {
    {"scratchpad overrun", 0, LT_CONV_GRAD_W, "1x1", is_strided_1x1_few_channels, NULL},
    {"AMX, dilation", 0, LT_CONV_GRAD_W, "amx", is_dilated, NULL},
    {"bf16, dilation", 0, LT_CONV_GRAD_W, "jit_bf16:avx512", is_dilated, NULL},
    {"AMX, taps in padding only", 0, LT_CONV_GRAD_W, "amx", has_taps_in_padding_only, NULL},
    {"bf16, taps in padding only", 0, LT_CONV_GRAD_W, "jit_bf16:avx512", has_taps_in_padding_only,
     NULL},
    {"bf16, stride wider than the row", 0, LT_CONV_GRAD_W, "jit_bf16:avx512",
     is_stride_wider_than_row, NULL},
    {"bf16 1x1, odd channels of y", 0, LT_CONV_GRAD_X, "jit_bf16_1x1", has_odd_output_channels,
     NULL},
    {"right padding wider than the tail", FIRST_RIGHT, LT_CONV, "brgconv:avx512_core",
     has_right_padding_wider_than_tail, "amx"},
    {"bf16, odd channel tail", 0, LT_CONV, "brgconv:avx512_core_bf16", has_odd_channel_tail, NULL},
    {"bf16, odd channel tail of dy", 0, LT_CONV_GRAD_X, "brgconv:avx512_core_bf16",
     has_odd_channel_tail, NULL},
    {"AMX, stride 3", FIRST_RIGHT, LT_CONV, "amx", has_stride_of_3_or_more, NULL},
    {"AMX, wide padding", 0, LT_CONV, "amx", has_wide_padding, NULL},
    {"AMX, outputs in padding only", 0, LT_CONV, "amx", has_outputs_in_padding_only, NULL},
};

enum { RULES = sizeof rules / sizeof *rules };

static bool rule_applies(const lt_conv_rule *r, int version, const char *implementation)
{
    return (!r->until || version < r->until) && strstr(implementation, r->implementation)
           && !(r->except && strstr(implementation, r->except));
}

const lt_conv_rule *lt_conv_find_forbidding_rule(int version, const char *implementation,
                                                 const lt_conv_form *form)
{
    for (const lt_conv_rule *r = rules; r < rules + RULES; r++)
        if (r->kind == form->kind && rule_applies(r, version, implementation) && r->forbids(form))
            return r;
    return NULL;
}

const lt_conv_rule *lt_conv_rule_at(int i)
{
    return i < RULES ? &rules[i] : NULL;
}
