/* Walks a folder with fts(3). */

#include "data/files/paths.h"

#include "base/alloc.h"
#include "data/files/files.h"

#include <errno.h>
#include <fts.h>
#include <string.h>

lt_status lt_paths_add(lt_paths *list, char *path)
{
    const lt_status st = path ? LT_GROW(&list->path, &list->capacity, list->count + 1) : LT_E_NOMEM;
    if (st)
        lt_free(path);
    else
        list->path[list->count++] = path;
    return st;
}

static lt_status add_path_copy(lt_paths *list, const char *path)
{
    return lt_paths_add(list, lt_strdup(path));
}

static int compare_bytewise(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void lt_paths_sort(lt_paths *list, size_t begin)
{
    if (list->count > begin)
        qsort(list->path + begin, list->count - begin, sizeof *list->path, compare_bytewise);
}

/* unknown: also accepts entries whose type is unknown (FTS_NS: stat() failed). */
static bool is_file(const FTSENT *e, bool unknown)
{
    return e->fts_info == FTS_F || (unknown && e->fts_info == FTS_NS)
           || (e->fts_info == FTS_SL && !lt_is_folder(e->fts_path));
}

static lt_status add_files_of_tree(lt_paths *list, FTS *tree, const char *folder,
                                   const lt_paths_rule *rule)
{
    lt_status st = LT_OK;
    FTSENT *e;
    while (!st && (errno = 0, e = fts_read(tree))) {
        const bool unreadable = e->fts_info == FTS_DNR || e->fts_info == FTS_ERR;
        if (e->fts_level > 0 && rule->is_hidden(e->fts_name))
            (void)fts_set(tree, e, FTS_SKIP);
        else if (unreadable && !rule->keep_empty)
            st = lt_fail(LT_E_IO, "%s: %s", e->fts_path, strerror(e->fts_errno));
        else if (unreadable || (is_file(e, rule->keep_empty) && rule->is_wanted(e->fts_name)))
            st = add_path_copy(list, e->fts_path);
    }
    return st || !errno
               ? st
               : lt_fail(LT_E_IO, "%s: cannot read a folder in it: %s", folder, strerror(errno));
}

lt_status lt_paths_add_below(lt_paths *list, const char *folder, const lt_paths_rule *rule)
{
    size_t begin = list->count, bytes = strlen(folder);
    char *root = lt_strdup(folder); /* fts_open() needs a non-const path */
    if (!root)
        return LT_E_NOMEM;
    while (bytes > 1 && root[bytes - 1] == '/')
        root[--bytes] = 0;
    char *const roots[] = {root, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    lt_status st = tree ? add_files_of_tree(list, tree, root, rule) : LT_E_NOMEM;
    if (tree)
        fts_close(tree);
    if (!st && list->count == begin && rule->keep_empty)
        st = add_path_copy(list, root);
    lt_paths_sort(list, begin);
    lt_free(root);
    return st;
}
