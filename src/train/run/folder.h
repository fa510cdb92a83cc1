/* Names of files in a run folder, and the run that they belong to. */
#ifndef LT_TRAIN_RUN_FOLDER_H
#define LT_TRAIN_RUN_FOLDER_H

#include "lather/detail/run_folder.h"

/* Names of the files in FOLDER/checkpoints/step-N. */
#define LT_CHECKPOINT_MODEL "model.safetensors"
#define LT_CHECKPOINT_OPTIM "optim.safetensors"
#define LT_CHECKPOINT_STATE "state.json"

/* Returns the step of a name such as "step-12", or -1. */
int64_t lt_run_step_of(const char *name);

/* Reads the member "run" of a JSON file in a folder; "" if absent or invalid. Errors: LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_run_read_id_of_file(const char *folder, const char *file,
                                               char id[LT_RUN_ID]);

#endif
