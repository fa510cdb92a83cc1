/* Reads the files of a byte-level vocabulary. */
#ifndef LT_DATA_GPT2_FILES_H
#define LT_DATA_GPT2_FILES_H

#include "lather/ext/fail.h"

#include <stdbool.h>
#include <stddef.h>

/* An entry of the vocabulary: the bytes of a token id. */
typedef struct lt_gpt2_entry {
    char *text; /* bytes of the id; owned; NULL until it is read */
    size_t bytes;
    bool special; /* added token such as <|endoftext|>: not used in encoding */
} lt_gpt2_entry;

/* A merge of two texts, "LEFT RIGHT" in the files, in GPT-2's characters. */
typedef struct lt_gpt2_merge {
    const char *left, *right; /* borrowed; right is NUL-terminated, left has left_bytes bytes */
    size_t left_bytes;
} lt_gpt2_merge;

/* Contents of the files. Starts as {0}. */
typedef struct lt_gpt2_files {
    char *path, *merges_path; /* paths of the files, for messages */
    lt_gpt2_entry *entry;     /* [count] bytes of each id */
    size_t count, capacity;
    lt_gpt2_merge *merge; /* [merges] sorted by rank */
    size_t merges, merge_capacity;
    char *text;           /* contents of merges.txt */
    struct lt_json *json; /* parsed vocab.json or tokenizer.json */
} lt_gpt2_files;

/* Reads FOLDER/vocab.json and FOLDER/merges.txt or, without vocab.json, FOLDER/tokenizer.json. Every id in 0 .. count-1
 * has a text. Clear f in any case. Errors: LT_E_IO; LT_E_FORMAT with file and entry; LT_E_UNSUPPORTED (a tokenizer.json
 * with rules that GPT-2 does not have). */
lt_status lt_gpt2_files_read(lt_gpt2_files *f, const char *folder);
void lt_gpt2_files_clear(lt_gpt2_files *f);

/* Converts GPT-2's characters to the bytes that they represent. to: size bytes; *bytes: number of bytes written.
 * Returns false for a character that represents no byte. */
bool lt_gpt2_decode_bytes(const char *text, size_t size, char *to, size_t *bytes);

#endif
