/* The processor and its selected kernels, as env.json and state.json have them: a resume on others may differ by
 * rounding. */
#ifndef LT_TRAIN_PROCESSOR_H
#define LT_TRAIN_PROCESSOR_H

#include "base/encoding/json.h"

enum { LT_PROCESSOR_TEXT = 512 }; /* bytes that hold a comparison of processors */

/* Writes the processor and the kernels that this process selects, for a reproducible device or another, as members of a
 * JSON object. */
void lt_processor_write_json(lt_json_writer *w, bool reproducible);
/* Returns true if a key of state.json is one of the members that describe the processor. */
bool lt_processor_has(const char *key);
/* Writes the members that differ between root and this process into text: "cpu_isa avx512 -> avx2, ..."; "" if
 * none. Skips members that are missing, as in files of earlier versions. reproducible: "" if root was, too, as the
 * processor then makes no difference. Returns text. */
const char *lt_processor_compare(const lt_json_value *root, bool reproducible, char *text,
                                 size_t size);
/* Compares the processor with that of FOLDER/state.json; fills text. Errors: LT_E_IO, LT_E_FORMAT, LT_E_NOMEM. */
LT_MUST_CHECK lt_status lt_processor_compare_checkpoint(const char *folder, bool reproducible,
                                                        char *text, size_t size);

#endif
