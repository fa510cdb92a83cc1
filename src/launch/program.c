/* Program graphs: groups, what may be in them, and their INI text both ways. */

#include "base/alloc.h"
#include "base/shared_file.h"
#include "base/text.h"
#include "launch/ini.h"
#include "launch/launch.h"

#include "lather/ext/file.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const kinds[] = {"function", "service", "gang"};
static const char *const policies[] = {"fail-fast", "restart", "shrink"};
enum { RESTARTS = 3, MOST_NODES = 4096 };

lt_status lt_program_graph_new(lt_program_graph **out, const char *name)
{
    lt_program_graph *p = lt_alloc(1, sizeof *p);
    if (!p || !(p->name = lt_strdup(name))) {
        lt_free(p);
        return LT_E_NOMEM;
    }
    *out = p;
    return LT_OK;
}

static void free_handle(lt_handle *h)
{
    /* These are copies of what the caller's strings were. */
    lt_free((void *)(uintptr_t)h->config.label);
    lt_free((void *)(uintptr_t)h->config.module);
    lt_free((void *)(uintptr_t)h->config.command);
    lt_free((void *)(uintptr_t)h->config.arguments);
    lt_free((void *)(uintptr_t)h->config.plan);
    lt_free(h->uses);
    lt_free(h);
}

void lt_program_graph_free(lt_program_graph **program)
{
    lt_program_graph *p = *program;
    if (!p)
        return;
    *program = NULL;
    if (p->is_in_use)
        return;
    while (p->first) {
        lt_handle *h = p->first;
        p->first = h->next;
        free_handle(h);
    }
    lt_free(p->name);
    lt_free(p);
}

lt_handle *lt_program_graph_find(const lt_program_graph *program, const char *label, size_t bytes)
{
    for (lt_handle *h = program->first; h; h = h->next)
        if (strlen(h->config.label) == bytes && !memcmp(h->config.label, label, bytes))
            return h;
    return NULL;
}

static bool is_label(const char *text)
{
    enum { MOST = 32 };
    static const char *const reserved[] = {"self", "program"};
    const size_t bytes = text ? strlen(text) : 0;
    if (bytes < 1 || bytes > MOST || !strcmp(text, reserved[0]) || !strcmp(text, reserved[1]))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)text[i]) && text[i] != '-' && text[i] != '_')
            return false;
    return true;
}

static lt_status check_gang(const lt_launch_node_config *c)
{
    if (c->global_batch < 0 || c->batch_size < 0 || (c->global_batch && !c->batch_size))
        return lt_fail(LT_E_ARG,
                       "launch: %s: a global batch of %" PRId64 " of micro-batches of %" PRId64,
                       c->label, c->global_batch, c->batch_size);
    if (c->global_batch && c->kind != LT_LAUNCH_NODE_GANG)
        return lt_fail(LT_E_ARG, "launch: %s: a global batch is a gang's", c->label);
    if (c->runs < 0 || c->runs > MOST_NODES)
        return lt_fail(LT_E_ARG, "launch: %s: %d runs, want 1 to %d", c->label, c->runs,
                       MOST_NODES);
    if ((c->plan || c->runs > 1) && (c->kind != LT_LAUNCH_NODE_GANG || !c->command))
        return lt_fail(LT_E_ARG, "launch: %s: %s is of a gang with a command", c->label,
                       c->plan ? "plan = auto" : "runs");
    return LT_OK;
}

static lt_status check_numbers(const lt_launch_node_config *c)
{
    if (c->count < 0 || c->count > MOST_NODES)
        return lt_fail(LT_E_ARG, "launch: %s: %d nodes, want 1 to %d", c->label, c->count,
                       MOST_NODES);
    if (c->restarts < 0 || !(c->backoff >= 0))
        return lt_fail(LT_E_ARG, "launch: %s: %d restarts after %g seconds, want 0 or more",
                       c->label, c->restarts, c->backoff);
    if (!(c->heartbeat >= 0) || !(c->progress >= 0))
        return lt_fail(LT_E_ARG,
                       "launch: %s: a heartbeat of %g, progress in %g seconds, want 0 or more",
                       c->label, c->heartbeat, c->progress);
    if (c->progress > 0 && c->kind == LT_LAUNCH_NODE_SERVICE)
        return lt_fail(LT_E_ARG,
                       "launch: %s: progress = %g: a service waits for calls, it has no progress",
                       c->label, c->progress);
    return check_gang(c);
}

