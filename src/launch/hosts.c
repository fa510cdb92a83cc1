/* Hosts of a launch by mpirun. The launcher gives mpirun the list of hosts that are left, so that a dead one is not tried
 * again; a spare takes a dead host's place in the order. */

#include "launch/hosts.h"

#include "base/alloc.h"

#include "lather/ext/fail.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Position of an entry in the lists, for messages. */
typedef struct place {
    const char *source; /* flag, or name of the file */
    int line;           /* 0: not a file */
    bool is_sum;        /* a host that is listed again adds slots */
} place;

static lt_status LT_PRINTF(2, 3) fail_at(const place *p, const char *format, ...)
{
    char text[LT_HOST_NAME * 2];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return p->line ? lt_fail(LT_E_ARG, "launch: %s:%d: %s", p->source, p->line, text)
                   : lt_fail(LT_E_ARG, "launch: %s: %s", p->source, text);
}

/* Sets the address, and is_local if this machine can bind it. */
static lt_status resolve(lt_launch_host *h, const place *p)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const int code = getaddrinfo(h->name, NULL, &hints, &found);
    if (code)
        return fail_at(p, "host '%s' does not resolve: %s", h->name, gai_strerror(code));
    memcpy(&h->address, found->ai_addr, found->ai_addrlen);
    h->address_bytes = found->ai_addrlen;
    const int probe = socket(found->ai_family, SOCK_STREAM, 0);
    h->is_local = probe >= 0 && !bind(probe, found->ai_addr, found->ai_addrlen);
    if (probe >= 0)
        close(probe);
    freeaddrinfo(found);
    return LT_OK;
}

static lt_status add_host(lt_launch_hosts *hosts, const char *name, int slots, const place *p)
{
    enum { GROWTH = 16 };
    for (int i = 0; i < hosts->count; i++) {
        if (strcmp(hosts->host[i].name, name) != 0)
            continue;
        if (!p->is_sum)
            return fail_at(p, "host '%s' is listed twice%s", name,
                           hosts->regular && i < hosts->regular ? ": a spare is not also a host"
                                                                : "");
        hosts->host[i].slots += slots;
        return LT_OK;
    }
    if (hosts->count % GROWTH == 0) {
        LT_TRY(LT_RESIZE(&hosts->host, (size_t)hosts->count + GROWTH));
        LT_TRY(LT_RESIZE(&hosts->order, (size_t)hosts->count + GROWTH));
    }
    lt_launch_host *h = &hosts->host[hosts->count];
    *h = (lt_launch_host){.slots = slots};
    if (strlen(name) >= sizeof h->name)
        return fail_at(p, "a host's name of %zu bytes, at most %zu", strlen(name),
                       sizeof h->name - 1);
    snprintf(h->name, sizeof h->name, "%s", name);
    LT_TRY(resolve(h, p));
    for (int i = 0; i < hosts->count; i++)
        if (!memcmp(&hosts->host[i].address, &h->address, sizeof h->address))
            return fail_at(p, "host '%s' is listed twice: host '%s' has its address", name,
                           hosts->host[i].name);
    hosts->order[hosts->count] = hosts->count;
    hosts->count++;
    return LT_OK;
}

static lt_status parse_slots(const char *text, const place *p, int *out)
{
    char *end = NULL;
    const long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > LT_HOST_MOST_SLOTS)
        return fail_at(p, "'%s' slots, want 1 to %d", text, LT_HOST_MOST_SLOTS);
    *out = (int)n;
    return LT_OK;
}

