/* A folder of images and one for copies of them. */
#ifndef LT_TESTS_CACHE_PLACE_H
#define LT_TESTS_CACHE_PLACE_H

#include "data/cache/disk_cache.h"
#include "images.h"
#include "near.h"

#include "lather/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int warnings;

static inline void count_warnings(void *context, lt_log_level level, const char *area,
                                  const char *text)
{
    (void)context;
    (void)area;
    if (level == LT_LOG_WARN && strstr(text, "going on without it"))
        warnings++;
}

enum { PLENTY = 1 << 30 }; /* bytes */
typedef struct place {
    char *root, *near; /* of data/, and the folder of copies */
} place;

static inline place open_place(void)
{
    char *images = make_image_folder(), *line = NULL;
    place p = {.root = make_folder()};
    if (asprintf(&line, "mv '%s' data", images) < 0)
        abort();
    run_in(p.root, line);
    free(line);
    free(images);
    p.near = below(p.root, "near");
    return p;
}

static inline void close_place(place *p)
{
    free(p->near);
    remove_folder(p->root);
}

static inline lt_disk_cache *open_store(const place *p, size_t shards)
{
    lt_disk_cache *s = NULL;
    assert_ok(lt_disk_cache_new(&s, p->near, shards));
    lt_disk_cache_limit(s, PLENTY);
    return s;
}

/* Reads data/class0/00.jpg; whether it came from a copy. The bytes must be those of the file. */
static inline bool read_one(const place *p, lt_disk_cache *s)
{
    char *path = below(p->root, "data/class0/00.jpg");
    lt_record a = {0}, b = {0};
    lt_disk_cache_counts before = lt_disk_cache_statistics(s);
    assert_ok(lt_disk_cache_read(s, path, &a));
    assert_ok(lt_disk_cache_read(NULL, path, &b));
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.bytes, b.bytes, a.size);
    lt_disk_cache_counts after = lt_disk_cache_statistics(s);
    assert_int_equal(after.hits + after.misses, before.hits + before.misses + 1);
    lt_free(a.bytes);
    lt_free(b.bytes);
    free(path);
    return after.hits > before.hits;
}

#endif
