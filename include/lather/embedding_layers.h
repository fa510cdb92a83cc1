/** Input layers of transformers: image patches, class token, learned positions. */
#ifndef LATHER_EMBEDDING_LAYERS_H
#define LATHER_EMBEDDING_LAYERS_H

#include "lather/module.h"
#include "lather/tensor_parallel.h"

typedef struct lt_patch_embedding_layer {
    int channels, width;
    int patch; /**< height and width of a patch, in pixels */
    /** Grid of ranks that shard the features; NULL: one rank. */
    const lt_tensor_parallel *parallel;
} lt_patch_embedding_layer;

/** Creates a map from images [N,channels,H,W] to rows [N,(H/patch)*(W/patch),width], patches in
 *  row-major order: a convolution whose stride is its kernel size. Parameters: weight
 *  [width,channels,patch,patch], bias [width]. Errors: LT_E_ARG, LT_E_NOMEM; on the tape
 *  LT_E_SHAPE (H or W is not a multiple of patch). Source: Dosovitskiy et al., "An image is
 *  worth 16x16 words", ICLR 2021, section 3.1. */
LT_API LT_MUST_CHECK lt_status lt_layer_patch_embedding(lt_module **out, lt_device *device,
                                                        const char *name,
                                                        lt_patch_embedding_layer config);

/** Creates a layer that prepends a trained row to each sample: x [N,T,width] to [N,T+1,width].
 *  The parameter has the layer's own name, shape [1,1,width] and zeros. Errors: LT_E_ARG,
 *  LT_E_NOMEM. Source: Devlin et al., "BERT", NAACL 2019, section 3. */
LT_API LT_MUST_CHECK lt_status lt_layer_class_token(lt_module **out, lt_device *device,
                                                    const char *name, int width);
/** lt_layer_class_token() with features sharded over a grid of ranks. */
LT_API LT_MUST_CHECK lt_status lt_layer_class_token_parallel(lt_module **out, lt_device *device,
                                                             const char *name, int width,
                                                             const lt_tensor_parallel *parallel);

typedef struct lt_positions_layer {
    int rows, width;
    const char *leaf; /**< last part of the parameter's name; NULL: weight */
    bool batched;     /**< the parameter is [1,rows,width], as in torchvision; else [rows,width] */
    /** Grid of ranks that shard the features; NULL: one rank. */
    const lt_tensor_parallel *parallel;
} lt_positions_layer;

/** Creates learned positions: y[b,t] = x[b,t] + weight[t], x [B,T,width], T <= rows. Zeros until
 *  lt_init_*() fills them. Errors: LT_E_ARG, LT_E_NOMEM; on the tape LT_E_SHAPE (a sequence
 *  longer than rows). */
LT_API LT_MUST_CHECK lt_status lt_layer_positions(lt_module **out, lt_device *device,
                                                  const char *name, lt_positions_layer config);
/** Runs the layer for rows that begin at position `first`: y[b,t] = x[b,t] + weight[first+t]. */
LT_API lt_tensor *lt_positions_forward(lt_module *positions, lt_tape *tape, lt_tensor *x,
                                       int64_t first);

/** Runs the layer on this rank's rows [r,C] of a row-sharded activation: y = x + weight of each
 *  row's token. */
LT_API lt_tensor *lt_positions_forward_rows(lt_module *positions, lt_tape *tape, lt_tensor *x,
                                            lt_token_rows rows);

/** Resizes positions of side x side patches, [side*side,width], to want x want by bicubic
 *  interpolation with aligned corners and a replicated border. Source: torchvision's
 *  interpolate_embeddings(); Keys, "Cubic convolution interpolation for digital image
 *  processing", 1981, equation 4 with a = -0.75. */
LT_API void lt_positions_resize(const double *from, int side, double *to, int want, int64_t width);

#endif