/* Parses "NAME slots=N" or "NAME:N"; without a number a host has one slot. max_slots is read and not used. Changes text. */
static lt_status parse_entry(lt_launch_hosts *hosts, char *text, const place *p)
{
    char *rest = NULL;
    int slots = 1, most;
    text[strcspn(text, "#\r\n")] = 0;
    char *name = strtok_r(text, " \t", &rest), *colon = name ? strrchr(name, ':') : NULL;
    if (!name)
        return LT_OK;
    if (colon) {
        *colon = 0;
        LT_TRY(parse_slots(colon + 1, p, &slots));
    }
    for (char *word; (word = strtok_r(NULL, " \t", &rest));) {
        if (!strncmp(word, "slots=", 6))
            LT_TRY(parse_slots(word + 6, p, &slots));
        else if (!strncmp(word, "max_slots=", 10) || !strncmp(word, "max-slots=", 10))
            LT_TRY(parse_slots(word + 10, p, &most));
        else
            return fail_at(p, "'%s' after host '%s', want slots=N", word, name);
    }
    return add_host(hosts, name, slots, p);
}

/* Opens the file of that name, else the list as one, with a line for each entry; *list is for lt_free(). */
static lt_status open_entries(const char *text, const char *flag, FILE **file, char **list)
{
    *list = NULL;
    *file = fopen(text, "re");
    if (*file)
        return LT_OK;
    if (strchr(text, '/'))
        return lt_fail(LT_E_IO, "launch: %s: cannot read %s", flag, text);
    *list = lt_format("%s\n", text);
    for (char *c = *list; c && *c; c++)
        *c = (char)(*c == ',' ? '\n' : *c);
    *file = *list ? fmemopen(*list, strlen(*list), "r") : NULL;
    return *file ? LT_OK : LT_E_NOMEM;
}

static lt_status read_hosts(lt_launch_hosts *hosts, const char *text, const char *flag, bool is_sum)
{
    place p = {.source = flag, .is_sum = is_sum};
    const int before = hosts->count;
    char entry[LT_HOST_NAME * 4], *list = NULL;
    FILE *file = NULL;
    lt_status st = open_entries(text, flag, &file, &list);
    if (!list)
        p.source = text;
    while (!st && fgets(entry, sizeof entry, file)) {
        p.line += !list;
        st = parse_entry(hosts, entry, &p);
    }
    if (file)
        fclose(file);
    lt_free(list);
    if (!st && hosts->count == before && !is_sum)
        st = lt_fail(LT_E_ARG, "launch: %s: no host in %s", flag, text);
    return st;
}

static lt_status read_both(lt_launch_hosts *hosts, const lt_launch_hosts_config *config)
{
    static const char *const variables[] = {"PBS_NODEFILE", "OMPI_MCA_orte_default_hostfile"};
    const char *text = config->hosts;
    size_t from = 0;
    hosts->is_given = text != NULL;
    snprintf(hosts->source, sizeof hosts->source, "--hosts");
    for (; !text && from < sizeof variables / sizeof *variables; from++) {
        text = getenv(variables[from]);
        snprintf(hosts->source, sizeof hosts->source, "%s", variables[from]);
    }
    if (text && *text)
        LT_TRY(read_hosts(hosts, text, hosts->source, !hosts->is_given));
    hosts->regular = hosts->count;
    if (config->spares && !hosts->count)
        return lt_fail(LT_E_ARG, "launch: --spare-hosts needs --hosts");
    return config->spares ? read_hosts(hosts, config->spares, "--spare-hosts", false) : LT_OK;
}

lt_status lt_launch_hosts_open(lt_launch_hosts **out, const lt_launch_hosts_config *config)
{
    lt_launch_hosts *hosts = NULL;
    LT_TRY(LT_ALLOC(&hosts, 1));
    hosts->is_checked = !config->no_check;
    const lt_status st = read_both(hosts, config);
    if (st || !hosts->count)
        lt_launch_hosts_free(&hosts);
    *out = hosts;
    return st;
}

void lt_launch_hosts_free(lt_launch_hosts **hosts)
{
    lt_launch_hosts *h = *hosts;
    *hosts = NULL;
    if (!h)
        return;
    lt_free(h->host);
    lt_free(h->order);
    lt_free(h);
}

int lt_launch_hosts_slots(const lt_launch_hosts *hosts, bool regular)
{
    int slots = 0;
    for (int k = 0; k < (regular ? hosts->regular : hosts->count); k++) {
        const lt_launch_host *h = &hosts->host[hosts->order[k]];
        slots += h->is_out ? 0 : h->slots;
    }
    return slots;
}

