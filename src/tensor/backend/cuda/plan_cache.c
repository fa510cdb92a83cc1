/* Cache of execution plans. A file is named by the key's hash and has key, text and a hash of both, so that a
 * collision, another version, a truncated file or a flipped bit count as absent. */

#include "plan_cache.h"

#include "base/hash.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, BUCKETS = 256, MOST_TEXT = 64 << 20 };

static const char mark[] = "lather plan 1";

typedef struct entry {
    struct entry *next;
    void *plan;
    char key[];
} entry;

struct lt_plan_cache {
    entry *bucket[BUCKETS];
    lt_plan_free_fn *release;
    char folder[PATH / 2];
};

static uint64_t hash_key(const char *key)
{
    return lt_fnv1a_text(LT_FNV1A_BEGIN, key);
}

static void choose_folder(char *folder, size_t bytes)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    int length = 0;
    folder[0] = 0;
    if (cache && *cache == '/') /* the specification ignores relative ones */
        length = snprintf(folder, bytes, "%s/lather", cache);
    else if (user && *user == '/')
        length = snprintf(folder, bytes, "%s/.cache/lather", user);
    if (length < 0 || (size_t)length >= bytes)
        folder[0] = 0;
}

lt_status lt_plan_cache_new(lt_plan_cache **out, const char *folder, lt_plan_free_fn *release)
{
    lt_plan_cache *c = calloc(1, sizeof *c);
    if (!c)
        return lt_fail(LT_E_NOMEM, "plans: no memory for a cache");
    c->release = release;
    if (!folder)
        choose_folder(c->folder, sizeof c->folder);
    else if (strlen(folder) < sizeof c->folder)
        snprintf(c->folder, sizeof c->folder, "%s", folder);
    *out = c;
    return LT_OK;
}

void lt_plan_cache_free(lt_plan_cache **cache)
{
    lt_plan_cache *c = *cache;
    if (!c)
        return;
    for (int i = 0; i < BUCKETS; i++)
        while (c->bucket[i]) {
            entry *e = c->bucket[i];
            c->bucket[i] = e->next;
            c->release(e->plan);
            free(e);
        }
    free(c);
    *cache = NULL;
}

void *lt_plan_cache_find(const lt_plan_cache *cache, const char *key)
{
    for (const entry *e = cache->bucket[hash_key(key) % BUCKETS]; e; e = e->next)
        if (!strcmp(e->key, key))
            return e->plan;
    return NULL;
}

lt_status lt_plan_cache_add(lt_plan_cache *cache, const char *key, void *plan)
{
    const size_t bytes = strlen(key) + 1;
    entry **bucket = &cache->bucket[hash_key(key) % BUCKETS];
    entry *e = malloc(sizeof *e + bytes);
    if (!e) {
        cache->release(plan);
        return lt_fail(LT_E_NOMEM, "plans: no memory for a key of %zu bytes", bytes);
    }
    memcpy(e->key, key, bytes);
    e->plan = plan;
    e->next = *bucket;
    *bucket = e;
    return LT_OK;
}

const char *lt_plan_cache_folder(const lt_plan_cache *cache)
{
    return cache->folder;
}

static bool file_path(const lt_plan_cache *cache, const char *key, char path[PATH])
{
    snprintf(path, PATH, "%s/%016" PRIx64 ".plan", cache->folder, hash_key(key));
    return cache->folder[0] != 0;
}

/* Returns the file with a terminating NUL, from malloc(), or NULL. */
static char *read_file(const char *path, size_t *bytes)
{
    struct stat info;
    char *text = NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    if (!fstat(fileno(file), &info) && info.st_size > 0 && info.st_size <= MOST_TEXT)
        text = malloc((size_t)info.st_size + 1);
    if (text) {
        *bytes = fread(text, 1, (size_t)info.st_size, file);
        text[*bytes] = 0;
    }
    fclose(file);
    return text;
}

/* Returns the text within a file's bytes, or NULL if it is for another key or incomplete. */
static char *extract_text(char *bytes, size_t count, const char *key)
{
    size_t key_bytes = 0, text_bytes = 0;
    uint64_t sum = 0;
    int head = 0;
    char *line = strchr(bytes, '\n');
    if (!line
        || strncmp(bytes, mark, sizeof mark - 1) != 0
        /* NOLINTNEXTLINE(cert-err34-c): a wrong number is a wrong sum */
        || sscanf(bytes + sizeof mark - 1, " %zu %zu %" SCNx64 "%n", &key_bytes, &text_bytes, &sum,
                  &head)
               != 3
        || bytes + sizeof mark - 1 + head != line)
        return NULL;
    char *stored = line + 1;
    const size_t left = count - (size_t)(stored - bytes);
    /* Both are NUL-terminated, the text by the NUL after the file. */
    if (key_bytes != strlen(key) + 1 || left < key_bytes || left - key_bytes != text_bytes
        || memcmp(stored, key, key_bytes) != 0)
        return NULL;
    char *text = stored + key_bytes;
    return strlen(text) == text_bytes && lt_fnv1a_text(hash_key(key), text) == sum ? text : NULL;
}

char *lt_plan_cache_read(const lt_plan_cache *cache, const char *key)
{
    char path[PATH];
    size_t count = 0;
    if (!file_path(cache, key, path))
        return NULL;
    char *bytes = read_file(path, &count);
    if (!bytes)
        return NULL;
    char *text = extract_text(bytes, count, key);
    if (text)
        memmove(bytes, text, strlen(text) + 1);
    else
        free(bytes);
    return text ? bytes : NULL;
}

/* Creates the folder and its parents, with access for this user only. */
static bool make_folder(const char *path)
{
    char partial[PATH];
    snprintf(partial, sizeof partial, "%s", path);
    for (char *c = partial + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            if (mkdir(partial, S_IRWXU) && errno != EEXIST)
                return false;
            *c = '/';
        }
    return !mkdir(partial, S_IRWXU) || errno == EEXIST;
}

static bool write_all(FILE *file, const char *key, const char *text)
{
    const size_t key_bytes = strlen(key) + 1, text_bytes = strlen(text);
    fprintf(file, "%s %zu %zu %016" PRIx64 "\n", mark, key_bytes, text_bytes,
            lt_fnv1a_text(hash_key(key), text));
    return fwrite(key, 1, key_bytes, file) == key_bytes
           && fwrite(text, 1, text_bytes, file) == text_bytes && !fflush(file)
           && !fsync(fileno(file));
}

/* Writes a temporary file and renames it. */
static bool write_file(const char *path, const char *key, const char *text)
{
    char temp[PATH + 8];
    snprintf(temp, sizeof temp, "%s.XXXXXX", path);
    int fd = mkstemp(temp);
    if (fd < 0)
        return false;
    FILE *file = fdopen(fd, "wb");
    if (!file) {
        close(fd);
        unlink(temp);
        return false;
    }
    bool written = write_all(file, key, text);
    written = !fclose(file) && written;
    if (written && !rename(temp, path))
        return true;
    const int why = errno;
    unlink(temp);
    errno = why;
    return false;
}

bool lt_plan_cache_write(const lt_plan_cache *cache, const char *key, const char *text)
{
    char path[PATH];
    if (!file_path(cache, key, path))
        return false;
    if (make_folder(cache->folder) && write_file(path, key, text))
        return true;
    (void)lt_fail(LT_E_IO, "plans: %s: %s", path, strerror(errno));
    return false;
}
