/* The family of models new_name. */
#ifndef NEW_NAME_H
#define NEW_NAME_H

#include "lather/trainer.h"

const lt_model_family *new_name_family(void);

#endif
