/** Entry by which an optimizer takes part in --mup. See docs/guides/learning-rate-transfer.md. */
#ifndef LATHER_EXT_UPDATE_SIZE_H
#define LATHER_EXT_UPDATE_SIZE_H

#include "lather/optim.h"
#include "lather/shampoo_kinds.h"

struct lt_slot;

/** Size of a slot's update, for lather/mup.h. For a gradient of low rank with elements of size g, those of the
 *  update have the size scale * g^(1 - 2 power) * block^-power. power: 0 of SGD, 1/2 of methods that divide by
 *  the root of a second moment, the sum of its factors' exponents of Shampoo. */
typedef struct lt_update_size {
    double power, scale;
    double block;        /**< elements that are normalized together: 1, or those of a block */
    lt_decay_type decay; /**< how weight decay enters the update */
} lt_update_size;

/** Returns the size of a slot's updates. */
typedef lt_update_size lt_update_size_fn(const lt_optim *self, const struct lt_slot *slot);

#endif
