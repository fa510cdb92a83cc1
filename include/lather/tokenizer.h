/** Tokenizers: convert text to token ids and back. */
#ifndef LATHER_TOKENIZER_H
#define LATHER_TOKENIZER_H

#include "lather/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct lt_tokenizer lt_tokenizer;

/** The identity of a tokenizer, as recorded in files of tokens or weights. */
typedef struct lt_vocabulary {
    const char *tokenizer; /**< name of the tokenizer, for lt_tokenizer_open(); borrowed */
    int size;              /**< number of ids, 0 to size-1 */
    int end;               /**< id of the end-of-text token, "<|endoftext|>" */
    uint64_t hash;         /**< hash of all ids' bytes, in order */
} lt_vocabulary;

/** Opens a tokenizer by its name:
 *
 *  - "byte": an id for each byte, and 256 for the end of a text; accepts any bytes;
 *  - "char:ABC...": an id for each of these characters, in this order, then the end of a text;
 *  - "gpt2:FOLDER": byte-level byte-pair encoding with GPT-2's word pattern, from FOLDER's
 *    vocab.json and merges.txt, or else its tokenizer.json. Ids equal those of OpenAI's and
 *    Hugging Face's tokenizers with the same files. Letters and numbers are those of Unicode 15.1.
 *
 *  Text must be UTF-8 except for "byte". "<|endoftext|>" in a text is encoded as ordinary text.
 *  Errors: LT_E_ARG (an unknown name), LT_E_IO, LT_E_FORMAT (an invalid vocabulary, naming the
 *  entry), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tokenizer_open(lt_tokenizer **out, const char *name);
LT_API void lt_tokenizer_free(lt_tokenizer **tokenizer);
/** Returns the tokenizer's identity, whose strings live as long as the tokenizer. */
LT_API lt_vocabulary lt_tokenizer_vocabulary(const lt_tokenizer *tokenizer);
/** Checks that ids have the same meaning in both vocabularies. a_name and b_name: their owners, for
 *  the message. Errors: LT_E_FORMAT, naming both, their tokenizers and sizes. */
LT_API LT_MUST_CHECK lt_status lt_vocabulary_check(const lt_vocabulary *a, const char *a_name,
                                                   const lt_vocabulary *b, const char *b_name);

/** A growing array of ids, initialised with {0}. */
typedef struct lt_ids {
    int32_t *id;
    size_t count, capacity;
} lt_ids;
LT_API void lt_ids_clear(lt_ids *ids);

/** A text or a part of one. */
typedef struct lt_text_part {
    const char *text; /**< [bytes] the text, without a NUL terminator */
    size_t bytes;
    const char *name; /**< file name for messages; NULL: "text" */
    int64_t offset;   /**< offset of the part in its file, in bytes */
} lt_text_part;

/** Encodes a text and appends its ids. Not thread-safe: the tokenizer caches words.
 *  Errors: LT_E_FORMAT (invalid UTF-8 or a character that is not in the vocabulary, with name and
 *  offset), LT_E_NOMEM. */
LT_API LT_MUST_CHECK lt_status lt_tokenizer_encode(lt_tokenizer *tokenizer,
                                                   const lt_text_part *text, lt_ids *ids);
/** Decodes one id to *bytes bytes, borrowed from the tokenizer; NULL if there is no such id. A text
 *  is the concatenation of its ids' bytes; a character may be split between ids. */
LT_API const char *lt_tokenizer_text(const lt_tokenizer *tokenizer, int32_t id, size_t *bytes);

#endif
