/* Stands in for services and clients in a build without nng. */

#include "lather/ext/fail.h"
#include "lather/service.h"

static lt_status missing(void)
{
    return lt_fail(LT_E_UNSUPPORTED, "service: this build has no nng");
}

void *lt_reply_data(lt_reply *reply, size_t bytes)
{
    (void)reply;
    (void)bytes;
    return NULL;
}

lt_status lt_service_open(lt_service **out, const lt_service_config *config)
{
    (void)out;
    (void)config;
    return missing();
}

const char *lt_service_address(const lt_service *service)
{
    (void)service;
    return "";
}

void lt_service_close(lt_service **service)
{
    *service = NULL;
}

lt_status lt_client_open(lt_client **out, const lt_client_config *config)
{
    (void)out;
    (void)config;
    return missing();
}

lt_status lt_client_call(lt_client *client, const void *request, size_t bytes, double seconds,
                         lt_answer *answer)
{
    (void)client;
    (void)request;
    (void)bytes;
    (void)seconds;
    (void)answer;
    return missing();
}

void lt_answer_free(lt_answer *answer)
{
    *answer = (lt_answer){0};
}

void lt_client_close(lt_client **client)
{
    *client = NULL;
}
