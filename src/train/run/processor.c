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

static const struct {
    const char *key;
    const char *(*find)(char *text, size_t size); /* "" if unknown; NULL: select() finds it */
    const char *(*select)(bool reproducible);
} members[] = {
    {"cpu", lt_machine_cpu, NULL},
    {"cpu_model", lt_machine_cpu_model, NULL},
    {"cpu_isa", NULL, lt_device_isa},
    {"cpu_kernels", NULL, lt_device_conv_kernels},
};

enum { MEMBERS = sizeof members / sizeof *members };

static const char *find_member(int i, bool reproducible, char text[TEXT])
{
    return members[i].find ? members[i].find(text, TEXT) : members[i].select(reproducible);
}

void lt_processor_write_json(lt_json_writer *w, bool reproducible)
{
    char text[TEXT];
    for (int i = 0; i < MEMBERS; i++)
        lt_json_put_string(w, members[i].key, find_member(i, reproducible, text));
}

bool lt_processor_has(const char *key)
{
    for (int i = 0; i < MEMBERS; i++)
        if (!strcmp(members[i].key, key))
            return true;
    return false;
}

const char *lt_processor_compare(const lt_json_value *root, bool reproducible, char *text,
                                 size_t size)
{
    char now[TEXT];
    size_t used = 0;
    const lt_json_value *before = lt_json_member(root, "reproducible");
    text[0] = 0;
    if (reproducible && before && before->boolean)
        return text;
    for (int i = 0; i < MEMBERS && used < size; i++) {
        const lt_json_value *was = lt_json_member(root, members[i].key);
        const char *is = find_member(i, reproducible, now);
        if (!was || was->type != LT_JSON_STRING || !*was->string || !*is
            || !strcmp(was->string, is))
            continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s %s -> %s", used ? ", " : "",
                                 members[i].key, was->string, is);
    }
    return text;
}

lt_status lt_processor_compare_checkpoint(const char *folder, bool reproducible, char *text,
                                          size_t size)
{
    lt_json *json = NULL;
    char *path = lt_format("%s/%s", folder, LT_CHECKPOINT_STATE);
    lt_status st = path ? lt_json_load(&json, path) : LT_E_NOMEM;
    if (!st)
        lt_processor_compare(lt_json_root(json), reproducible, text, size);
    lt_json_free(&json);
    lt_free(path);
    return st;
}
