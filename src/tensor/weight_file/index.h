/* Indices of models and checkpoints in several files, and checks of the parts. */
#ifndef LT_TENSOR_WEIGHT_FILE_INDEX_H
#define LT_TENSOR_WEIGHT_FILE_INDEX_H

#include "base/encoding/json.h"

#include "lather/status.h"

/* Ending of an index of parts, after the name of the whole file. */
#define LT_INDEX_ENDING ".index.json"
/* Metadata of a part of a checkpoint and of its index: step and run. The index also has the size of each part:
 * {NAME: {"bytes": N}}. */
#define LT_PART_STEP  "checkpoint.step"
#define LT_PART_RUN   "checkpoint.run"
#define LT_PART_FILES "checkpoint.files"

/* A part that an index names. */
typedef struct lt_index_part {
    const lt_json_value *metadata; /* metadata of the index; may be NULL */
    const char *index, *path;      /* path of the index; of the part */
    const char *name;              /* name of the part in the index */
} lt_index_part;

/* Fails unless step and run, metadata of the part or NULL, are those of the index, if it has them. Errors: LT_E_FORMAT
 * (names the part and both steps and runs). */
LT_MUST_CHECK lt_status lt_index_check_origin(const lt_index_part *at, const char *step,
                                              const char *run);
/* Fails if the index has another size of the part than its file. Errors: LT_E_FORMAT (names both), LT_E_IO (it is
 * missing). */
LT_MUST_CHECK lt_status lt_index_check_size(const lt_index_part *at);

#endif
