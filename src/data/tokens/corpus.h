/* Text files as documents: what they are, which of them are to evaluate, and reading them. */
#ifndef LT_DATA_CORPUS_H
#define LT_DATA_CORPUS_H

#include "data/files/paths.h"

#include "lather/ext/fail.h"
#include "lather/tokens.h"

#include <stdbool.h>

typedef struct lt_document {
    size_t file;
    int64_t offset, bytes;
    bool val;
} lt_document;

/* Starts as {0}. */
typedef struct lt_corpus {
    char *memory; /* NULL: text is in files; else it is the only one */
    lt_paths files;
    lt_document *document;
    size_t documents, capacity;
} lt_corpus;

/* A text file, a folder with .txt files, or "kjv". Documents without text are left out.
 * Errors: LT_E_IO; LT_E_FORMAT (no text at all). Clear it in any case. */
lt_status lt_corpus_open(lt_corpus *c, const char *path, lt_documents kind);
/* Marks the documents to evaluate: fraction of them, at least one, by Philox of their numbers. One
 * document is divided at the beginning of a line. Errors: LT_E_ARG (fraction not in (0,1)),
 * LT_E_FORMAT (too little text). */
lt_status lt_corpus_divide(lt_corpus *c, double fraction);
void lt_corpus_clear(lt_corpus *c);

typedef lt_status lt_corpus_visit(void *context, const lt_text_part *text);
/* Visits a document's parts, in order. They are cut before white space, where no tokenizer joins
 * what is on both sides, so that ids of the parts are ids of the whole. */
lt_status lt_corpus_read(const lt_corpus *c, const lt_document *d, lt_corpus_visit *visit,
                         void *context);
/* The tokenizer of that name; "char": of all characters of the corpus; NULL: "byte". */
lt_status lt_corpus_tokenizer(const lt_corpus *c, const char *name, lt_tokenizer **out);

#endif
