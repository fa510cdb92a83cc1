/* Names of files in a run folder, and the run that they are of. */
#ifndef LT_TRAIN_RUN_FOLDER_H
#define LT_TRAIN_RUN_FOLDER_H

#include "lather/detail/run_folder.h"

/* In FOLDER/checkpoints/step-N. */
#define LT_CHECKPOINT_MODEL "model.safetensors"
#define LT_CHECKPOINT_OPTIM "optim.safetensors"
#define LT_CHECKPOINT_STATE "state.json"

/* The step of a name "step-12", or -1. */
int64_t lt_run_step_of(const char *name);

/* The member "run" of a JSON file in a folder, if it is an id; else "". Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_run_id_in(const char *folder, const char *file, char id[LT_RUN_ID]);

#endif
