/* Reads and writes job graphs as INI text. */

#include "base/alloc.h"
#include "base/shared_file.h"
#include "base/text.h"
#include "launch/ini.h"
#include "launch/launch.h"

#include "lather/ext/file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[] = {"function", "service", "gang"};
static const char *const policies[] = {"fail-fast", "restart", "shrink"};

/* State of reading a job graph: the program so far, and the group of the current section. */
typedef struct loading {
    lt_job_graph *program;
    const char *folder; /* folder of the file */
    char *label, *uses, *text[4];
    lt_launch_node_config config; /* its strings are set from label and text */
    bool has_group;
} loading;

enum { MODULE, COMMAND, ARGUMENTS, PLAN };

/* Initial config of a group being read; heartbeat -1: inherits the program's. */
static const lt_launch_node_config no_group = {.heartbeat = -1};

static lt_status set_text(char **to, const char *value)
{
    lt_free(*to);
    *to = lt_strdup(value);
    return *to ? LT_OK : LT_E_NOMEM;
}

/* Adds the section that was read. Its uses may name later sections, so lt_program_graph_check() resolves them. */
static lt_status add_read_group(loading *l)
{
    if (!l->has_group)
        return LT_OK;
    l->config.label = l->label;
    l->config.module = l->text[MODULE];
    l->config.command = l->text[COMMAND];
    l->config.arguments = l->text[ARGUMENTS];
    l->config.plan = l->text[PLAN];
    if (l->config.heartbeat < 0)
        l->config.heartbeat = l->program->heartbeat;
    LT_TRY(lt_job_graph_add(l->program, &l->config, NULL));
    l->program->last->uses = l->uses;
    l->uses = NULL;
    l->config = no_group;
    for (int i = 0; i <= PLAN; i++) {
        lt_free(l->text[i]);
        l->text[i] = NULL;
    }
    return LT_OK;
}

static lt_status begin_group(loading *l, const char *name)
{
    LT_TRY(add_read_group(l));
    l->has_group = strcmp(name, "program") != 0;
    if (lt_program_graph_find(l->program, name, strlen(name)))
        return lt_fail(LT_E_ARG, "launch: duplicate group %s", name);
    return set_text(&l->label, name);
}

static lt_status parse_number(const char *key, const char *value, double least, double most,
                              double *out)
{
    char *end = NULL;
    *out = strtod(value, &end);
    if (end == value || *end || !(*out >= least && *out <= most))
        return lt_fail(LT_E_ARG, "launch: %s = %s: want a number, %g to %g", key, value, least,
                       most);
    return LT_OK;
}

static lt_status parse_whole_number(const char *key, const char *value, double most, int64_t *out)
{
    double n = 0;
    LT_TRY(parse_number(key, value, 1, most, &n));
    *out = (int64_t)n;
    return (double)*out < n ? lt_fail(LT_E_ARG, "launch: %s = %s: want a whole number", key, value)
                            : LT_OK;
}

/* --- Keys of a group --- */

/* A key, its parser, and the offset of its value in `loading`. */
typedef struct field {
    const char *key;
    lt_status (*read)(loading *l, const struct field *f, const char *value);
    size_t at;
} field;

static void *field_address(loading *l, const field *f)
{
    return (char *)l + f->at;
}

static lt_status read_text_key(loading *l, const field *f, const char *value)
{
    return set_text(field_address(l, f), value);
}

static const double most_seconds = 1e6;

static lt_status read_seconds_key(loading *l, const field *f, const char *value)
{
    return parse_number(f->key, value, 0, most_seconds, field_address(l, f));
}

static lt_status read_samples_key(loading *l, const field *f, const char *value)
{
    const double many = 1e15;
    return parse_whole_number(f->key, value, many, field_address(l, f));
}