static lt_status check_config(const lt_program_graph *program, const lt_launch_node_config *c)
{
    if (!is_label(c->label))
        return lt_fail(
            LT_E_ARG,
            "launch: '%s' is no label: want 1 to 32 of a-z, A-Z, 0-9, - and _, and not self",
            c->label ? c->label : "");
    if (lt_program_graph_find(program, c->label, strlen(c->label)))
        return lt_fail(LT_E_ARG, "launch: there is a group %s already", c->label);
    if ((c->entry != NULL) + (c->module != NULL) + (c->command != NULL) != 1)
        return lt_fail(LT_E_ARG, "launch: %s: want one of entry, module and command", c->label);
    const char *colon = c->module ? strrchr(c->module, ':') : NULL;
    if (c->module && (!colon || colon == c->module || !colon[1]))
        return lt_fail(LT_E_ARG, "launch: %s: entry %s is not FILE.so:NAME", c->label, c->module);
    for (int i = 0; i < LT_LAUNCH_NODE_MAX_USES && c->uses[i]; i++) {
        if (c->uses[i]->program != program)
            return lt_fail(LT_E_ARG, "launch: %s uses %s, a handle of another program", c->label,
                           c->uses[i]->config.label);
        if (c->uses[i]->config.kind != LT_LAUNCH_NODE_SERVICE)
            return lt_fail(LT_E_ARG, "launch: %s uses %s, which is no service", c->label,
                           c->uses[i]->config.label);
    }
    return check_numbers(c);
}

static lt_status copy_text(const char **to, const char *from)
{
    *to = from ? lt_strdup(from) : NULL;
    return from && !*to ? LT_E_NOMEM : LT_OK;
}

static lt_status copy_uses(lt_handle *h, const lt_launch_node_config *c)
{
    for (int i = 0; i < LT_LAUNCH_NODE_MAX_USES && c->uses[i]; i++) {
        char *longer =
            lt_format("%s%s%s", h->uses ? h->uses : "", i ? "," : "", c->uses[i]->config.label);
        if (!longer)
            return LT_E_NOMEM;
        lt_free(h->uses);
        h->uses = longer;
    }
    return LT_OK;
}

static lt_status fill(lt_handle *h, const lt_launch_node_config *c)
{
    static const double backoff = 0.1;
    h->config = *c;
    h->config.label = h->config.module = h->config.command = h->config.arguments = NULL;
    h->config.plan = NULL;
    h->config.runs = c->runs ? c->runs : 1;
    h->config.count = c->count ? c->count : 1;
    h->config.restarts = c->restarts ? c->restarts : RESTARTS;
    h->config.backoff = c->backoff > 0 ? c->backoff : backoff;
    LT_TRY(copy_text(&h->config.label, c->label));
    LT_TRY(copy_text(&h->config.module, c->module));
    LT_TRY(copy_text(&h->config.command, c->command));
    LT_TRY(copy_text(&h->config.arguments, c->arguments));
    LT_TRY(copy_text(&h->config.plan, c->plan));
    return copy_uses(h, c);
}

lt_status lt_program_graph_add(lt_program_graph *program, const lt_launch_node_config *config,
                               const lt_handle **out)
{
    LT_TRY(check_config(program, config));
    lt_handle *h = lt_alloc(1, sizeof *h);
    if (!h)
        return LT_E_NOMEM;
    const lt_status st = fill(h, config);
    if (st) {
        free_handle(h);
        return st;
    }
    h->program = program;
    *(program->last ? &program->last->next : &program->first) = h;
    program->last = h;
    if (out)
        *out = h;
    return LT_OK;
}

/* A file being read. */
typedef struct loading {
    lt_program_graph *program;
    const char *folder; /* of the file */
    char *label, *uses, *text[4];
    lt_launch_node_config config; /* strings are label and text */
    bool has_group, has_heartbeat;
} loading;

enum { MODULE, COMMAND, ARGUMENTS, PLAN };

