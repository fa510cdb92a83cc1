/* Token files: any bytes give errors, or windows whose ids are in the vocabulary. The input is used unchanged and with
 * valid checksums, so that the fuzzer reaches the code after these checks. */

#include "base/encoding/crc32c.h"
#include "data/tokens/token_file.h"
#include "folder.h"

#include "lather/ext/dataset.h"
#include "lather/ops/loss.h"
#include "lather/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

enum { LENGTH = 8, MOST = 64 };

static void check_window(const lt_dataset *d, const lt_record *r)
{
    const int32_t *id = (const int32_t *)(const void *)r->bytes;
    LT_ASSERT(r->encoding == LT_ENCODING_TOKENS && r->size == 2 * LENGTH * sizeof *id);
    for (int i = 0; i < 2 * LENGTH; i++)
        LT_ASSERT((id[i] >= 0 && id[i] < d->classes) || (i >= LENGTH && id[i] == LT_IGNORED_LABEL));
}

static void look(const uint8_t *bytes, size_t size)
{
    const lt_tokens_config config = {.length = LENGTH};
    char path[2 * FUZZ_PATH];
    lt_dataset *d = NULL;
    lt_record record = {0};
    fuzz_write("x.tokens", bytes, size);
    if (lt_dataset_tokens(&d, fuzz_path(path, "x.tokens"), &config, true))
        return;
    for (int64_t i = 0; i < d->count && i < MOST; i++) {
        record.epoch_key = (uint64_t)i % 3;
        if (!d->ops->read(d, i, &record))
            check_window(d, &record);
    }
    free(record.bytes);
    lt_dataset_free(&d);
}

/* Makes the checksums of the chunks within the file valid. */
static void fix_table(uint8_t *bytes, size_t size, const lt_token_header *h)
{
    const size_t all = (size_t)h->count * h->width, step = (size_t)LT_TOKEN_CHUNK * h->width;
    for (size_t at = 0, to = h->ids + all; at < all && to + 4 <= size; at += step, to += 4) {
        const size_t part = all - at < step ? all - at : step;
        const uint32_t crc = lt_crc32c(0, bytes + h->ids + at, part);
        memcpy(bytes + to, &crc, sizeof crc);
    }
}

static void fix_checksums(uint8_t *bytes, size_t size)
{
    lt_token_header h;
    memcpy(&h, bytes, sizeof h);
    memcpy(h.magic, LT_TOKEN_MAGIC, sizeof h.magic);
    h.version = LT_TOKEN_VERSION;
    h.order = LT_TOKEN_ORDER;
    if (h.ids <= size && (h.width == 2 || h.width == 4) && h.count <= (size - h.ids) / h.width) {
        fix_table(bytes, size, &h);
        const size_t table = h.ids + h.count * h.width;
        if (h.name_bytes && h.name_bytes <= size - sizeof h) {
            bytes[sizeof h + h.name_bytes - 1] = 0;
            h.crc = lt_crc32c(lt_crc32c(0, bytes + sizeof h, h.name_bytes), bytes + table,
                              size - table);
        }
    }
    h.self_crc = lt_crc32c(0, &h, offsetof(lt_token_header, self_crc));
    memcpy(bytes, &h, sizeof h);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    look(bytes, size);
    if (size < sizeof(lt_token_header))
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        abort();
    memcpy(copy, bytes, size);
    fix_checksums(copy, size);
    look(copy, size);
    free(copy);
    return 0;
}
