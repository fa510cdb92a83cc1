/* The processor and the kernels that run on it, as env.json and state.json have them: a resume on others may differ
 * in the last bits. */
#ifndef LT_TRAIN_PROCESSOR_H
#define LT_TRAIN_PROCESSOR_H

#include "base/encoding/json.h"

enum { LT_PROCESSOR_TEXT = 512 }; /* holds a comparison */

/* Writes the members of this process. */
void lt_processor_put(lt_json_writer *w);
/* Whether a member of state.json is one of them. */
bool lt_processor_has(const char *key);
/* Members that differ between root and this process, "cpu_isa avx512 -> avx2, ...", into text; "": none. Members that are
 * missing, as files of earlier versions lack most, are passed over. Returns text. */
const char *lt_processor_compare(const lt_json_value *root, char *text, size_t size);
/* The same for FOLDER/state.json. Errors: LT_E_IO, LT_E_FORMAT, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_processor_compare_checkpoint(const char *folder, char *text,
                                                        size_t size);

#endif