static lt_status set_text(char **to, const char *value)
{
    lt_free(*to);
    *to = lt_strdup(value);
    return *to ? LT_OK : LT_E_NOMEM;
}

/* Adds the section that was read. Its uses may name later sections, so they are found in the end. */
static lt_status finish(loading *l)
{
    if (!l->has_group)
        return LT_OK;
    l->config.label = l->label;
    l->config.module = l->text[MODULE];
    l->config.command = l->text[COMMAND];
    l->config.arguments = l->text[ARGUMENTS];
    l->config.plan = l->text[PLAN];
    if (!l->has_heartbeat)
        l->config.heartbeat = l->program->heartbeat;
    l->has_heartbeat = false;
    LT_TRY(lt_program_graph_add(l->program, &l->config, NULL));
    l->program->last->uses = l->uses;
    l->uses = NULL;
    l->config = (lt_launch_node_config){0};
    for (int i = 0; i <= PLAN; i++) {
        lt_free(l->text[i]);
        l->text[i] = NULL;
    }
    return LT_OK;
}

static lt_status section(loading *l, const char *name)
{
    LT_TRY(finish(l));
    l->has_group = strcmp(name, "program") != 0;
    if (lt_program_graph_find(l->program, name, strlen(name)))
        return lt_fail(LT_E_ARG, "launch: there is a group %s already", name);
    return set_text(&l->label, name);
}

static lt_status number(const char *key, const char *value, double least, double most, double *out)
{
    char *end = NULL;
    *out = strtod(value, &end);
    if (end == value || *end || !(*out >= least && *out <= most))
        return lt_fail(LT_E_ARG, "launch: %s = %s: want a number, %g to %g", key, value, least,
                       most);
    return LT_OK;
}

static lt_status whole(const char *key, const char *value, double most, int64_t *out)
{
    double n = 0;
    LT_TRY(number(key, value, 1, most, &n));
    *out = (int64_t)n;
    return (double)*out < n ? lt_fail(LT_E_ARG, "launch: %s = %s: want a whole number", key, value)
                            : LT_OK;
}

static lt_status supervise(loading *l, const char *value)
{
    int64_t restarts = 0;
    for (int i = 0; i < 3; i++) {
        const size_t bytes = strlen(policies[i]);
        if (strncmp(value, policies[i], bytes) != 0 || (value[bytes] && value[bytes] != ' '))
            continue;
        l->config.policy = (lt_launch_node_policy)i;
        if (!value[bytes])
            return LT_OK;
        LT_TRY(whole("supervise", value + bytes + 1, 1e6, &restarts));
        l->config.restarts = (int)restarts;
        return LT_OK;
    }
    return lt_fail(LT_E_ARG, "launch: supervise = %s: want fail-fast, restart COUNT or shrink",
                   value);
}

static lt_status kind(loading *l, const char *value)
{
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, kinds[i])) {
            l->config.kind = (lt_launch_node_kind)i;
            return LT_OK;
        }
    return lt_fail(LT_E_ARG, "launch: kind = %s: want function, service or gang", value);
}

/* A module's path is relative to the file's folder. */
static lt_status entry(loading *l, const char *value)
{
    char *path = *value == '/' ? lt_strdup(value) : lt_format("%s/%s", l->folder, value);
    if (!path)
        return LT_E_NOMEM;
    lt_free(l->text[MODULE]);
    l->text[MODULE] = path;
    return LT_OK;
}

/* `auto`, and behind it flags of plan. */
static lt_status plan(loading *l, const char *value)
{
    static const char word[] = "auto";
    const size_t bytes = sizeof word - 1;
    if (strncmp(value, word, bytes) != 0 || (value[bytes] && value[bytes] != ' '))
        return lt_fail(LT_E_ARG, "launch: plan = %s: want auto, and behind it flags of plan",
                       value);
    return set_text(&l->text[PLAN], value + bytes);
}

static lt_status runs(loading *l, const char *value)
{
    int64_t n = 0;
    LT_TRY(whole("runs", value, MOST_NODES, &n));
    l->config.runs = (int)n;
    return LT_OK;
}

static const double most_seconds = 1e6;

