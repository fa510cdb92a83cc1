/** Layers at a transformer's beginning: patches of images, a class token, learned positions. */
#ifndef LATHER_EMBEDDING_LAYERS_H
#define LATHER_EMBEDDING_LAYERS_H

#include "lather/module.h"
#include "lather/tensor_parallel.h"

typedef struct lt_patch_embedding_layer {
    int channels, width;
    int patch;                          /**< side of a patch, in pixels */
    const lt_tensor_parallel *parallel; /**< features are divided on a grid; NULL: on one rank */
} lt_patch_embedding_layer;

/** Images [N,channels,H,W] to rows [N,(H/patch)*(W/patch),width], row by row of patches: a
 *  convolution whose stride is its size. Parameters: weight [width,channels,patch,patch], bias
 *  [width]. Errors: LT_E_ARG, LT_E_NOMEM; on the tape LT_E_SHAPE (sides that are no multiples of
 *  patch). Source: Dosovitskiy et al., "An image is worth 16x16 words", ICLR 2021, section 3.1. */
LT_API LT_MUST_CHECK lt_status lt_layer_patch_embedding(lt_module **out, lt_device *device,
                                                        const char *name,
                                                        lt_patch_embedding_layer config);

/** A trained row in front of those of each sample: x [N,T,width] to [N,T+1,width]. The parameter has
 *  the layer's name itself, shape [1,1,width] and zeros. Errors: LT_E_ARG, LT_E_NOMEM. Source: Devlin et
 *  al., "BERT", NAACL 2019, section 3. */
LT_API LT_MUST_CHECK lt_status lt_layer_class_token(lt_module **out, lt_device *device,
                                                    const char *name, int width);
/** Of features that are divided on a grid. */
LT_API LT_MUST_CHECK lt_status lt_layer_class_token_parallel(lt_module **out, lt_device *device,
                                                             const char *name, int width,
                                                             const lt_tensor_parallel *parallel);

typedef struct lt_positions_layer {
    int rows, width;
    const char *leaf; /**< of the parameter's name; NULL: weight */
    bool batched;     /**< the parameter is [1,rows,width], as torchvision's; else [rows,width] */
    const lt_tensor_parallel *parallel; /**< as of patches */
} lt_positions_layer;

/** Learned positions: y[b,t] = x[b,t] + weight[t], x [B,T,width], T <= rows. Zeros until lt_init_*()
 *  fills them. Errors: LT_E_ARG, LT_E_NOMEM; on the tape LT_E_SHAPE (a longer sequence). */
LT_API LT_MUST_CHECK lt_status lt_layer_positions(lt_module **out, lt_device *device,
                                                  const char *name, lt_positions_layer config);
/** The same for rows that begin at position `first`: y[b,t] = x[b,t] + weight[first+t]. */
LT_API lt_tensor *lt_positions_forward(lt_module *positions, lt_tape *tape, lt_tensor *x,
                                       int64_t first);

/** The same for this rank's rows [r,C] of divided ones: y = x + weight of each row's token. */
LT_API lt_tensor *lt_positions_forward_rows(lt_module *positions, lt_tape *tape, lt_tensor *x,
                                            lt_token_rows rows);

/** Positions of side x side patches, [side*side,width], resized to want x want by bicubic
 *  interpolation: corners stay, beyond them lie copies of the border. Source: torchvision's
 *  interpolate_embeddings(); Keys, "Cubic convolution interpolation for digital image processing", 1981,
 *  equation 4 with a = -0.75. */
LT_API void lt_positions_resize(const double *from, int side, double *to, int want, int64_t width);

#endif
