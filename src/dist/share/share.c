/* Device time-sharing: a job's ranks agree on its start stamp, then each follows its own device's turn scheduler.
 * tests/dist/share_model.py checks the protocol by exhaustive search of its states. */

#include "base/alloc.h"
#include "base/clock.h"
#include "base/os.h"
#include "dist/consensus.h"
#include "dist/share/turn_scheduler.h"

#include "lather/detail/topology.h"
#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct lt_share {
    lt_turn_scheduler *scheduler;
    double deadline;
};

static lt_status check_name_and_weight(const char *name, int64_t weight)
{
    static const char *const valid =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t size = strlen(name);
    if (!size || size >= LT_SHARE_NAME || strspn(name, valid) != size)
        return lt_fail(
            LT_E_ARG, "share: session name '%.80s', want 1 to %d of a-z, A-Z, 0-9, '.', '_' or '-'",
            name, LT_SHARE_NAME - 1);
    if (weight < 1 || weight > LT_SHARE_WEIGHT)
        return lt_fail(LT_E_ARG, "share: weight %lld, want a number from 1 to %d",
                       (long long)weight, LT_SHARE_WEIGHT);
    return LT_OK;
}

lt_status lt_share_parse(lt_share_config *out, const char *text)
{
    const char *colon = strchr(text, ':');
    char *end = NULL;
    int64_t weight = 1;
    if (colon) {
        weight = strtoll(colon + 1, &end, 10);
        if (end == colon + 1 || *end)
            return lt_fail(LT_E_ARG, "share: '%.80s', want NAME or NAME:WEIGHT", text);
    }
    const size_t size = colon ? (size_t)(colon - text) : strlen(text);
    snprintf(out->session, LT_SHARE_NAME, "%.*s", size < INT16_MAX ? (int)size : INT16_MAX, text);
    out->weight = (int)weight;
    return check_name_and_weight(size < LT_SHARE_NAME ? out->session : text, weight);
}

/* --- Joining --- */

/* Identity of a job and of this rank's device. */
typedef struct introduction {
    char device[48]; /* "cuda:0"; "cpu.1" with the local rank, as ranks share the CPU */
    char *map;       /* "host/device host/device ...", in rank order; owned */
    int64_t job;
} introduction;

/* Replaces *value by the largest of all ranks' values. */
static lt_status max_over_ranks(lt_comm *comm, int64_t *value)
{
    if (!comm)
        return LT_OK;
    const int ranks = lt_comm_size(comm);
    int64_t *all = lt_alloc((size_t)ranks, sizeof *all);
    lt_status st = lt_comm_agree_on_status(comm, all ? LT_OK : LT_E_NOMEM);
    if (!st)
        st = lt_comm_allgather_equal(comm, value, sizeof *value, all);
    for (int i = 0; !st && i < ranks; i++)
        *value = all[i] > *value ? all[i] : *value;
    lt_free(all);
    return st;
}

static lt_status name_device(introduction *in, const lt_share_config *c)
{
    lt_nodes nodes = LT_NODES_ALONE;
    const bool whole = strchr(c->device, ':');
    if (c->comm && !whole)
        LT_TRY(lt_comm_nodes(&nodes, c->comm, 0));
    snprintf(in->device, sizeof in->device, whole ? "%s" : "%s.%d", c->device, nodes.local);
    lt_nodes_clear(&nodes);
    return LT_OK;
}

static lt_status identify_job(introduction *in, const lt_share_config *c)
{
    char host[65] = "", text[128];
    in->job = lt_clock_nanoseconds() ^ (int64_t)getpid() << 40;
    if (!lt_os_random(&in->job, sizeof in->job) || gethostname(host, sizeof host - 1))
        host[sizeof host - 1] = 0;
    LT_TRY(name_device(in, c));
    LT_TRY(max_over_ranks(c->comm, &in->job));
    snprintf(text, sizeof text, "%s/%s", host, in->device);
    if (!c->comm) {
        in->map = lt_strdup(text);
        return in->map ? LT_OK : LT_E_NOMEM;
    }
    LT_TRY(lt_comm_gather_texts(c->comm, text, &in->map));
    char *at = in->map;
    for (int i = 1; i < lt_comm_size(c->comm); i++) {
        at += strlen(at);
        *at = ' ';
    }
    return LT_OK;
}

static lt_status join_session(lt_share *s, const lt_share_config *c, const introduction *in)
{
    int64_t start = 0;
    const lt_turn_job job = {.id = in->job,
                             .weight = c->weight,
                             .rank = c->comm ? lt_comm_rank(c->comm) : 0,
                             .ranks = c->comm ? lt_comm_size(c->comm) : 1,
                             .map = in->map};
    char *path =
        lt_format("%s/lather-%s-%s", c->folder ? c->folder : "/dev/shm", c->session, in->device);
    lt_status st = path ? lt_turn_begin_join(&s->scheduler, path, &job, &start) : LT_E_NOMEM;
    lt_free(path);
    if (c->comm)
        st = lt_comm_agree_on_status(c->comm, st);
    if (!st)
        st = max_over_ranks(c->comm, &start);
    return st ? st : lt_turn_finish_join(s->scheduler, start);
}

lt_status lt_share_open(lt_share **out, const lt_share_config *config)
{
    introduction in = {0};
    LT_TRY(check_name_and_weight(config->session, config->weight));
    lt_share *s = lt_alloc(1, sizeof *s);
    lt_status st = s ? identify_job(&in, config) : LT_E_NOMEM;
    if (config->comm)
        st = lt_comm_agree_on_status(config->comm, st);
    if (!st)
        st = join_session(s, config, &in);
    if (config->comm && !st)
        st = lt_comm_agree_on_status(config->comm, st);
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
    lt_turn_close(&(*share)->scheduler);
    lt_free(*share);
    *share = NULL;
}

lt_status lt_share_begin(lt_share *share, lt_share_turn *turn)
{
    return lt_turn_begin(share->scheduler, share->deadline, turn);
}

lt_status lt_share_end(lt_share *share)
{
    return lt_turn_end(share->scheduler);
}
