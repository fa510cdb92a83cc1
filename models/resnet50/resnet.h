/** Residual networks for images from one table; the library lather-resnet: ResNet-18 to 152 and
 *  anything between (He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, table 1;
 *  in the variant called v1.5, where a bottleneck's stride sits on its 3x3 convolution), ResNeXt
 *  (Xie et al., CVPR 2017), wide ResNet (Zagoruyko & Komodakis, BMVC 2016), and ResNet-D (He et al.,
 *  "Bag of Tricks", CVPR 2019, section 4), whose stem and shortcuts are as in timm. */
#ifndef LATHER_MODELS_RESNET_H
#define LATHER_MODELS_RESNET_H

#include "lather/trainer.h"

enum { LT_RESNET_STAGES = 4 };

typedef struct lt_resnet_config {
    const char
        *arch; /**< "resnet50": sets depths, bottleneck, groups, deep; NULL: they are given */
    int depths[LT_RESNET_STAGES]; /**< blocks of each stage; all 0: those of arch */
    bool bottleneck;              /**< 1x1, 3x3, 1x1; else 3x3, 3x3 */
    int width;                    /**< channels of the stem; 0: 64 */
    int classes;
    int channels;        /**< channels of the images: 1 or 3; 0: 3 */
    int groups;          /**< bottleneck: groups of the 3x3 convolution; 0: arch's, or 1 */
    int width_per_group; /**< bottleneck: channels of a group per 64 of width; 0: arch's, or 64 */
    bool deep; /**< ResNet-D: a stem of three 3x3 convolutions, and shortcuts that average 2x2 */
    bool small_stem;     /**< 3x3 stride 1 and no pooling, for images of up to 64 pixels */
    bool zero_init_last; /**< each block starts as the identity (Goyal et al. 2017, section 5.1) */
    uint64_t seed;       /**< seed of the initial values */
} lt_resnet_config;

/** Makes the network. Parameters have torchvision's names, order and shapes. Free it with lt_module_free().
 *  Errors: LT_E_ARG (an unknown arch, a field out of range), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_resnet_new(lt_module **out, lt_device *device,
                                             const lt_resnet_config *config);

/** Makes the network of a weight file, with its weights; *config, unless NULL, gets its configuration. Errors: as
 *  lt_resnet_infer_config(), lt_weights_load(). */
LT_API LT_MUST_CHECK lt_status lt_resnet_load(lt_module **out, lt_device *device, const char *path,
                                              lt_resnet_config *config);

/** Determines the network of a weight file from its names and shapes; arch remains NULL. Errors: LT_E_IO,
 *  LT_E_FORMAT, LT_E_UNSUPPORTED (other groups). */
LT_API LT_MUST_CHECK lt_status lt_resnet_infer_config(const char *path, lt_resnet_config *config);

/** Replaces arch by its values and fills defaults. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_resnet_resolve(lt_resnet_config *config);

/** Returns the name of a resolved config's network, such as "resnet18"; NULL if it has none. */
LT_API const char *lt_resnet_name(const lt_resnet_config *config);

/** Counts the cost of one image of size x size; kept are the inputs of batch norms, recomputable the outputs of
 *  batch norm, relu and pooling. Errors: as lt_resnet_new(). */
LT_API LT_MUST_CHECK lt_status lt_resnet_count_cost(lt_model_cost *out,
                                                    const lt_resnet_config *config, int size);

/** Returns the family of train_resnet50 for lt_classifier_main() in a program of your own; a copy may have another
 *  `program`, the name in messages. */
LT_API const lt_model_family *lt_resnet_family(void);

#endif
