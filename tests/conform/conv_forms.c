/* Random convolutions: small images, small filters, and all cases that oneDNN's implementations distinguish:
 * odd channels, groups, one channel per group, strides, dilations, unequal and wide padding. */

#include "conv_forms.h"

#include "base/rng.h"
#include "tensor/backend/cpu/onednn/onednn_compat.h"

#include <stdio.h>

/* Upper limits of a form's number of products. */
enum { PRODUCTS = 8000000, RARE_PRODUCTS = 120000000 };

static int between(lt_rng *rng, int low, int high)
{
    return low + (int)lt_rng_below(rng, (uint32_t)(high - low + 1));
}

static bool one_in(lt_rng *rng, uint32_t n)
{
    return !lt_rng_below(rng, n);
}

static void draw_channels(lt_rng *rng, conv_row *r)
{
    enum { FEW = 16, MANY = 96, DEPTHWISE = 64, GROUPS = 4 };
    lt_conv2d_config *c = &r->config;
    c->groups = one_in(rng, 5) ? between(rng, 2, GROUPS) : 1;
    r->c = c->groups * between(rng, 1, one_in(rng, 2) ? FEW : MANY);
    r->k = c->groups * between(rng, 1, one_in(rng, 2) ? FEW : MANY);
    if (one_in(rng, 8))
        c->groups = (int)(r->c = r->k = between(rng, 1, DEPTHWISE));
}

static void draw_row(lt_rng *rng, conv_row *r)
{
    lt_conv2d_config *c = &r->config;
    *r = (conv_row){.n = between(rng, 1, 3)};
    draw_channels(rng, r);
    r->r = one_in(rng, 3) ? between(rng, 1, 7) : 1 + 2 * between(rng, 0, 1);
    r->s = one_in(rng, 4) ? between(rng, 1, 5) : r->r;
    c->stride_h = between(rng, 1, one_in(rng, 2) ? 1 : 3);
    c->stride_w = one_in(rng, 4) ? between(rng, 1, 3) : c->stride_h;
    c->dilation_h = one_in(rng, 3) ? between(rng, 1, 4) : 1;
    c->dilation_w = one_in(rng, 4) ? between(rng, 1, 3) : c->dilation_h;
    r->h = between(rng, 1, one_in(rng, 2) ? 9 : 30);
    r->w = one_in(rng, 3) ? between(rng, 1, 30) : r->h;
    if (one_in(rng, 6)) /* kernels distinguish rows of more than 28 to 32 pixels */
        r->w = between(rng, 28, 140);
    c->pad_h = between(rng, 0, (int)r->r - 2 + c->dilation_h);
    c->pad_w = one_in(rng, 3) ? between(rng, 0, (int)r->s - 2 + c->dilation_w)
                              : (int)(r->s - 1) * c->dilation_w / 2;
    r->extra = one_in(rng, 2) ? BIAS : NEITHER;
}

static bool fits(int64_t size, int64_t taps, int pad, int dilation)
{
    return size + 2 * pad >= (taps - 1) * dilation + 1;
}

static bool is_taken(const conv_row *r, int64_t most)
{
    const lt_conv2d_config *c = &r->config;
    if (!fits(r->h, r->r, c->pad_h, c->dilation_h) || !fits(r->w, r->s, c->pad_w, c->dilation_w))
        return false;
    return lt_shape_count(conv_output(r)) * (r->c / c->groups) * r->r * r->s <= most;
}

/* Formats the options of benchdnn, oneDNN's test program. f16 here is f32 for oneDNN. */
static void tell(form *f)
{
    static const char *const directions[] = {"FWD_D", "BWD_D", "BWD_W", "BWD_W"};
    const conv_row *r = &f->row;
    const lt_conv2d_config *c = &r->config;
    const lt_shape y = conv_output(r);
    const bool bf16 = f->dtype == LT_BF16, w = f->way >= GRAD_W;
#if DNNL_VERSION_MAJOR >= 3
    const char *types = bf16 ? w ? "--dt=bf16:f32:bf16" : "--dt=bf16" : "--dt=f32";
#else
    const char *types = bf16 ? w ? "--cfg=bf16f32bf16" : "--cfg=bf16bf16bf16" : "--cfg=f32";
#endif
    snprintf(f->told, sizeof f->told,
             "--conv --dir=%s %s --stag=axb --dtag=axb --attr-scratchpad=user "
             "g%dmb%lldic%lldih%lldiw%lldoc%lldoh%lldow%lldkh%lldkw%lldsh%dsw%ddh%ddw%dph%dpw%d",
             f->way == FORWARD && r->extra == BIAS ? "FWD_B" : directions[f->way], types, c->groups,
             (long long)r->n, (long long)r->c, (long long)r->h, (long long)r->w, (long long)r->k,
             (long long)y.dim[2], (long long)y.dim[3], (long long)r->r, (long long)r->s,
             c->stride_h, c->stride_w, c->dilation_h - 1, c->dilation_w - 1, c->pad_h, c->pad_w);
    f->row.name = f->told;
}

void form_draw(uint64_t seed, uint64_t index, form *out)
{
    lt_rng rng = {.key = lt_rng_key(seed, LT_STREAM_DATA, index / 3, 0)};
    do
        draw_row(&rng, &out->row);
    while (!is_taken(&out->row, one_in(&rng, 20) ? RARE_PRODUCTS : PRODUCTS));
    /* Not drawn, so that the documented seeds keep their forms. */
    const lt_dtype wide = index / 3 % 3 == 2 ? LT_F16 : LT_F32;
    out->dtype = one_in(&rng, 3) ? wide : LT_BF16;
    /* the three directions of one form in turn */
    out->way = (conv_way)(index % 3);
    if (out->way == GRAD_W && one_in(&rng, 4))
        out->way = GRAD_W_ROWS;
    tell(out);
}
