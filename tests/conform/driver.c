/* Reports the driver's state if no CUDA device opens. */

#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int init_fn(unsigned flags);
typedef int name_fn(int code, const char **name);

/* POSIX returns functions as data pointers, which C does not convert */
static void find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
}

void say_what_the_driver_says(void)
{
    init_fn *init = NULL;
    name_fn *name_of = NULL;
    const char *name = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "conform: the driver: %s\n", dlerror());
        return;
    }
    find(library, "cuInit", (void *)&init);
    find(library, "cuGetErrorName", (void *)&name_of);
    const int code = init ? init(0) : -1;
    if (name_of)
        (void)name_of(code, &name);
    fprintf(stderr, "conform: the driver: cuInit returns %d (%s)\n", code,
            !init  ? "there is no cuInit"
            : name ? name
                   : "no name");
    dlclose(library);
}
