/* Helpers for layers: names, the end of constructors, and layers with a weight and a bias. */
#ifndef LT_NN_LAYER_H
#define LT_NN_LAYER_H

#include "lather/ext/module.h"

enum { LT_LAYER_NAME = 160 };

/* Writes "name.leaf", or "leaf" if name is "", to path. Errors: LT_E_ARG (too long). */
lt_status lt_layer_join_path(char path[LT_LAYER_NAME], const char *name, const char *leaf);

/* Ends a constructor: sets *out to the module, or frees it if st is a failure. Returns st. */
lt_status lt_layer_finish_construction(lt_module **out, lt_module *module, lt_status st);

/* Creates this rank's shard of a parameter. Errors: as lt_param_init_kind(). */
lt_status lt_layer_init_sharded(lt_param *param, lt_device *device, const char *name,
                                const char *leaf, const lt_shard_spec *spec, double fill,
                                lt_param_kind kind);

/* First member of the structs of layers with a weight and a bias; the value is NULL of an absent one. */
typedef struct lt_weight_bias {
    lt_module module;
    lt_param weight, bias;
} lt_weight_bias;

/* params and destroy in the lt_module_ops of a layer with a weight and a bias. */
lt_status lt_weight_bias_params(lt_module *self, lt_params *list);
void lt_weight_bias_destroy(lt_module *self);

#endif
