/* Names of layers inside other layers. */

#include "nn/layer.h"

#include "lather/ext/fail.h"

#include <stdio.h>

lt_status lt_layer_path(char path[LT_LAYER_NAME], const char *name, const char *leaf)
{
    int bytes = snprintf(path, LT_LAYER_NAME, "%s%s%s", name, *name ? "." : "", leaf);
    return bytes < LT_LAYER_NAME
               ? LT_OK
               : lt_fail(LT_E_ARG, "layer %s: the name has %d bytes, want at most %d", path, bytes,
                         LT_LAYER_NAME - 1);
}
