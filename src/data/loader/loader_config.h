/* Checks a loader's config. */
#ifndef LT_DATA_LOADER_CONFIG_H
#define LT_DATA_LOADER_CONFIG_H

#include "lather/data.h"

/* Fills in what a zero stands for. Errors: LT_E_ARG, naming the field. */
lt_status lt_loader_config_complete(lt_loader_config *config, const lt_dataset *dataset);

#endif
