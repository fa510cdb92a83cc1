/* Work on streams. */

#include "standin.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

void standin_queue(cudaStream_t, std::function<void()> work, const char *)
{
    work();
}

void standin_queue_until(cudaStream_t, std::function<bool()> work, const char *)
{
    while (!work()) {
    }
}

bool standin_capturing(cudaStream_t)
{
    return false;
}

bool standin_allowed(const char *)
{
    return true;
}

void standin_check_device(const void *, size_t, const char *)
{
}

void standin_check_host(const void *, size_t, const char *)
{
}

bool standin_is_device(const void *)
{
    return true;
}

void standin_fault(const char *what)
{
    standin_die("%s faults", what);
}

bool standin_fails(const char *)
{
    return false;
}

void standin_die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "standin: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}
