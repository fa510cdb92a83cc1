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

/** "conv2d": shown in messages and summaries. */
LT_API const char *lt_module_kind(const lt_module *module);

#endif
