/* LATHER_STANDIN_VERSION="cuDNN 9.7" makes that library report this version. */
#ifndef LT_TESTS_STANDIN_VERSION_H
#define LT_TESTS_STANDIN_VERSION_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if the environment sets another version. */
static inline bool standin_version(const char *library, int *major, int *minor)
{
    char name[16];
    const char *wish = getenv("LATHER_STANDIN_VERSION");
    return wish && sscanf(wish, "%15s %d.%d", name, major, minor) == 3 && !strcmp(name, library);
}

/* The same in place of a property: 0 the major version, 1 the minor one (libraryPropertyType), else what there is. */
static inline int standin_property(const char *library, int property, int known)
{
    int version[2];
    return property < 2 && standin_version(library, &version[0], &version[1]) ? version[property]
                                                                              : known;
}

#endif
