/* zlib's functions that gzip.c calls, for builds without zlib: they read plain files only. */
#ifndef LT_DATA_NO_ZLIB_H
#define LT_DATA_NO_ZLIB_H

#include <stdio.h>

enum { Z_OK = 0, Z_ERRNO = -1 };
typedef FILE *gzFile;

static inline const char *zlibVersion(void)
{
    return ""; /* zlib itself returns its version */
}

static inline gzFile gzdopen(int fd, const char *mode)
{
    return fdopen(fd, mode);
}

/* Returns 0 for a gzip file. */
static inline int gzdirect(gzFile file)
{
    const int a = getc(file), b = getc(file);
    rewind(file);
    return a != 0x1F || b != 0x8B;
}

static inline int gzread(gzFile file, void *to, unsigned bytes)
{
    const size_t got = fread(to, 1, bytes, file);
    return ferror(file) ? -1 : (int)got;
}

static inline const char *gzerror(gzFile file, int *code)
{
    (void)file;
    *code = Z_ERRNO;
    return "read error";
}

static inline int gzgetc(gzFile file)
{
    return getc(file);
}

static inline int gzclose(gzFile file)
{
    return fclose(file);
}

#endif
