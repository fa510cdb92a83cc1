/** Token files and text data sets, for training language models. */
#ifndef LATHER_TOKENS_H
#define LATHER_TOKENS_H

#include "lather/data.h"
#include "lather/tokenizer.h"

/** How text is divided into documents, each preceded by an end-of-text id. */
typedef enum lt_documents {
    LT_DOCUMENTS_FILES,       /**< one document per file */
    LT_DOCUMENTS_BLANK_LINES, /**< documents separated by blank lines */
    LT_DOCUMENTS_END_OF_TEXT  /**< documents separated by "<|endoftext|>" in the text */
} lt_documents;

/** How text becomes samples. Only length is required. */
typedef struct lt_tokens_config {
    int length; /**< tokens per sample, T */
    /* The remaining fields are for text only; a token file records its own. */
    /** Tokenizer's name for lt_tokenizer_open(), or "char" for the characters of the text in order of
     *  their code points, as in nanoGPT. NULL: "byte". */
    const char *tokenizer;
    lt_documents documents;
    double val_fraction; /**< fraction of documents for validation; 0: 0.1 */
} lt_tokens_config;

/** Opens text as samples of T consecutive tokens. Batches are LT_I32 tensors [N,T]: labels[n,t] is
 *  the id after inputs[n,t]. lt_dataset_shape() is [T], lt_dataset_classes() the vocabulary's size.
 *  path:
 *
 *  - "kjv": the King James Bible (4.4 MB of ASCII) as Debian's bible-kjv-text ships it, or from
 *    $LATHER_KJV, which names the package's file bible.data;
 *  - a token file (lt_tokens_pack()), for both training and evaluation;
 *  - a folder with the token files train.tokens and val.tokens;
 *  - a text file, or a folder with .txt files at any depth in bytewise order of their paths,
 *    tokenised in memory. val_fraction of the documents, selected by their numbers, are for
 *    evaluation; if there is only one document, its end.
 *
 *  Documents are concatenated, each after an end-of-text id, and divided into windows of T ids that
 *  may span documents. In an epoch every id but the first is a target exactly once; the last window
 *  is padded with LT_IGNORED_LABEL. If the loader shuffles, an epoch's windows are shifted by 0 to
 *  T-1 ids, depending on (seed, epoch), and the last one wraps around to the beginning.
 *  Errors: LT_E_ARG, LT_E_IO, LT_E_FORMAT (invalid UTF-8, with file and offset; fewer than 2 tokens;
 *  an invalid token file). A corrupt block or an id out of range is an error of lt_loader_next() with
 *  file and position: windows are never replaced. */
LT_API LT_MUST_CHECK lt_status lt_dataset_tokens(lt_dataset **out, const char *path,
                                                 const lt_tokens_config *config, bool train);
/** Returns the tokenizer's identity, strings borrowed. Errors: LT_E_ARG (no tokens). */
LT_API LT_MUST_CHECK lt_status lt_dataset_vocabulary(const lt_dataset *dataset, lt_vocabulary *out);
/** Returns the data set's number of tokens, 0 for other data. */
LT_API int64_t lt_dataset_token_count(const lt_dataset *dataset);

/** Progress of lt_tokens_pack(), for its callback. */
typedef struct lt_tokens_report {
    int64_t bytes, all_bytes;        /**< bytes of text read so far; bytes in all */
    int64_t documents[2], tokens[2]; /**< counts, of [0] validation and [1] training data */
} lt_tokens_report;
/** Callback after every document; returns false to stop. */
typedef bool lt_tokens_progress_fn(void *context, const lt_tokens_report *so_far);

/** Tokenises text into the new folder's train.tokens and val.tokens, for fast starts and for text
 *  larger than memory. The folder appears when it is complete. path and config as in
 *  lt_dataset_tokens(), but length is ignored and val_fraction < 0 means no validation. A token file
 *  has the tokenizer's name, vocabulary size and hash, ids of 2 or 4 bytes, and a checksum per 4096
 *  ids. progress and report may be NULL.
 *  Errors: those of lt_dataset_tokens(); LT_E_IO (folder exists); LT_END (stopped by progress). */
LT_API LT_MUST_CHECK lt_status lt_tokens_pack(const char *folder, const char *path,
                                              const lt_tokens_config *config,
                                              lt_tokens_progress_fn *progress, void *context,
                                              lt_tokens_report *report);
/** Verifies a whole token file and returns its number of tokens.
 *  Errors: LT_E_IO; LT_E_FORMAT, with the first corrupt position. */
LT_API LT_MUST_CHECK lt_status lt_tokens_verify(const char *path, int64_t *tokens);

#endif
