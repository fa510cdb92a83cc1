/* The images on predict's command line: files, folders, standard input, and lines of a file. */

#include "train/classify/images.h"

#include "base/alloc.h"
#include "base/os.h"

#include "lather/ext/fail.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static lt_status add_path(image_list *p, const char *path)
{
    LT_TRY(LT_GROW(&p->path, &p->capacity, p->count + 1));
    p->path[p->count] = lt_strdup(path);
    if (!p->path[p->count])
        return LT_E_NOMEM;
    p->count++;
    return LT_OK;
}

static lt_status write_whole(int fd, const char *bytes, size_t count)
{
    for (size_t done = 0; done < count;) {
        ssize_t wrote = write(fd, bytes + done, count - done);
        if (wrote < 0 && errno != EINTR)
            return lt_fail(LT_E_IO, "-: %s", strerror(errno));
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return LT_OK;
}

/* Copies standard input into a file in memory: it may be a pipe, which the loader cannot read at offsets. */
static lt_status copy_stdin_to_memory(image_list *p)
{
    enum { BLOCK = 1 << 16, MOST = 1 << 28 }; /* bytes */
    char block[BLOCK];
    if (p->input[0])
        return lt_fail(LT_E_ARG, "-: standard input is used twice");
    int fd = lt_os_memory_file("input");
    if (fd < 0)
        return lt_fail(LT_E_IO, "-: %s", strerror(errno));
    snprintf(p->input, sizeof p->input, "/dev/fd/%d", fd);
    for (size_t all = 0;;) {
        ssize_t got = read(STDIN_FILENO, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return lt_fail(LT_E_IO, "-: %s", strerror(errno));
        if (got == 0)
            return add_path(p, p->input); /* the file remains open until the process ends */
        all += (size_t)got;
        if (all > MOST)
            return lt_fail(LT_E_FORMAT, "-: more than %d bytes", MOST);
        LT_TRY(write_whole(fd, block, (size_t)got));
    }
}

static lt_status read_lines(image_list *p, const char *name, FILE *file)
{
    char *line = NULL;
    size_t capacity = 0, before = p->count, number = 0;
    ssize_t bytes;
    lt_status st = LT_OK;
    while (!st && (bytes = getline(&line, &capacity, file)) >= 0) {
        number++;
        if (bytes > 0 && line[bytes - 1] == '\n')
            line[--bytes] = 0;
        if (strlen(line) != (size_t)bytes)
            st = lt_fail(LT_E_FORMAT, "%s: line %zu contains a NUL", name, number);
        else if (bytes)
            st = add_path(p, line);
    }
    if (!st && ferror(file))
        st = lt_fail(LT_E_IO, "%s: %s", name, strerror(errno));
    free(line);
    return !st && p->count == before ? lt_fail(LT_E_FORMAT, "%s: contains no path", name) : st;
}

/* Reads --files-from, which may be a pipe: <(find ...). */
static lt_status read_list(image_list *p, const char *name)
{
    bool input = !strcmp(name, "-");
    if (input && p->input[0])
        return lt_fail(LT_E_ARG, "--files-from -: standard input is already used as an image");
    FILE *file = input ? stdin : fopen(name, "r");
    if (!file)
        return lt_fail(LT_E_IO, "--files-from %s: %s", name, strerror(errno));
    lt_status st = read_lines(p, name, file);
    if (!input)
        fclose(file);
    return st;
}

lt_status lt_image_list_read(image_list *p, const lt_options *options, const char *files_from)
{
    size_t count = lt_options_positional_count(options);
    for (size_t i = 0; i < count; i++) {
        const char *name = lt_options_positional(options, i);
        LT_TRY(strcmp(name, "-") ? add_path(p, name) : copy_stdin_to_memory(p));
    }
    if (files_from)
        LT_TRY(read_list(p, files_from));
    return p->count ? LT_OK : lt_fail(LT_E_ARG, "no image: give files, folders, - or --files-from");
}

void lt_image_list_clear(image_list *p)
{
    lt_free_texts(p->path, p->count);
    *p = (image_list){0};
}
