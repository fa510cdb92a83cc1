/** Programs that train language models for next-token prediction. */
#ifndef LATHER_LANGUAGE_H
#define LATHER_LANGUAGE_H

#include "lather/ext/program.h"
#include "lather/tokenizer.h"

/** Runs the whole program of a family of language models, like lt_classifier_main(): trains, and with --eval
 *  prints loss and perplexity. Its models take ids, LT_I32 [N,T], and return logits [N,T,classes]; lt_model_spec:
 *  classes is the size of the vocabulary, size is T, channels 0. A family's infer sets size to the number of
 *  positions in the weights, and its make rejects a spec with more. */
LT_API int lt_language_main(int argc, char **argv, const lt_model_family *family);

/** Returns the table of that program, for a program with further commands: pass a copy with more commands to
 *  lt_trainer_main() of lather/ext/program.h. */
LT_API const lt_trainer_program *lt_language_program(void);

/** Opens the tokenizer that a weight file was trained with. name: as for lt_tokenizer_open(); NULL: from the
 *  metadata of the weights. classes: ids of the model. Errors: LT_E_ARG (no tokenizer in either), LT_E_FORMAT (a
 *  vocabulary that does not belong to the weights: names both), those of lt_tokenizer_open(). */
LT_API LT_MUST_CHECK lt_status lt_language_open_tokenizer(lt_tokenizer **out, const char *weights,
                                                          const char *name, int classes);

#endif
