/* Divides text files into documents, splits these into training and validation data, and reads them. */
#ifndef LT_DATA_CORPUS_H
#define LT_DATA_CORPUS_H

#include "data/files/paths.h"

#include "lather/ext/fail.h"
#include "lather/tokens.h"

#include <stdbool.h>

typedef struct lt_document {
    size_t file;
    int64_t offset, bytes;
    bool val; /* the document is part of the validation data */
} lt_document;

/* Text files and the documents in them. Starts as {0}. */
typedef struct lt_corpus {
    char *memory; /* the whole text, if it is not in files; otherwise NULL */
    lt_paths files;
    lt_document *document;
    size_t documents, capacity;
} lt_corpus;

/* Opens a text file, a folder with .txt files, or "kjv". Ignores documents without text. Clear c in any case. Errors:
 * LT_E_IO; LT_E_FORMAT (no text). */
lt_status lt_corpus_open(lt_corpus *c, const char *path, lt_documents kind);
/* Opens a corpus, marks the documents of the validation data and opens the tokenizer. config->val_fraction: 0 means
 * 0.1, < 0 no validation data. Chooses documents (at least one) by Philox numbers of their indices; splits a single
 * document at the beginning of a line. Errors: as lt_corpus_open() and lt_tokenizer_open(); LT_E_ARG (fraction above
 * 1), LT_E_FORMAT (too little text). */
lt_status lt_corpus_open_and_split(lt_corpus *c, lt_tokenizer **tokenizer, const char *path,
                                   const lt_tokens_config *config);
void lt_corpus_clear(lt_corpus *c);

typedef lt_status lt_corpus_visit(void *context, const lt_text_part *text);
/* Reads a document: calls visit for each part. Parts begin at white space, where no token crosses the boundary, so
 * their ids are those of the whole document. */
lt_status lt_corpus_read_document(const lt_corpus *c, const lt_document *d, lt_corpus_visit *visit,
                                  void *context);

#endif
