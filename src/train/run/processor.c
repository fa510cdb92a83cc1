/* The processor of a run. Its name alone is not enough: virtual machines give several generations the same one,
 * and the environment selects kernels (docs/guides/cpu.md). */

#include "processor.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "folder.h"
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 128 };

static const char *device_isa(char *text, size_t size)
{
    snprintf(text, size, "%s", lt_device_isa());
    return text;
}

static const char *selected_kernels(char *text, size_t size)
{
    snprintf(text, size, "%s", lt_device_conv_kernels());
    return text;
}

static const struct {
    const char *key;
    const char *(*find)(char *text, size_t size); /* "" if unknown */
} members[] = {
    {"cpu", lt_machine_cpu},
    {"cpu_model", lt_machine_cpu_model},
    {"cpu_isa", device_isa},
    {"cpu_kernels", selected_kernels},
};

enum { MEMBERS = sizeof members / sizeof *members };

void lt_processor_write_json(lt_json_writer *w)
{
    char text[TEXT];
    for (int i = 0; i < MEMBERS; i++)
        lt_json_put_string(w, members[i].key, members[i].find(text, sizeof text));
}

bool lt_processor_has(const char *key)
{
    for (int i = 0; i < MEMBERS; i++)
        if (!strcmp(members[i].key, key))
            return true;
    return false;
}

const char *lt_processor_compare(const lt_json_value *root, char *text, size_t size)
{
    char is[TEXT];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < MEMBERS && used < size; i++) {
        const lt_json_value *was = lt_json_member(root, members[i].key);
        if (!was || was->type != LT_JSON_STRING || !*was->string || !*members[i].find(is, sizeof is)
            || !strcmp(was->string, is))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s %s -> %s", used ? ", " : "",
                                 members[i].key, was->string, is);
    }
    return text;
}

lt_status lt_processor_compare_checkpoint(const char *folder, char *text, size_t size)
{
    lt_json *json = NULL;
    char *path = lt_format("%s/%s", folder, LT_CHECKPOINT_STATE);
    lt_status st = path ? lt_json_load(&json, path) : LT_E_NOMEM;
    if (!st)
        lt_processor_compare(lt_json_root(json), text, size);
    lt_json_free(&json);
    lt_free(path);
    return st;
}
