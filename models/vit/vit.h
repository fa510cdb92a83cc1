/** Vision transformers for images; the library lather-vit. Dosovitskiy et al., "An image is worth 16x16
 *  words: transformers for image recognition at scale", ICLR 2021. Names and shapes are torchvision's. */
#ifndef LATHER_MODELS_VIT_H
#define LATHER_MODELS_VIT_H

#include "lather/trainer.h"

typedef struct lt_vit_config {
    const char
        *arch; /**< "vit_b_16": sets the next five fields where they are 0; NULL or "": vit_b_16 */
    int patch; /**< side of a patch, in pixels */
    int width, depth, heads;
    int hidden;     /**< width of the mlp's hidden layer */
    int size;       /**< side of the images, a multiple of patch */
    int channels;   /**< channels of the images; 0: 3 */
    bool mean_pool; /**< the head reads the mean of the patches; otherwise a class token */
    int classes;
    double dropout;   /**< after positions, attention and in the mlp */
    double drop_path; /**< probability in the last block; decreases linearly to 0 at the first */
    double attention_scale; /**< factor of attention scores; 0: 1/sqrt(features per head) */
    uint64_t seed;          /**< seed of the initial values */
    bool is_loaded;         /**< weights are loaded later: no initial values are drawn */
    bool interpolate;       /**< lt_vit_resize_positions() resizes positions */
    const lt_tensor_parallel *parallel; /**< ranks that shard it; NULL: one */
} lt_vit_config;

/** Makes the network: images [N,channels,size,size] to logits [N,classes]. Sharded, it takes a replica's images on
 *  each of its ranks, and returns the same logits on all. Parameters have torchvision's names, order and shapes;
 *  with mean_pool there is neither a class_token nor a position for it. Errors: LT_E_ARG (an unknown arch, a field
 *  out of range, heads that do not divide the width, a size that is not a multiple of the patch), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_vit_new(lt_module **out, lt_device *device,
                                          const lt_vit_config *config);

/** Checks that config->parallel can shard the network, with `batch` images per replica. Errors: LT_E_ARG (names
 *  the number that does not divide, the ranks, and a number that does), LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_vit_check_parallel(const lt_vit_config *config, int64_t batch);

/** Determines the network of a weight file from its names and shapes; heads are 0 if neither its metadata nor an
 *  arch of its width determine them. arch remains NULL. Errors: LT_E_IO, LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_vit_infer_config(const char *path, lt_vit_config *config);

/** Replaces arch by its values. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_vit_resolve(lt_vit_config *config);

/** Returns the name of a resolved config's network, such as "vit_b_16"; NULL if it has none. */
LT_API const char *lt_vit_name(const lt_vit_config *config);

/** Counts the cost of one image. Errors: as lt_vit_new(). */
LT_API LT_MUST_CHECK lt_status lt_vit_count_cost(lt_model_cost *out, const lt_vit_config *config);

/** For lt_weights_load(), context an lt_vit_config: resizes positions of another number of patches by bicubic
 *  interpolation if config->interpolate; otherwise fails, naming both grids. Errors: LT_E_SHAPE. */
LT_API LT_MUST_CHECK lt_status lt_vit_resize_positions(const void *config, const char *name,
                                                       lt_shape have, const double *from,
                                                       lt_shape want, double *to);

/** Returns the family of train_vit for lt_classifier_main() in a program of your own; a copy may have another
 *  `program`, the name in messages. */
LT_API const lt_model_family *lt_vit_family(void);

#endif
