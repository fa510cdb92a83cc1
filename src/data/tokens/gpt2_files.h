/* Reading of the files of a byte-level vocabulary. */
#ifndef LT_DATA_GPT2_FILES_H
#define LT_DATA_GPT2_FILES_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

/* An entry of a vocabulary: the bytes of an id. */
typedef struct lt_gpt2_entry {
    char *text; /* NULL: the id has none yet */
    size_t bytes;
    bool special; /* added: no text becomes it */
} lt_gpt2_entry;

/* Two texts that become one, "left right" as the files have it, in GPT-2's characters. */
typedef struct lt_gpt2_merge {
    const char *left, *right; /* borrowed; right ends with its NUL, left with left_bytes */
    size_t left_bytes;
} lt_gpt2_merge;

/* What the files say. Starts as {0}. */
typedef struct lt_gpt2_files {
    char *path, *merges_path; /* of the files, for messages */
    lt_gpt2_entry *entry;     /* [count], by id */
    size_t count, capacity;
    lt_gpt2_merge *merge; /* [merges], by rank */
    size_t merges, merge_capacity;
    char *text;           /* of merges.txt */
    struct lt_json *json; /* of vocab.json or tokenizer.json */
} lt_gpt2_files;

/* Reads FOLDER/vocab.json with FOLDER/merges.txt, or else FOLDER/tokenizer.json. Ids are 0 ..
 * count-1, each with its text. Clear it in any case.
 * Errors: LT_E_IO; LT_E_FORMAT, naming file and entry; LT_E_UNSUPPORTED (a tokenizer.json that says
 * more than GPT-2's does). */
lt_status lt_gpt2_read(lt_gpt2_files *f, const char *folder);
void lt_gpt2_clear(lt_gpt2_files *f);

/* GPT-2's characters to the bytes they stand for: to has size bytes. *bytes: how many there are.
 * false: a character that stands for none. */
bool lt_gpt2_bytes(const char *text, size_t size, char *to, size_t *bytes);

#endif
