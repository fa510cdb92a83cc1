/* What ranks must have in common, and the lists that rank 0 writes for all. */

#include "base/hash.h"
#include "train/trainer/session.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 1024 };

/* Flags that may differ: where a rank reads, writes and computes. */
static bool is_local(const char *name)
{
    static const char *const local[] = {"cache-dir",   "cache-ram", "read-ahead", "data",
                                        "val-labels",  "output",    "workers",    "threads",
                                        "device",      "progress",  "log-every",  "profile",
                                        "tensorboard", "verbose"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (!strcmp(local[i], name))
            return true;
    return false;
}

/* With the terminating zero, so that "ab", "c" and "a", "bc" differ. */
static uint64_t mix(uint64_t sum, const char *text)
{
    return lt_fnv1a(sum, text, strlen(text) + 1);
}

static lt_status same_text(session *s, const char *what, const char *text)
{
    lt_status st = lt_comm_same(s->comm, what, text);
    s->everywhere = st == LT_E_ARG;
    return st;
}

static lt_status same_number(session *s, const char *what, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return same_text(s, what, text);
}

static lt_status same_sum(session *s, const char *what, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    return same_text(s, what, text);
}

lt_status session_agree_flags(session *s)
{
    char text[TEXT], name[64];
    uint64_t sum = LT_FNV1A_BEGIN;
    if (!s->comm)
        return LT_OK;
    LT_TRY(same_text(s, "the version", lt_version()));
    LT_TRY(same_text(s, "--output", s->args.output ? "given" : "missing"));
    const lt_option *option;
    for (size_t i = 0; (option = lt_options_at(s->options, i)); i++)
        if (!is_local(option->name))
            sum = mix(sum, lt_options_text(s->options, option->name, text, TEXT));
    lt_status st = same_sum(s, "the sum of all flags", sum);
    if (st != LT_E_ARG)
        return st;
    for (size_t i = 0; (option = lt_options_at(s->options, i)); i++) { /* which is the first? */
        if (is_local(option->name))
            continue;
        snprintf(name, sizeof name, "--%s", option->name);
        lt_options_text(s->options, option->name, text, TEXT);
        LT_TRY(same_text(s, name, text));
    }
    return st;
}

static lt_status agree_dataset(session *s, const char *part, const lt_dataset *data)
{
    char what[64];
    uint64_t names = LT_FNV1A_BEGIN;
    if (!data)
        return LT_OK;
    int classes = lt_dataset_classes(data);
    for (int i = 0; i < classes; i++)
        if (lt_dataset_class_name(data, i))
            names = mix(names, lt_dataset_class_name(data, i));
    snprintf(what, sizeof what, "the number of pictures to %s", part);
    LT_TRY(same_number(s, what, lt_dataset_count(data)));
    snprintf(what, sizeof what, "the number of classes to %s", part);
    LT_TRY(same_number(s, what, classes));
    snprintf(what, sizeof what, "the sum of class names to %s", part);
    return same_sum(s, what, names);
}

lt_status session_agree_data(session *s)
{
    if (!s->comm)
        return LT_OK;
    LT_TRY(agree_dataset(s, "train on", s->train_data));
    LT_TRY(agree_dataset(s, "evaluate", s->val_data));
    LT_TRY(same_number(s, "the side of a picture", s->transform.size));
    return same_number(s, "the channels of a picture", lt_dataset_channels(s->val_data));
}

/* Descriptions from number *listed on, each with its end. */
static char *join(lt_loader *loader, int64_t *listed, size_t *bytes)
{
    size_t used = 0;
    for (int64_t i = *listed; loader && lt_loader_bad(loader, i); i++)
        used += strlen(lt_loader_bad(loader, i)) + 1;
    char *text = malloc(used + 1);
    *bytes = used;
    for (char *at = text; text && loader && lt_loader_bad(loader, *listed); ++*listed)
        at = stpcpy(at, lt_loader_bad(loader, *listed)) + 1;
    return text;
}

/* How many bytes each rank has; their sum in *total. */
static lt_status gather_counts(session *s, size_t own, int64_t *count, size_t *total)
{
    const int64_t bytes = (int64_t)own;
    int64_t *each = calloc((size_t)s->ranks, sizeof *each);
    if (!each)
        return lt_fail(LT_E_NOMEM, "ranks: no memory for %d counts", s->ranks);
    for (int r = 0; r < s->ranks; r++)
        each[r] = sizeof bytes;
    lt_status st = lt_comm_allgather_host(s->comm, &bytes, each, count);
    for (int r = 0; r < s->ranks && !st; r++)
        *total += (size_t)count[r];
    free(each);
    return st;
}

lt_status session_gather_bytes(session *s, const void *own, size_t bytes, char **all, size_t *total)
{
    int64_t *count = calloc((size_t)s->ranks, sizeof *count);
    lt_status st = count ? LT_OK : lt_fail(LT_E_NOMEM, "ranks: no memory for %d counts", s->ranks);
    *all = NULL;
    *total = s->comm ? 0 : bytes;
    if (!st && s->comm)
        st = gather_counts(s, bytes, count, total);
    if (!st)
        *all = malloc(*total + 1);
    if (!st && !*all)
        st = lt_fail(LT_E_NOMEM, "ranks: no memory for %zu bytes", *total);
    if (!st && s->comm)
        st = lt_comm_allgather_host(s->comm, own, count, *all);
    else if (!st && bytes)
        memcpy(*all, own, bytes);
    free(count);
    if (st) {
        free(*all);
        *all = NULL;
    }
    return st;
}

lt_status session_list_bad(session *s, lt_loader *loader, int64_t *listed)
{
    size_t bytes, total;
    char *own = join(loader, listed, &bytes), *all = NULL;
    lt_status st = own ? session_gather_bytes(s, own, bytes, &all, &total)
                       : lt_fail(LT_E_NOMEM, "ranks: no memory for a list");
    for (const char *at = all; !st && at < all + total; at += strlen(at) + 1)
        st = lt_run_bad_image(s->run, at);
    free(all);
    free(own);
    return st;
}
