/* config.json next to weights of HuggingFace. */
#ifndef GPT_CONFIG_H
#define GPT_CONFIG_H

#include "lather/trainer.h"

/* Sets facts from the config.json in the folder of a weight file, if there is one. Errors: LT_E_IO, LT_E_FORMAT
 * (invalid JSON, a number that contradicts the tensors), LT_E_UNSUPPORTED (an unsupported value). */
lt_status lt_gpt_read_config(const char *weights, lt_model_facts *facts, const lt_model_spec *spec);

#endif
