/* A residual network as an ONNX model. */
#ifndef ONNX_H
#define ONNX_H

#include "resnet.h"

#include "lather/param.h"

typedef struct onnx_note {
    const char *key, *value;
} onnx_note;

typedef struct onnx_model {
    const lt_resnet_config *shape; /* resolved */
    const lt_params *params;
    int size;              /* side of the input */
    const onnx_note *note; /* metadata */
    size_t notes;
} onnx_model;

/* The file: input "images" [N,C,size,size] f32, normalised; output "logits" [N,classes]; N is free.
 * Errors: LT_E_IO, LT_E_NOMEM, LT_E_UNSUPPORTED (2 GiB or more). */
LT_MUST_CHECK lt_status onnx_write(const onnx_model *model, const char *path);

#endif
