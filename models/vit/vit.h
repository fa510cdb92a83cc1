/** Vision transformers for images; the library lather-vit. Dosovitskiy et al., "An image is worth 16x16
 *  words: transformers for image recognition at scale", ICLR 2021. Names and shapes are torchvision's. */
#ifndef LATHER_MODELS_VIT_H
#define LATHER_MODELS_VIT_H

#include "lather/trainer.h"

typedef struct lt_vit_config {
    const char *arch; /**< "vit_b_16": fills what is 0 of the next five; NULL or "": vit_b_16's */
    int patch;        /**< side of a patch, in pixels */
    int width, depth, heads;
    int hidden;     /**< of the mlp */
    int size;       /**< side of the images, a multiple of patch */
    int channels;   /**< of the images; 0: 3 */
    bool mean_pool; /**< the head reads the mean of the patches; else a class token */
    int classes;
    double dropout;                     /**< behind positions, attention and in the mlp */
    double drop_path;                   /**< of the last block; falls linearly to 0 at the first */
    uint64_t seed;                      /**< of the initial values */
    bool is_loaded;                     /**< weights are loaded afterwards: no values are drawn */
    bool interpolate;                   /**< lt_vit_fit() resizes positions */
    const lt_tensor_parallel *parallel; /**< ranks that it is divided over; NULL: one */
} lt_vit_config;

/** The network: images [N,channels,size,size] to logits [N,classes]. Divided, it takes a copy's images on
 *  each of its ranks, and gives all of them the same logits. Parameters have torchvision's names, order and shapes; with mean_pool there is no
 *  class_token, nor a position for it. Errors: LT_E_ARG (an unknown arch, a field out of range, heads
 *  that do not divide the width, images that are no multiple of the patch), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_vit_new(lt_module **out, lt_device *device,
                                          const lt_vit_config *config);

/** Whether config->parallel can divide the network, for batches of so many images a copy. Errors: LT_E_ARG
 *  (what does not divide, by how many ranks, and what would), LT_E_UNSUPPORTED. */
LT_API LT_MUST_CHECK lt_status lt_vit_check_parallel(const lt_vit_config *config, int64_t batch);

/** What network a file of weights belongs to, read off its names and shapes; heads are 0 where neither
 *  its metadata nor an arch of its width says how many there are. arch stays NULL.
 *  Errors: LT_E_IO, LT_E_FORMAT. */
LT_API LT_MUST_CHECK lt_status lt_vit_infer(const char *path, lt_vit_config *config);

/** Replaces arch by what it stands for. Errors: LT_E_ARG. */
LT_API LT_MUST_CHECK lt_status lt_vit_resolve(lt_vit_config *config);

/** "vit_b_16": the name of a resolved config's network, NULL if it has none. */
LT_API const char *lt_vit_name(const lt_vit_config *config);

/** What one image costs. Errors: as lt_vit_new(). */
LT_API LT_MUST_CHECK lt_status lt_vit_count(lt_model_cost *out, const lt_vit_config *config);

/** For lt_weights_load(), context a lt_vit_config: positions of another number of patches, resized
 *  by bicubic interpolation if config->interpolate; else an error that names both grids.
 *  Errors: LT_E_SHAPE. */
LT_API LT_MUST_CHECK lt_status lt_vit_fit(const void *config, const char *name, lt_shape have,
                                          const double *from, lt_shape want, double *to);

#endif
