/* Private constructor of Muon. */
#ifndef LT_OPTIM_MUON_NEW_H
#define LT_OPTIM_MUON_NEW_H

#include "lather/muon.h"

/* Makes the optimizer with a config whose fields are in range. */
LT_MUST_CHECK lt_status lt_muon_new(lt_optim **out, const lt_params *params,
                                    const lt_muon_config *config);

#endif