static lt_status read_nodes_key(loading *l, const field *f, const char *value)
{
    int64_t n = 0;
    int *out = field_address(l, f);
    LT_TRY(parse_whole_number(f->key, value, LT_LAUNCH_MOST_NODES, &n));
    *out = (int)n;
    return LT_OK;
}

static lt_status read_supervise_key(loading *l, const field *f, const char *value)
{
    int64_t restarts = 0;
    for (int i = 0; i < 3; i++) {
        const size_t bytes = strlen(policies[i]);
        if (strncmp(value, policies[i], bytes) != 0 || (value[bytes] && value[bytes] != ' '))
            continue;
        l->config.policy = (lt_launch_node_policy)i;
        if (!value[bytes])
            return LT_OK;
        LT_TRY(parse_whole_number(f->key, value + bytes + 1, 1e6, &restarts));
        l->config.restarts = (int)restarts;
        return LT_OK;
    }
    return lt_fail(LT_E_ARG, "launch: supervise = %s: want fail-fast, restart COUNT or shrink",
                   value);
}

static lt_status read_kind_key(loading *l, const field *f, const char *value)
{
    (void)f;
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, kinds[i])) {
            l->config.kind = (lt_launch_node_kind)i;
            return LT_OK;
        }
    return lt_fail(LT_E_ARG, "launch: kind = %s: want function, service or gang", value);
}

/* Parses a module's path, relative to the file's folder. */
static lt_status read_entry_key(loading *l, const field *f, const char *value)
{
    char **out = field_address(l, f);
    char *path = *value == '/' ? lt_strdup(value) : lt_format("%s/%s", l->folder, value);
    if (!path)
        return LT_E_NOMEM;
    lt_free(*out);
    *out = path;
    return LT_OK;
}

/* Parses `auto`, followed by flags of plan. */
static lt_status read_plan_key(loading *l, const field *f, const char *value)
{
    static const char word[] = "auto";
    const size_t bytes = sizeof word - 1;
    if (strncmp(value, word, bytes) != 0 || (value[bytes] && value[bytes] != ' '))
        return lt_fail(LT_E_ARG, "launch: plan = %s: want auto, followed by flags of plan", value);
    return read_text_key(l, f, value + bytes);
}

#define CONFIG(member) offsetof(loading, config.member)
static const field fields[] = {
    {"kind", read_kind_key, 0},
    {"count", read_nodes_key, CONFIG(count)},
    {"ranks", read_nodes_key, CONFIG(count)},
    {"entry", read_entry_key, offsetof(loading, text[MODULE])},
    {"command", read_text_key, offsetof(loading, text[COMMAND])},
    {"arguments", read_text_key, offsetof(loading, text[ARGUMENTS])},
    {"uses", read_text_key, offsetof(loading, uses)},
    {"supervise", read_supervise_key, 0},
    {"backoff", read_seconds_key, CONFIG(backoff)},
    {"batch-size", read_samples_key, CONFIG(batch_size)},
    {"global-batch", read_samples_key, CONFIG(global_batch)},
    {"heartbeat", read_seconds_key, CONFIG(heartbeat)},
    {"progress", read_seconds_key, CONFIG(progress)},
    {"plan", read_plan_key, offsetof(loading, text[PLAN])},
    {"runs", read_nodes_key, CONFIG(runs)},
};
#undef CONFIG
enum { FIELDS = sizeof fields / sizeof *fields };

static lt_status set_group_key(loading *l, const char *key, const char *value)
{
    const char *known[FIELDS];
    for (size_t i = 0; i < FIELDS; i++) {
        if (!strcmp(key, fields[i].key))
            return fields[i].read(l, &fields[i], value);
        known[i] = fields[i].key;
    }
    return lt_fail(LT_E_ARG, "launch: %s: unknown key %s; did you mean %s?", l->label, key,
                   lt_nearest_word(key, known, FIELDS));
}

