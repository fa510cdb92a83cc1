/** For writing a layer. Start from src/nn/linear.c. */
#ifndef LATHER_EXT_MODULE_H
#define LATHER_EXT_MODULE_H

#include "lather/ext/fail.h"
#include "lather/module.h"

typedef struct lt_module_ops {
    const char *kind; /**< "conv2d": shown in messages and summaries */
    size_t bytes;     /**< of the layer's struct */
    lt_tensor *(*forward)(lt_module *self, lt_tape *tape, lt_tensor *x);
    /** Optional: a layer without parameters or children leaves both out. */
    lt_status (*params)(lt_module *self, lt_params *list);
    /** For lt_module_fold(). Optional: calls it for the children, and lt_batchnorm2d_fold() for each
     *  convolution whose output only a batch norm reads. */
    lt_status (*fold)(lt_module *self);
    void (*destroy)(lt_module *self); /**< what the struct points to, not the struct */
} lt_module_ops;

/** First member of every layer's struct. */
struct lt_module {
    const lt_module_ops *ops;
};

/** A zeroed struct of ops->bytes. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_module_new(lt_module **out, const lt_module_ops *ops);

#endif
