/* Mixup and cutmix: mixes image n of a batch with image count-1-n in place. */
#ifndef LT_DATA_MIX_H
#define LT_DATA_MIX_H

#include "base/rng.h"
#include "data/formats/image.h"

#include "lather/data.h"

/* How a batch is mixed. */
typedef struct lt_mixing {
    double share; /* weight of the image, the other image has the rest; 1: no mixing */
    bool cut;     /* cutmix: the window is from the other image; false: mixup averages all pixels */
    lt_window window;
} lt_mixing;

lt_status lt_mix_check(const lt_mix *mix);
bool lt_mix_is_enabled(const lt_mix *mix);
lt_mixing lt_mix_draw(const lt_mix *mix, int size, lt_rng *rng);
/* Mixes the images of a batch in place: pixels [count][size][size][channels]. */
void lt_mix_pixels(const lt_mixing *mixing, uint8_t *pixels, int count, int size, int channels);
/* Writes targets [count][classes]: share for the image's label, the rest for that of the other image. */
void lt_mix_targets(const lt_mixing *mixing, const int32_t *labels, int count, int classes,
                    float *targets);

/* Draws from Beta(alpha, alpha) by two gamma variates. Marsaglia & Tsang, "A simple method for generating gamma
 * variables", TOMS 2000. */
double lt_rng_beta(lt_rng *rng, double alpha);

#endif
