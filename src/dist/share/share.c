/* A job's part in a session of shared devices: its ranks agree on when it begins, each then goes by its own device's
 * turnstile. The protocol's states are searched by tests/dist/share_model.py. */

#include "base/alloc.h"
#include "base/clock.h"
#include "dist/agree.h"
#include "dist/share/turnstile.h"

#include "lather/ext/fail.h"
#include "lather/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct lt_share {
    lt_turnstile *turnstile;
    double deadline;
};

/* --- The session's name --- */

static lt_status check_session(const char *name)
{
    static const char *const taken =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t size = strlen(name);
    if (size && size < LT_SHARE_NAME && strspn(name, taken) == size)
        return LT_OK;
    return lt_fail(LT_E_ARG,
                   "share: session '%.80s': a name has 1 to %d of a-z, A-Z, 0-9, '.', '_' or '-'",
                   name, LT_SHARE_NAME - 1);
}

static lt_status check_weight(int64_t weight)
{
    if (weight >= 1 && weight <= LT_SHARE_WEIGHT)
        return LT_OK;
    return lt_fail(LT_E_ARG, "share: weight %lld is not a number from 1 to %d", (long long)weight,
                   LT_SHARE_WEIGHT);
}

lt_status lt_share_parse(lt_share_config *out, const char *text)
{
    const char *colon = strchr(text, ':');
    char *end = NULL;
    int64_t weight = 1;
    if (colon) {
        weight = strtoll(colon + 1, &end, 10);
        if (end == colon + 1 || *end)
            return lt_fail(LT_E_ARG, "share: '%.80s' is not NAME or NAME:WEIGHT", text);
    }
    LT_TRY(check_weight(weight));
    const size_t size = colon ? (size_t)(colon - text) : strlen(text);
    snprintf(out->session, LT_SHARE_NAME, "%.*s", size < INT16_MAX ? (int)size : INT16_MAX, text);
    out->weight = (int)weight;
    return size < LT_SHARE_NAME ? check_session(out->session) : check_session(text);
}

/* --- Joining --- */

/* What the ranks tell each other before they join. */
typedef struct introduction {
    char device[48]; /* with the rank's place among those of its machine */
    char *map;       /* "host/device host/device ...", in rank order; owned */
    uint64_t job;
    int rank, ranks;
} introduction;

/* A GPU has a name of its own on a machine; ranks on "cpu" have a part of it each. */
static lt_status name_device(introduction *in, const lt_share_config *c)
{
    lt_nodes nodes = LT_NODES_ALONE;
    if (strchr(c->device, ':')) {
        snprintf(in->device, sizeof in->device, "%s", c->device);
        return LT_OK;
    }
    if (c->comm)
        LT_TRY(lt_comm_nodes(&nodes, c->comm, 0));
    snprintf(in->device, sizeof in->device, "%s.%d", c->device, nodes.local);
    if (c->comm)
        lt_nodes_clear(&nodes);
    return LT_OK;
}

/* The texts of all ranks are "job host/device": the first one's job, and all that follow the blanks. */
static lt_status read_texts(introduction *in, const char *all)
{
    size_t bytes = 1;
    const char *at = all;
    for (int i = 0; i < in->ranks; i++, at += strlen(at) + 1)
        bytes += strlen(at) + 1;
    in->map = lt_alloc(bytes, 1);
    if (!in->map)
        return LT_E_NOMEM;
    in->job = strtoull(all, NULL, 16);
    size_t used = 0;
    at = all;
    for (int i = 0; i < in->ranks; i++, at += strlen(at) + 1)
        used += (size_t)snprintf(in->map + used, bytes - used, "%s%s", i ? " " : "",
                                 strchr(at, ' ') + 1);
    return LT_OK;
}

static lt_status introduce(introduction *in, const lt_share_config *c)
{
    char host[65] = "", text[160], *all = NULL;
    uint64_t id = (uint64_t)lt_clock_nanoseconds();
    in->rank = c->comm ? lt_comm_rank(c->comm) : 0;
    in->ranks = c->comm ? lt_comm_size(c->comm) : 1;
    LT_TRY(name_device(in, c));
    if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
        id ^= (uint64_t)getpid() << 40;
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    snprintf(text, sizeof text, "%016llx %s/%s", (unsigned long long)id, host, in->device);
    if (!c->comm)
        return read_texts(in, text);
    LT_TRY(lt_comm_gather_texts(c->comm, text, &all));
    lt_status st = read_texts(in, all);
    lt_free(all);
    return st;
}

/* The largest of all ranks. */
static lt_status agree_start(lt_comm *comm, int64_t *start)
{
    if (!comm)
        return LT_OK;
    const int ranks = lt_comm_size(comm);
    int64_t *bytes = lt_alloc((size_t)ranks, sizeof *bytes);
    int64_t *all = lt_alloc((size_t)ranks, sizeof *all);
    for (int i = 0; bytes && i < ranks; i++)
        bytes[i] = sizeof *start;
    lt_status st = lt_comm_agree(comm, bytes && all ? LT_OK : LT_E_NOMEM);
    if (!st)
        st = lt_comm_allgather_host(comm, start, bytes, all);
    for (int i = 0; !st && i < ranks; i++)
        *start = all[i] > *start ? all[i] : *start;
    lt_free(bytes);
    lt_free(all);
    return st;
}

static lt_status join(lt_share *s, const lt_share_config *c, const introduction *in)
{
    int64_t start = 0;
    const lt_turnstile_job job = {
        .id = in->job, .weight = c->weight, .rank = in->rank, .ranks = in->ranks, .map = in->map};
    char *path =
        lt_format("%s/lather-%s-%s", c->folder ? c->folder : "/dev/shm", c->session, in->device);
    lt_status st = path ? lt_turnstile_propose(&s->turnstile, path, &job, &start) : LT_E_NOMEM;
    lt_free(path);
    if (c->comm)
        st = lt_comm_agree(c->comm, st);
    if (!st)
        st = agree_start(c->comm, &start);
    return st ? st : lt_turnstile_confirm(s->turnstile, start);
}

lt_status lt_share_open(lt_share **out, const lt_share_config *config)
{
    introduction in = {0};
    LT_TRY(check_session(config->session));
    LT_TRY(check_weight(config->weight));
    lt_share *s = lt_alloc(1, sizeof *s);
    lt_status st = s ? introduce(&in, config) : LT_E_NOMEM;
    if (config->comm)
        st = lt_comm_agree(config->comm, st);
    if (!st)
        st = join(s, config, &in);
    if (config->comm && !st)
        st = lt_comm_agree(config->comm, st);
    lt_free(in.map);
    if (st) {
        lt_share_close(&s);
        return st;
    }
    s->deadline = config->deadline;
    *out = s;
    return LT_OK;
}

void lt_share_close(lt_share **share)
{
    if (!*share)
        return;
    lt_turnstile_close(&(*share)->turnstile);
    lt_free(*share);
    *share = NULL;
}

/* --- Turns --- */

lt_status lt_share_begin(lt_share *share, lt_share_turn *turn)
{
    return lt_turnstile_take(share->turnstile, share->deadline, turn);
}

lt_status lt_share_end(lt_share *share)
{
    return lt_turnstile_give(share->turnstile);
}
