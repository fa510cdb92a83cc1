/* Names of layers inside other layers. */
#ifndef LT_NN_LAYER_H
#define LT_NN_LAYER_H

#include "lather/status.h"

enum { LT_LAYER_NAME = 160 };

/* Writes "name.leaf", or "leaf" if name is "", to path. Errors: LT_E_ARG (too long). */
lt_status lt_layer_path(char path[LT_LAYER_NAME], const char *name, const char *leaf);

#endif
