/* Inside of lather/safetensors.h. */
#ifndef LT_TENSOR_SAFETENSORS_H
#define LT_TENSOR_SAFETENSORS_H

#include "lather/safetensors.h"

/* As lt_safetensors_finish(), for a file of an lt_commit, which does the syncing. */
LT_MUST_CHECK lt_status lt_safetensors_finish_part(lt_safetensors_writer **writer);

#endif
