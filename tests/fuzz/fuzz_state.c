/* A checkpoint's state.json with valid checksums: any bytes give an error, or counters with which a run can continue.
 * The input is the text before the checksums of the other files. */

#include "checkpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Returns ,"files":{...} of the original state.json. */
static char *read_files(const char *path)
{
    char file[3 * FUZZ_PATH], *text = NULL;
    size_t size = 0;
    snprintf(file, sizeof file, "%s/state.json", path);
    LT_ASSERT(!lt_json_read_file(file, &text, &size));
    char *files = strstr(text, ",\"files\":");
    LT_ASSERT(files && size > FUZZ_TAIL);
    text[size - FUZZ_TAIL] = 0;
    files = strdup(files);
    lt_free(text);
    return files;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static char *files;
    char path[2 * FUZZ_PATH];
    fuzz_checkpoint(path);
    if (!files)
        files = read_files(path);
    const size_t more = strlen(files);
    char *text = malloc(size + more + FUZZ_TAIL + 1);
    LT_ASSERT(text);
    for (size_t i = 0; i < size; i++)
        text[i] = (char)bytes[i];
    strcpy(text + size, files);
    snprintf(text + size + more, FUZZ_TAIL + 1, ",\"crc32c\":\"%08x\"}\n",
             lt_crc32c(0, text, size + more));
    fuzz_write("checkpoints/step-5/state.json", text, size + more + FUZZ_TAIL);
    free(text);
    (void)!fuzz_load(path);
    return 0;
}
