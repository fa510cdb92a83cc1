/* Reads config.yaml as the trainer writes it: "name: value" in each line, a list's items in the lines after its name. */

#include "inspect_records.h"

#include "lather/ext/fail.h"
#include "lather/ext/file.h"

#include <stdlib.h>
#include <string.h>

static lt_status add(run_settings *s, const char *name, size_t bytes, const char *value)
{
    if (s->count == s->capacity) {
        size_t capacity = 2 * s->capacity + 64;
        char **names = realloc(s->name, capacity * sizeof *names);
        if (names)
            s->name = names;
        char **values = realloc(s->value, capacity * sizeof *values);
        if (values)
            s->value = values;
        if (!names || !values)
            return lt_fail(LT_E_NOMEM, "inspect: no memory for %zu settings", capacity);
        s->capacity = capacity;
    }
    char *own_name = strndup(name, bytes), *own_value = strdup(value);
    if (!own_name || !own_value) {
        free(own_name);
        free(own_value);
        return lt_fail(LT_E_NOMEM, "inspect: no memory for a setting");
    }
    s->name[s->count] = own_name;
    s->value[s->count++] = own_value;
    return LT_OK;
}

/* A line of a list joins the value above it. */
static lt_status extend(run_settings *s, const char *item)
{
    item += strspn(item, " -");
    if (!s->count || !*item)
        return LT_OK;
    char **value = &s->value[s->count - 1];
    size_t old = strlen(*value), bytes = old + strlen(item) + 3;
    char *grown = realloc(*value, bytes);
    if (!grown)
        return lt_fail(LT_E_NOMEM, "inspect: no memory for a setting");
    *value = grown;
    stpcpy(stpcpy(grown + old, old ? ", " : ""), item);
    return LT_OK;
}

static lt_status read_line(run_settings *s, char *line)
{
    line[strcspn(line, "\n")] = 0;
    size_t bytes = strcspn(line, ":");
    if (*line == ' ' || *line == '-')
        return extend(s, line);
    if (*line == '#' || !line[bytes])
        return LT_OK;
    const char *value = line + bytes + 1;
    return add(s, line, bytes, value + strspn(value, " "));
}

lt_status run_settings_read(run_settings *s, const char *path)
{
    char *line = NULL;
    size_t capacity = 0;
    lt_status st = LT_OK;
    FILE *file;
    if (lt_file_open(&file, path))
        return LT_OK;
    while (!st && getline(&line, &capacity, file) >= 0)
        st = read_line(s, line);
    free(line);
    fclose(file);
    return st;
}

const char *run_settings_find(const run_settings *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (!strcmp(s->name[i], name))
            return s->value[i];
    return NULL;
}

void run_settings_clear(run_settings *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free(s->name[i]);
        free(s->value[i]);
    }
    free(s->name);
    free(s->value);
    *s = (run_settings){0};
}
