/* Writing a model as ONNX: lather/onnx.h and the parts around its nodes. */
#ifndef LT_TRAIN_ONNX_H
#define LT_TRAIN_ONNX_H

#include "lather/checkpoint.h"
#include "lather/onnx.h"
#include "lather/trainer.h"

typedef struct lt_onnx_model {
    const lt_model_family *family; /* family of the model; it has .onnx */
    const void *config;
    lt_model_spec spec; /* spec of the model, which describes the input */
    const lt_params *params;
    const lt_metadata *metadata;
    size_t metadata_count;
} lt_onnx_model;

/* Writes the file: input "images" [N,C,size,size] f32, normalized; output "logits" [N,classes]; N is free. Errors:
 * LT_E_IO, LT_E_NOMEM, LT_E_UNSUPPORTED (2 GiB or more). The family has .onnx. */
LT_MUST_CHECK lt_status lt_onnx_save(const lt_onnx_model *model, const char *path);

#endif
