/* Changes to the pixels of a square input, in place, with the results of Pillow and torchvision. */
#ifndef LT_DATA_COLOUR_H
#define LT_DATA_COLOUR_H

#include "base/rng.h"
#include "data/formats/image.h"

#include "lather/data.h"

#include <stdatomic.h>

/* u8 [size][size][channels], channels 1 or 3; other: workspace of the same size. */
typedef struct lt_canvas {
    uint8_t *pixels, *other;
    int size, channels;
} lt_canvas;

typedef enum lt_pixel_op {
    LT_PIXEL_IDENTITY,
    LT_PIXEL_SHEAR_X,     /* x + value * y */
    LT_PIXEL_SHEAR_Y,     /* y + value * x */
    LT_PIXEL_TRANSLATE_X, /* by whole pixels */
    LT_PIXEL_TRANSLATE_Y,
    LT_PIXEL_ROTATE,     /* counter-clockwise, degrees */
    LT_PIXEL_BRIGHTNESS, /* these four: 0: none left, 1: unchanged, 2: twice as much */
    LT_PIXEL_COLOUR,
    LT_PIXEL_CONTRAST,
    LT_PIXEL_SHARPNESS,
    LT_PIXEL_POSTERIZE, /* bits that stay */
    LT_PIXEL_SOLARIZE,  /* values from here on are inverted */
    LT_PIXEL_AUTO_CONTRAST,
    LT_PIXEL_EQUALIZE,
    LT_PIXEL_OPS,
    LT_PIXEL_HUE = LT_PIXEL_OPS /* turn, in -0.5 .. 0.5; not one of TrivialAugment's */
} lt_pixel_op;

void lt_pixel_apply(lt_canvas *canvas, lt_pixel_op op, double value);

/* One random operation of random strength. Mueller & Hutter, "TrivialAugment: Tuning-free Yet
 * State-of-the-Art Data Augmentation", ICCV 2021, the wide space. */
void lt_trivial_augment(lt_canvas *canvas, lt_rng *rng);
/* Random operations one after the other, all of one strength. Cubuk et al., "RandAugment: Practical
 * automated data augmentation with a reduced search space", NeurIPS 2020, as torchvision has it.
 * It ends early once *stop is set; stop may be NULL. */
void lt_rand_augment_apply(lt_canvas *canvas, const lt_rand_augment *config, lt_rng *rng,
                           const atomic_bool *stop);
/* The strength of one of its operations on an image of this side, before a sign. */
double lt_rand_augment_strength(lt_pixel_op op, int magnitude, int side);
/* The same of TrivialAugment's, of bins 0 to 30. */
double lt_trivial_augment_strength(lt_pixel_op op, uint32_t bin);
/* Brightness, contrast, saturation and hue in random order, as torchvision's ColorJitter. */
void lt_colour_jitter(lt_canvas *canvas, const lt_jitter *jitter, lt_rng *rng);
/* With this probability a rectangle gets the fill colour. Zhong et al., "Random Erasing Data
 * Augmentation", AAAI 2020, algorithm 1. */
void lt_random_erase(lt_canvas *canvas, double probability, const uint8_t fill[3], lt_rng *rng);

#endif
