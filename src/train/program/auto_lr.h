/* --lr auto: trials choose the learning rate. */
#ifndef LT_TRAINER_AUTO_LR_H
#define LT_TRAINER_AUTO_LR_H

#include "trainer.h"

/* Returns true if the last --lr of a command line is "auto". */
bool lt_auto_lr_is_asked(int argc, char *const *argv);
/* Chooses the rate and trains with it; returns the exit status. */
int lt_auto_lr_main(int argc, char **argv, const lt_model_family *family,
                    const lt_trainer_program *program);

#endif
