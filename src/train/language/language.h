/* Language models as a kind of task: their options and what they open, besides lt_trainer's. */
#ifndef LT_TRAIN_LANGUAGE_LANGUAGE_H
#define LT_TRAIN_LANGUAGE_LANGUAGE_H

#include "train/language/task.h"
#include "train/program/trainer.h"

#include "lather/language.h"
#include "lather/tokens.h"

enum { MOST_LENGTH = 10000000 }; /* tokens of a sequence */

typedef struct language_options {
    const char *tokenizer;
    int64_t seq_len, vocab_size;
    double val_fraction, target_perplexity;
    int documents;
} language_options;

/* What the metadata of a file of weights say of its vocabulary. */
typedef struct language_metadata {
    char *tokenizer; /* its name; owned; NULL: they say nothing */
    int size, length;
    uint64_t hash;
} language_metadata;

/* The context of the program. */
typedef struct language {
    language_options args;
    language_metadata known;  /* of the weights to start from or to evaluate */
    lt_vocabulary vocabulary; /* of the data; borrowed from them */
    int64_t length;           /* T */
    language_model task;
    char classes_text[16], size_text[16], length_text[24],
        hash_text[24]; /* of the metadata to save */
} language;

/* vocabulary.c */
/* Errors: LT_E_FORMAT (a number that is none), LT_E_NOMEM, those of lt_safetensors_open(). */
lt_status lt_language_read_metadata(language_metadata *out, const char *path);
void lt_language_clear_metadata(language_metadata *m);
/* Whether weights with metadata m go with a vocabulary; path and name: whose, for messages. What says nothing
 * goes with all. Errors: LT_E_FORMAT. */
lt_status lt_language_check_vocabulary(const language_metadata *m, const char *path,
                                       const lt_vocabulary *vocabulary, const char *name);
size_t lt_language_metadata(language *l, const lt_trainer *t, lt_metadata out[LT_TRAINER_METADATA]);

#endif