void lt_launch_hosts_leave_out(lt_launch_hosts *hosts, int host, const char *why)
{
    lt_launch_host *h = &hosts->host[host];
    h->losses += !h->is_out;
    h->is_out = true;
    snprintf(h->why, sizeof h->why, "%s", why);
}

void lt_launch_hosts_use_spares(lt_launch_hosts *hosts, FILE *log)
{
    for (int k = 0; k < hosts->regular; k++) {
        const int lost = hosts->order[k];
        int spare = hosts->regular;
        while (spare < hosts->count && hosts->host[hosts->order[spare]].is_out)
            spare++;
        if (!hosts->host[lost].is_out || spare == hosts->count)
            continue;
        hosts->order[k] = hosts->order[spare];
        hosts->order[spare] = lost;
        fprintf(log, "launch| host %s takes the place of %s\n", hosts->host[hosts->order[k]].name,
                hosts->host[lost].name);
    }
}

int lt_launch_hosts_place(const lt_launch_hosts *hosts, int ranks, int *host_of_rank)
{
    int placed = 0, end = hosts->regular, slots = lt_launch_hosts_slots(hosts, true);
    for (; end < hosts->count && slots < ranks; end++) {
        const lt_launch_host *h = &hosts->host[hosts->order[end]];
        slots += h->is_out ? 0 : h->slots;
    }
    for (int remote = 0; remote < 2; remote++)
        for (int k = 0; k < end; k++) {
            const lt_launch_host *h = &hosts->host[hosts->order[k]];
            for (int i = 0; !h->is_out && h->is_local == !remote && i < h->slots; i++)
                if (placed < ranks)
                    host_of_rank[placed++] = hosts->order[k];
        }
    return placed;
}

static lt_status append_host(char **text, const char *name, int slots)
{
    char *longer = lt_format("%s%s%s:%d", *text ? *text : "", *text ? "," : "", name, slots);
    lt_free(*text);
    *text = longer;
    return longer ? LT_OK : LT_E_NOMEM;
}

lt_status lt_launch_hosts_list(const lt_launch_hosts *hosts, const int *host_of_rank, int ranks,
                               char **out)
{
    *out = NULL;
    for (int r = 0, next; r < ranks; r = next) {
        for (next = r; next < ranks && host_of_rank[next] == host_of_rank[r];)
            next++;
        LT_TRY(append_host(out, hosts->host[host_of_rank[r]].name, next - r));
    }
    for (int k = 0; !ranks && k < hosts->regular; k++) {
        const lt_launch_host *h = &hosts->host[hosts->order[k]];
        if (!h->is_out)
            LT_TRY(append_host(out, h->name, h->slots));
    }
    return *out ? LT_OK : lt_fail(LT_E_COMM, "launch: no host is left");
}

const char *lt_launch_hosts_describe_lost(const lt_launch_hosts *hosts, char *out, size_t size)
{
    size_t at = 0;
    snprintf(out, size, "none");
    for (int i = 0; i < hosts->count && at < size; i++)
        if (hosts->host[i].is_out)
            at += (size_t)snprintf(out + at, size - at, "%s%s (%s)", at ? ", " : "",
                                   hosts->host[i].name, hosts->host[i].why);
    return out;
}

int lt_launch_hosts_find_lost(const lt_launch_hosts *hosts, const char *text)
{
    static const char *const marks[][2] = {{"Remote daemon: ", " on node "},
                                           {"connect to host ", ""},
                                           {"Could not resolve hostname ", ""}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *at = strstr(text, marks[i][0]);
        at = at && *marks[i][1] ? strstr(at, marks[i][1]) : at;
        if (!at)
            continue;
        at += strlen(*marks[i][1] ? marks[i][1] : marks[i][0]);
        for (int k = 0; k < hosts->count; k++) {
            const size_t bytes = strlen(hosts->host[k].name);
            if (!strncmp(at, hosts->host[k].name, bytes) && strcspn(at, " :\t\r") == bytes)
                return k;
        }
    }
    return -1;
}
