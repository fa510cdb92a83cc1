/* What the options of train_resnet50 say of the network. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include "resnet.h"

enum { STEM_AUTO, STEM_IMAGENET, STEM_SMALL };

typedef struct settings {
    const char *arch, *depths;
    int64_t width;
    int stem;
    bool zero_init_last;
    /* settings_resolve() */
    int depth[LT_RESNET_STAGES]; /* of --depths; 0: arch's */
    bool small_stem;
} settings;

/* The functions of lt_model_family; config is a settings. */
lt_status settings_resolve(void *config, const lt_model_spec *spec, const lt_model_facts *known);
lt_status settings_make(lt_module **out, lt_device *device, const void *config,
                        const lt_model_spec *spec);
lt_status settings_describe(const void *config, const lt_model_spec *spec, lt_model_facts *out);
lt_status settings_infer(const char *path, lt_model_facts *out, lt_model_spec *spec);
lt_status settings_cost(const void *config, const lt_model_spec *spec, lt_model_cost *out);
lt_status settings_onnx(lt_onnx *graph, const void *config, const lt_model_spec *spec);

/* The network of a resolved settings. */
lt_resnet_config settings_config(const void *config, const lt_model_spec *spec);

#endif
