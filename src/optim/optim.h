/* Inside of optimizers. */
#ifndef LT_OPTIM_OPTIM_H
#define LT_OPTIM_OPTIM_H

#include "lather/ext/optim.h"

/* Shows a counter under the name "NAME.PARAM". */
lt_status lt_optim_visit_number(const lt_state_visitor *visitor, const char *name,
                                const char *param, int64_t *value);

#endif
