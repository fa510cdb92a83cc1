/** Layers and models: things with parameters and a forward pass. */
#ifndef LATHER_MODULE_H
#define LATHER_MODULE_H

#include "lather/param.h"

typedef struct lt_module lt_module;

/** y = module(x) on the tape. Owns: the tape owns y. Errors: NULL, see lt_tape_status(). */
LT_API lt_tensor *lt_module_forward(lt_module *module, lt_tape *tape, lt_tensor *x);

/** Appends the module's parameters, its children's included. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_module_params(lt_module *module, lt_params *list);

/** Frees *module, its children and their parameters; sets it to NULL. */
LT_API void lt_module_free(lt_module **module);

/** Merges batch norms, as they evaluate, into the convolutions before them: the same function of the
 *  input but for rounding, with less to do and fewer parameters; the model is then for evaluation
 *  only. Take parameter lists afterwards; an optimizer made before must not step. What has no such
 *  pair, or does not know of this, stays as it is; a second call changes nothing.
 *  Errors: LT_E_NOMEM, LT_E_DEVICE; the model still evaluates as before.
 *  Source: Jacob et al., "Quantization and Training of Neural Networks", CVPR 2018, section 3.2. */
LT_API LT_MUST_CHECK lt_status lt_module_fold(lt_module *module);

/** "conv2d": shown in messages and summaries. */
LT_API const char *lt_module_kind(const lt_module *module);

#endif
