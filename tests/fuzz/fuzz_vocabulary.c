/* Vocabularies: any bytes as tokenizer.json, or as vocab.json and, after a zero byte, merges.txt give an error, or a
 * tokenizer whose ids decode to the text. */

#include "folder.h"

#include "lather/ext/fail.h"
#include "lather/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check_text(lt_tokenizer *t)
{
    static const char text[] = "It's 12 aaaabbbb\n\n  \xc3\xa9t\xc3\xa9\xe2\x80\x83 <|endoftext|>";
    const lt_text_part part = {.text = text, .bytes = sizeof text - 1};
    lt_ids ids = {0};
    size_t at = 0, count;
    if (!lt_tokenizer_encode(t, &part, &ids)) {
        for (size_t i = 0; i < ids.count; i++) {
            const char *token = lt_tokenizer_text(t, ids.id[i], &count);
            LT_ASSERT(token && count <= part.bytes - at && !memcmp(token, text + at, count));
            at += count;
        }
        LT_ASSERT(at == part.bytes);
    }
    lt_ids_clear(&ids);
}

static void look(void)
{
    char name[2 * FUZZ_PATH + 8], path[2 * FUZZ_PATH];
    lt_tokenizer *t = NULL;
    snprintf(name, sizeof name, "gpt2:%s", fuzz_path(path, "."));
    if (!lt_tokenizer_open(&t, name))
        check_text(t);
    lt_tokenizer_free(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[2 * FUZZ_PATH];
    const uint8_t *end = memchr(bytes, 0, size);
    const size_t first = end ? (size_t)(end - bytes) : size;
    unlink(fuzz_path(path, "vocab.json"));
    fuzz_write("tokenizer.json", bytes, size);
    look();
    fuzz_write("vocab.json", bytes, first);
    fuzz_write("merges.txt", end ? end + 1 : bytes, end ? size - first - 1 : 0);
    look();
    return 0;
}