static lt_status visit_key(void *context, const char *name, const char *key, const char *value)
{
    loading *l = context;
    if (!key)
        return begin_group(l, name);
    if (l->has_group)
        return set_group_key(l, key, value);
    if (!strcmp(key, "heartbeat") && l->program->first)
        return lt_fail(LT_E_ARG, "launch: the heartbeat of [program] applies to groups after it");
    if (!strcmp(key, "heartbeat"))
        return parse_number(key, value, 0, most_seconds, &l->program->heartbeat);
    return strcmp(key, "name")
               ? lt_fail(LT_E_ARG, "launch: [program] has name and heartbeat, not %s", key)
               : set_text(&l->program->name, value);
}

lt_status lt_program_graph_read(lt_job_graph **out, FILE *file, const char *path)
{
    loading l = {.config = no_group};
    char *slash, *folder = realpath(path, NULL);
    if (!folder)
        return lt_fail(LT_E_IO, "%s: no such file", path);
    slash = strrchr(folder, '/');
    *slash = 0;
    l.folder = folder;
    lt_status st = lt_job_graph_new(&l.program, "program");
    if (!st)
        st = lt_ini_read(file, path, visit_key, &l);
    if (!st)
        st = add_read_group(&l);
    if (!st)
        st = lt_program_graph_check(l.program);
    if (st)
        lt_job_graph_free(&l.program);
    else
        *out = l.program;
    free(folder);
    lt_free(l.label);
    lt_free(l.uses);
    for (int i = 0; i <= PLAN; i++)
        lt_free(l.text[i]);
    return st;
}

lt_status lt_job_graph_load(lt_job_graph **out, const char *path)
{
    FILE *file = NULL;
    LT_TRY(lt_file_open(&file, path));
    const lt_status st = lt_program_graph_read(out, file, path);
    fclose(file);
    return st;
}

static void write_group(const lt_launch_handle *h, FILE *file)
{
    const lt_launch_node_config *c = &h->config;
    fprintf(file, "\n[%s]\nkind = %s\ncount = %d\nsupervise = %s", c->label, kinds[c->kind],
            c->count, policies[c->policy]);
    fprintf(file, c->policy == LT_LAUNCH_NODE_FAIL_FAST ? "\n" : " %d\n", c->restarts);
    fprintf(file, "backoff = %g\n", c->backoff);
    fprintf(file, c->module ? "entry = %s\n" : "command = %s\n",
            c->module ? c->module : c->command);
    if (c->heartbeat > 0)
        fprintf(file, "heartbeat = %g\n", c->heartbeat);
    if (c->progress > 0)
        fprintf(file, "progress = %g\n", c->progress);
    if (c->arguments)
        fprintf(file, "arguments = %s\n", c->arguments);
    if (h->uses)
        fprintf(file, "uses = %s\n", h->uses);
    if (c->plan)
        fprintf(file, "plan = auto%s\n", c->plan);
    if (c->runs > 1)
        fprintf(file, "runs = %d\n", c->runs);
    if (c->global_batch)
        fprintf(file, "batch-size = %" PRId64 "\nglobal-batch = %" PRId64 "\n", c->batch_size,
                c->global_batch);
}

lt_status lt_program_graph_save(const lt_job_graph *program, const char *path)
{
    enum { OURS_ALONE = 0600 };
    int fd;
    LT_TRY(lt_shared_open(&fd, path, O_WRONLY | O_CREAT | O_EXCL, OURS_ALONE));
    FILE *file = fdopen(fd, "w");
    if (!file) {
        close(fd);
        return lt_fail(LT_E_NOMEM, "%s: no memory for a stream", path);
    }
    fprintf(file, "[program]\nname = %s\n", program->name);
    for (const lt_launch_handle *h = program->first; h; h = h->next)
        if (!h->config.entry)
            write_group(h, file);
    const bool failed = ferror(file) != 0;
    return fclose(file) || failed ? lt_fail(LT_E_IO, "launch: cannot write %s", path) : LT_OK;
}
