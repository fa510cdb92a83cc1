/* Parsing of addresses. */

#include "service/address.h"

#include "lather/ext/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *const schemes[] = {"inproc://", "ipc://", "tcp://"};

static lt_status parse_port(lt_address *out, const char *text, const char *port)
{
    enum { MOST = 65535 };
    char *end = NULL;
    const long n = strtol(port, &end, 10);
    if (*port < '0' || *port > '9' || *end || n > MOST)
        return lt_fail(LT_E_ARG, "service: address %s: invalid port '%s', want 0 to %d", text, port,
                       MOST);
    out->port = (int)n;
    return LT_OK;
}

static bool is_one_of(const char *host, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(host, names[i]))
            return true;
    return false;
}

static lt_status parse_tcp(lt_address *out, const char *text)
{
    static const char *const own[] = {"localhost", "::1"}, *const any[] = {"0.0.0.0", "::"};
    const char *colon = strrchr(out->name, ':');
    const bool brackets = out->name[0] == '[';
    const char *begin = out->name + brackets;
    const long bytes = colon ? colon - begin - brackets : 0;
    if (bytes < 1 || bytes >= LT_ADDRESS_HOST || (brackets && begin[bytes] != ']')
        || (!brackets && memchr(begin, ':', (size_t)bytes)))
        return lt_fail(LT_E_ARG, "service: address %s: want tcp://HOST:PORT", text);
    snprintf(out->host, sizeof out->host, "%.*s", (int)bytes, begin);
    out->is_any = is_one_of(out->host, any, sizeof any / sizeof *any);
    out->is_loopback =
        (!strncmp(out->host, "127.", 4) && out->host[strspn(out->host, "0123456789.")] == 0)
        || is_one_of(out->host, own, sizeof own / sizeof *own);
    return parse_port(out, text, colon + 1);
}

static lt_status check_path(const lt_address *a, const char *text)
{
    const size_t most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
    if (*a->name != '/')
        return lt_fail(LT_E_ARG, "service: address %s: want ipc:///PATH, an absolute path", text);
    if (strlen(a->name) > most)
        return lt_fail(LT_E_ARG, "service: address %s: a path of %zu bytes, at most %zu", text,
                       strlen(a->name), most);
    return LT_OK;
}

lt_status lt_address_parse(lt_address *out, const char *text)
{
    for (int kind = LT_ADDRESS_INPROC; text && kind <= LT_ADDRESS_TCP; kind++) {
        const size_t prefix = strlen(schemes[kind]);
        if (strncmp(text, schemes[kind], prefix) != 0 || !text[prefix])
            continue;
        *out =
            (lt_address){.kind = (lt_address_kind)kind, .name = text + prefix, .is_loopback = true};
        if (kind == LT_ADDRESS_IPC)
            return check_path(out, text);
        return kind == LT_ADDRESS_TCP ? parse_tcp(out, text) : LT_OK;
    }
    return lt_fail(LT_E_ARG,
                   "service: address %s: want inproc://NAME, ipc:///PATH or tcp://HOST:PORT",
                   text ? text : "(none)");
}
