/* Mixup and cutmix: image n of a batch with image count-1-n, in place. */
#ifndef LT_DATA_MIX_H
#define LT_DATA_MIX_H

#include "base/rng.h"
#include "data/formats/image.h"

#include "lather/data.h"

/* The mixing of one batch. */
typedef struct lt_mix_plan {
    double share; /* of an image itself; 1: nothing is mixed */
    bool cut;     /* the window comes from the partner; else all pixels are averaged */
    lt_window box;
} lt_mix_plan;

lt_status lt_mix_check(const lt_mix *mix);
bool lt_mix_wanted(const lt_mix *mix);
lt_mix_plan lt_mix_draw(const lt_mix *mix, int size, lt_rng *rng);
/* pixels [count][size][size][channels]. */
void lt_mix_pixels(const lt_mix_plan *plan, uint8_t *pixels, int count, int size, int channels);
/* targets [count][classes]: share of the own label, the rest of the partner's. */
void lt_mix_targets(const lt_mix_plan *plan, const int32_t *labels, int count, int classes,
                    float *targets);

/* Beta(alpha, alpha), by two gamma variates: Marsaglia & Tsang, "A simple method for generating
 * gamma variables", TOMS 2000. */
double lt_rng_beta(lt_rng *rng, double alpha);

#endif
