/* A service that answers with the request, each byte plus one, and calls to it. */
#ifndef LT_TEST_SERVICE_INCREMENT_H
#define LT_TEST_SERVICE_INCREMENT_H

#include "near.h"

#include "lather/service.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SECONDS = 60 };

static atomic_int handled;

/* Answers with the request, each byte plus one. "fail" fails, "large" is more than may be sent. */
static lt_status increment(void *context, const void *request, size_t bytes,
                           lt_response_buffer *reply)
{
    const unsigned char *in = request;
    const size_t *extra = context;
    atomic_fetch_add(&handled, 1);
    if (bytes == 4 && !memcmp(in, "fail", 4))
        return LT_E_SHAPE;
    unsigned char *out = lt_response_allocate(reply, bytes + (extra ? *extra : 0));
    if (!out)
        return LT_E_ARG;
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(in[i] + 1);
    return LT_OK;
}

static inline lt_service *serve(const char *address, const char *secret)
{
    lt_service *s = NULL;
    assert_ok(lt_service_open(
        &s, &(lt_service_config){.address = address, .handler = increment, .secret = secret}));
    return s;
}

static inline lt_client *connect_to(const char *address, const char *secret, bool repeat)
{
    lt_client *c = NULL;
    assert_ok(lt_client_open(
        &c, &(lt_client_config){.address = address, .secret = secret, .repeat = repeat}));
    return c;
}

static inline void check_call(lt_client *c, size_t bytes)
{
    lt_response answer = {0};
    unsigned char *in = calloc(bytes + 1, 1);
    for (size_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)(i * 7 + bytes);
    assert_ok(lt_client_call(c, in, bytes, SECONDS, &answer));
    assert_int_equal(answer.bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (((const unsigned char *)answer.data)[i] != (unsigned char)(in[i] + 1))
            fail_msg("byte %zu of %zu", i, bytes);
    lt_response_free(&answer);
    free(in);
}

#endif
