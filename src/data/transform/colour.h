/* Changes pixels of a square input in place, with the same results as Pillow and torchvision. */
#ifndef LT_DATA_COLOUR_H
#define LT_DATA_COLOUR_H

#include "base/rng.h"
#include "data/formats/image.h"

#include "lather/data.h"

#include <stdatomic.h>

/* u8 pixels [size][size][channels] with 1 or 3 channels; other: workspace of the same size, for a blur of floats. */
typedef struct lt_canvas {
    uint8_t *pixels, *other;
    int size, channels;
} lt_canvas;

typedef enum lt_pixel_op {
    LT_PIXEL_IDENTITY,
    LT_PIXEL_SHEAR_X,     /* moves pixels to x + value * y */
    LT_PIXEL_SHEAR_Y,     /* moves pixels to y + value * x */
    LT_PIXEL_TRANSLATE_X, /* moves pixels by value, truncated to an integer */
    LT_PIXEL_TRANSLATE_Y,
    LT_PIXEL_ROTATE,     /* rotates counter-clockwise by value in degrees */
    LT_PIXEL_BRIGHTNESS, /* by a factor, as in the next three: 0 removes it, 1 keeps, 2 doubles */
    LT_PIXEL_COLOUR,
    LT_PIXEL_CONTRAST,
    LT_PIXEL_SHARPNESS,
    LT_PIXEL_POSTERIZE, /* value: number of bits to keep */
    LT_PIXEL_SOLARIZE,  /* value: smallest pixel value to invert */
    LT_PIXEL_AUTO_CONTRAST,
    LT_PIXEL_EQUALIZE,
    LT_PIXEL_OPS,
    LT_PIXEL_HUE = LT_PIXEL_OPS /* value: -0.5 .. 0.5; not in TrivialAugment and RandAugment */
} lt_pixel_op;

void lt_pixel_apply(lt_canvas *canvas, lt_pixel_op op, double value);

/* Applies one random operation of random strength. Mueller & Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art
 * Data Augmentation", ICCV 2021, the wide space. */
void lt_trivial_augment(lt_canvas *canvas, lt_rng *rng);
/* Applies config->ops random operations of equal strength. Cubuk et al., "RandAugment: Practical automated data
 * augmentation with a reduced search space", NeurIPS 2020, as in torchvision. Ends early once *stop is set; stop may be
 * NULL. */
void lt_rand_augment_apply(lt_canvas *canvas, const lt_rand_augment *config, lt_rng *rng,
                           const atomic_bool *stop);
/* Returns the strength of an operation of RandAugment, without sign, for an image of this side. */
double lt_rand_augment_strength(lt_pixel_op op, int magnitude, int side);
/* Returns the strength of an operation of TrivialAugment, without sign; bin: 0 to 30. */
double lt_trivial_augment_strength(lt_pixel_op op, uint32_t bin);
/* Changes brightness, contrast, saturation and hue in random order, as torchvision's ColorJitter. */
void lt_colour_jitter(lt_canvas *canvas, const lt_jitter *jitter, lt_rng *rng);
/* Blurs by a Gaussian of 23 taps with mirrored edges, as torchvision's gaussian_blur(); sigma in pixels. */
void lt_gaussian_blur(lt_canvas *canvas, double sigma);
/* Fills a random rectangle with this probability. Zhong et al., "Random Erasing Data Augmentation", AAAI 2020,
 * algorithm 1. */
void lt_random_erase(lt_canvas *canvas, double probability, const uint8_t fill[3], lt_rng *rng);

#endif
