/** Modules: layers and models, with parameters and a forward pass. */
#ifndef LATHER_MODULE_H
#define LATHER_MODULE_H

#include "lather/param.h"

typedef struct lt_module lt_module;

/** Runs the module's forward pass on the tape. Owns: the tape owns the result. Errors: NULL; see
 *  lt_tape_status(). */
LT_API lt_tensor *lt_module_forward(lt_module *module, lt_tape *tape, lt_tensor *x);

/** Appends the parameters of the module and its children. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_module_params(lt_module *module, lt_params *list);

/** Frees *module, its children and their parameters; sets it to NULL. */
LT_API void lt_module_free(lt_module **module);

/** Folds batch norms with their running statistics into the preceding convolutions, for faster
 *  inference. The result differs by rounding. Afterwards the model is for inference only:
 *  collect its parameters again, and do not step an optimizer made before. Modules without such
 *  a pair, or without support for folding, are unchanged; a second call changes nothing. Errors:
 *  LT_E_NOMEM, LT_E_DEVICE; the model still evaluates as before. Source: Jacob et al.,
 *  "Quantization and Training of Neural Networks", CVPR 2018, section 3.2. */
LT_API LT_MUST_CHECK lt_status lt_module_fold(lt_module *module);

/** Returns the kind, for example "conv2d", as shown in messages and summaries. */
LT_API const char *lt_module_kind(const lt_module *module);

#endif
