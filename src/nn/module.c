/* Modules: a table of functions as the first member of a layer's struct. */

#include "lather/ext/module.h"

#include "base/alloc.h"

lt_status lt_module_new(lt_module **out, const lt_module_ops *ops)
{
    LT_ASSERT(ops->bytes >= sizeof(lt_module) && ops->forward);
    lt_module *m = lt_alloc(1, ops->bytes);
    if (!m)
        return LT_E_NOMEM;
    m->ops = ops;
    *out = m;
    return LT_OK;
}

lt_tensor *lt_module_forward(lt_module *module, lt_tape *tape, lt_tensor *x)
{
    return module->ops->forward(module, tape, x);
}

lt_status lt_module_params(lt_module *module, lt_params *list)
{
    return module->ops->params ? module->ops->params(module, list) : LT_OK;
}

lt_status lt_module_fold(lt_module *module)
{
    return module->ops->fold ? module->ops->fold(module) : LT_OK;
}

void lt_module_free(lt_module **module)
{
    if (!*module)
        return;
    if ((*module)->ops->destroy)
        (*module)->ops->destroy(*module);
    lt_free(*module);
    *module = NULL;
}

const char *lt_module_kind(const lt_module *module)
{
    return module->ops->kind;
}
