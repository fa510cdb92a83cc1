/* JSON: any bytes give an error or a document. */

#include "base/encoding/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lt_json *json = NULL;
    lt_status st = lt_json_parse(&json, (const char *)data, size, "fuzz", 16);
    if (!st)
        lt_json_free(&json);
    return 0;
}
