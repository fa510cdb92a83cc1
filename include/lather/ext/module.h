/** Interface for writing a layer. Start from src/nn/linear.c. */
#ifndef LATHER_EXT_MODULE_H
#define LATHER_EXT_MODULE_H

#include "lather/ext/fail.h"
#include "lather/module.h"

typedef struct lt_module_ops {
    const char *kind; /**< name of the layer's kind, "conv2d", shown in messages and summaries */
    size_t bytes;     /**< size of the layer's struct */
    lt_tensor *(*forward)(lt_module *self, lt_tape *tape, lt_tensor *x);
    /** Appends the parameters, its children's included. NULL for a layer without any. */
    lt_status (*params)(lt_module *self, lt_params *list);
    /** Folds batch norms (see lt_module_fold()): calls lt_module_fold() on the children and
     *  lt_batchnorm2d_fold() on each convolution whose output only a batch norm reads. Optional. */
    lt_status (*fold)(lt_module *self);
    /** Frees what the struct points to, but not the struct; optional. */
    void (*destroy)(lt_module *self);
} lt_module_ops;

/** First member of every layer's struct. */
struct lt_module {
    const lt_module_ops *ops;
};

/** Allocates a zeroed struct of ops->bytes. Errors: LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_module_new(lt_module **out, const lt_module_ops *ops);

#endif
