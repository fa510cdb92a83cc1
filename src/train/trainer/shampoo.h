/* Shampoo's settings in train_resnet50. */
#ifndef SHAMPOO_H
#define SHAMPOO_H

#include "train/trainer/arguments.h"

#include "lather/shampoo.h"

/* What the resolved arguments say. Errors: LT_E_ARG (a list that cannot be read). */
lt_status arguments_shampoo(const arguments *args, lt_shampoo_config *out);

#endif
