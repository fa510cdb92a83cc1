/* Language models as a kind of task: their options and the parts that they open. */
#ifndef LT_TRAIN_LANGUAGE_LANGUAGE_H
#define LT_TRAIN_LANGUAGE_LANGUAGE_H

#include "train/language/task.h"
#include "train/program/trainer.h"

#include "lather/language.h"
#include "lather/tokens.h"

enum { MOST_LENGTH = 10000000 }; /* largest sequence length, in tokens */

typedef struct language_options {
    const char *tokenizer;
    int64_t seq_len, vocab_size;
    double val_fraction, target_perplexity;
    int documents;
} language_options;

/* Vocabulary in the metadata of a weight file. */
typedef struct language_metadata {
    char *tokenizer; /* name of the tokenizer; owned; NULL if unknown */
    int size, length;
    uint64_t hash;
} language_metadata;

/* Context of the program that trains language models. */
typedef struct language {
    language_options args;
    language_metadata known;  /* metadata of the weights to start from or to evaluate */
    lt_vocabulary vocabulary; /* vocabulary of the data; borrowed */
    int64_t length;           /* tokens of a sequence, T */
    language_model task;
    char classes_text[16], size_text[16], length_text[24],
        hash_text[24]; /* values as texts for the metadata to save */
} language;

/* --- vocabulary.c: the vocabulary in weight files --- */
/* Reads the metadata of a file. Errors: LT_E_FORMAT (not a number), LT_E_NOMEM, those of lt_safetensors_open(). */
lt_status lt_language_read_metadata(language_metadata *out, const char *path);
void lt_language_clear_metadata(language_metadata *m);
/* Checks that weights with metadata m fit a vocabulary; unknown metadata fit any. path and name of both, for
 * messages. Errors: LT_E_FORMAT. */
lt_status lt_language_check_vocabulary(const language_metadata *m, const char *path,
                                       const lt_vocabulary *vocabulary, const char *name);
size_t lt_language_metadata(language *l, const lt_trainer *t, lt_metadata out[LT_TRAINER_METADATA]);

#endif