static lt_status uses(loading *l, const char *value)
{
    return set_text(&l->uses, value);
}

static const struct {
    const char *key;
    lt_status (*read)(loading *l, const char *value);
} texts[] = {{"kind", kind}, {"entry", entry}, {"supervise", supervise},
             {"uses", uses}, {"plan", plan},   {"runs", runs}};

static lt_status set(loading *l, const char *key, const char *value)
{
    static const char *const keys[] = {"kind",     "count",      "ranks",        "entry",
                                       "command",  "arguments",  "uses",         "supervise",
                                       "backoff",  "batch-size", "global-batch", "heartbeat",
                                       "progress", "plan",       "runs"};
    const double many = 1e15;
    int64_t n = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(key, texts[i].key))
            return texts[i].read(l, value);
    if (!strcmp(key, "command") || !strcmp(key, "arguments"))
        return set_text(&l->text[*key == 'c' ? COMMAND : ARGUMENTS], value);
    if (!strcmp(key, "backoff"))
        return number(key, value, 0, most_seconds, &l->config.backoff);
    if (!strcmp(key, "progress"))
        return number(key, value, 0, most_seconds, &l->config.progress);
    if (!strcmp(key, "heartbeat")) {
        l->has_heartbeat = true;
        return number(key, value, 0, most_seconds, &l->config.heartbeat);
    }
    if (!strcmp(key, "batch-size"))
        return whole(key, value, many, &l->config.batch_size);
    if (!strcmp(key, "global-batch"))
        return whole(key, value, many, &l->config.global_batch);
    if (strcmp(key, "count") != 0 && strcmp(key, "ranks") != 0)
        return lt_fail(LT_E_ARG, "launch: %s: unknown key %s; did you mean %s?", l->label, key,
                       lt_nearest(key, keys, sizeof keys / sizeof *keys));
    LT_TRY(whole(key, value, MOST_NODES, &n));
    l->config.count = (int)n;
    return LT_OK;
}

static lt_status visit(void *context, const char *name, const char *key, const char *value)
{
    loading *l = context;
    if (!key)
        return section(l, name);
    if (l->has_group)
        return set(l, key, value);
    if (!strcmp(key, "heartbeat") && l->program->first)
        return lt_fail(LT_E_ARG, "launch: the heartbeat of [program] is for groups behind it");
    if (!strcmp(key, "heartbeat"))
        return number(key, value, 0, most_seconds, &l->program->heartbeat);
    return strcmp(key, "name")
               ? lt_fail(LT_E_ARG, "launch: [program] has name and heartbeat, not %s", key)
               : set_text(&l->program->name, value);
}

lt_status lt_program_graph_read(lt_program_graph **out, FILE *file, const char *path)
{
    loading l = {0};
    char *slash, *folder = realpath(path, NULL);
    if (!folder)
        return lt_fail(LT_E_IO, "%s: there is no such file", path);
    slash = strrchr(folder, '/');
    *slash = 0;
    l.folder = folder;
    lt_status st = lt_program_graph_new(&l.program, "program");
    if (!st)
        st = lt_ini_read(file, path, visit, &l);
    if (!st)
        st = finish(&l);
    if (!st)
        st = lt_program_graph_check(l.program);
    if (st)
        lt_program_graph_free(&l.program);
    else
        *out = l.program;
    free(folder);
    lt_free(l.label);
    lt_free(l.uses);
    for (int i = 0; i <= PLAN; i++)
        lt_free(l.text[i]);
    return st;
}

lt_status lt_program_graph_load(lt_program_graph **out, const char *path)
{
    FILE *file = NULL;
    LT_TRY(lt_file_open(&file, path));
    const lt_status st = lt_program_graph_read(out, file, path);
    fclose(file);
    return st;
}

static void save_group(const lt_handle *h, FILE *file)
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

lt_status lt_program_graph_save(const lt_program_graph *program, const char *path)
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
    for (const lt_handle *h = program->first; h; h = h->next)
        if (!h->config.entry)
            save_group(h, file);
    const bool failed = ferror(file) != 0;
    return fclose(file) || failed ? lt_fail(LT_E_IO, "launch: %s cannot be written", path) : LT_OK;
}
