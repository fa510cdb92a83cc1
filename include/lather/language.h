/** Programs that train language models: to predict the next token. */
#ifndef LATHER_LANGUAGE_H
#define LATHER_LANGUAGE_H

#include "lather/ext/program.h"
#include "lather/tokenizer.h"

/** The whole program of a family of language models, as lt_classifier_main(): trains, and with --eval
 *  tells loss and perplexity. Its models take ids, LT_I32 [N,T], and give logits [N,T,classes];
 *  lt_model_spec: classes is the size of the vocabulary, size is T, channels 0. A family's infer says
 *  as size how many positions the weights have, and its make refuses a spec with more. */
LT_API int lt_language_main(int argc, char **argv, const lt_model_family *family);

/** The table of that program, for one with further commands: a copy with more of them goes to
 *  lt_trainer_main() of lather/ext/program.h. */
LT_API const lt_trainer_program *lt_language_program(void);

/** The tokenizer that a file of weights was trained with. name: where it is now, as
 *  lt_tokenizer_open() takes it; NULL: as the metadata of the weights say. classes: ids that the
 *  model knows. Errors: LT_E_ARG (neither says a tokenizer), LT_E_FORMAT (a vocabulary that does not
 *  belong to the weights: both are named), those of lt_tokenizer_open(). */
LT_API LT_MUST_CHECK lt_status lt_language_open_tokenizer(lt_tokenizer **out, const char *weights,
                                                          const char *name, int classes);

#endif
