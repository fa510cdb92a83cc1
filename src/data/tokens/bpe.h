/* Byte-pair encoding of one word: merges pairs of ids in the order of their ranks. */
#ifndef LT_DATA_BPE_H
#define LT_DATA_BPE_H

#include "lather/status.h"
#include "lather/tokenizer.h"

#include <stdbool.h>

typedef struct lt_bpe lt_bpe;

/* Creates an encoder without merges. merges: number of merges that will be added. Errors: LT_E_NOMEM. */
lt_status lt_bpe_new(lt_bpe **out, size_t merges);
void lt_bpe_free(lt_bpe **bpe);

/* Sets the id of a byte. Initially, and with -1, the byte is not in the vocabulary. */
void lt_bpe_set_byte(lt_bpe *bpe, unsigned char byte, int32_t id);
/* Adds a merge with the next rank. Returns false if the pair already has a merge. */
bool lt_bpe_add_merge(lt_bpe *bpe, int32_t left, int32_t right, int32_t merged);

/* Appends the ids of a word and sets *unknown to bytes. If a byte is not in the vocabulary, sets *unknown to the index
 * of the first one and appends nothing. Errors: LT_E_NOMEM. */
lt_status lt_bpe_encode(lt_bpe *bpe, const char *word, size_t bytes, lt_ids *ids, size_t *unknown);

#endif
