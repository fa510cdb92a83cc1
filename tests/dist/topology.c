/* Topology: nodes and their groups, on ranks that are threads with given boot ids and host names. */

#include "dist/topology.h"

#include "base/alloc.h"
#include "case_ranks.h"
#include "dist/consensus.h"

#include "lather/ext/fail.h"

#include <string.h>

/* Boot ids and host names, or ranks per node, and the expected nodes. Strings have a character per rank. */
typedef struct layout {
    const char *name;
    int ranks;
    const char *boot_id, *host; /* see text_of() */
    int told; /* ranks per node, if given instead of boot ids and host names; else 0 */
    int count, ranks_per_node;
    bool contiguous;
    const char *of, *local; /* digits */
} layout;

static const layout layouts[] = {
    {"equal host names with two boot ids are two nodes", 2, "ab", "xx", 0, 2, 1, true, "01", "00"},
    {"equal boot id and host name are one node", 3, "aaa", "xxx", 0, 1, 3, true, "000", "012"},
    {"two host names with one boot id", 4, "aaaa", "xxyy", 0, 2, 2, true, "0011", "0101"},
    {"boot id and host name are not concatenated", 2, "PQ", "RS", 0, 2, 1, true, "01", "00"},
    {"nodes of three ranks and one are uneven", 4, "aaab", "xxxx", 0, 2, 0, true, "0001", "0120"},
    {"uneven nodes between even ones", 5, "aaaaa", "ppqrr", 0, 3, 0, true, "00122", "01001"},
    {"round-robin ranks are not contiguous", 4, "abab", "xxxx", 0, 2, 2, false, "0101", "0011"},
    {"an interrupted node is not contiguous", 3, "aba", "xxx", 0, 2, 0, false, "010", "001"},
    {"nodes are numbered by their lowest rank", 4, "zzaa", "xxxx", 0, 2, 2, true, "0011", "0101"},
    {"a single rank is a node", 1, "a", "x", 0, 1, 1, true, "0", "0"},
    {"six ranks, two per node", 6, NULL, NULL, 2, 3, 2, true, "001122", "010101"},
    {"six ranks, three per node", 6, NULL, NULL, 3, 2, 3, true, "000111", "012012"},
    {"four ranks, one per node", 4, NULL, NULL, 1, 4, 1, true, "0123", "0000"},
    {"four ranks, four per node", 4, NULL, NULL, 4, 1, 4, true, "0000", "0123"},
};

/* Texts differ in the last character, except that those of P and R, and of Q and S, give the same concatenation. */
static const char *text_of(char c, char out[32])
{
    const char *const special[] = {"ab", "a", "c", "bc"};
    if (c >= 'P' && c <= 'S')
        return special[c - 'P'];
    snprintf(out, 32, "node-0123456789-0123456789-%c", c);
    return out;
}

static const layout *current; /* layout of the running test */

static bool ok(rank_case *c, lt_status st)
{
    return case_ok(c, st, "call");
}

static bool equal(rank_case *c, const char *what, int got, int want)
{
    return got == want
           || case_fails(c, "rank %d: %s is %d, want %d", lt_comm_rank(c->comm), what, got, want);
}

static bool open_nodes(rank_case *c, lt_nodes *n)
{
    const layout *l = current;
    char boot_id[32], host[32];
    if (l->told)
        return ok(c, lt_comm_nodes(n, c->comm, l->told));
    const int rank = lt_comm_rank(c->comm);
    return ok(c, lt_comm_nodes_on_host(n, c->comm, text_of(l->boot_id[rank], boot_id),
                                       text_of(l->host[rank], host)));
}

static int locals_of(const layout *l, int node)
{
    int found = 0;
    for (int r = 0; r < l->ranks; r++)
        found += l->of[r] - '0' == node;
    return found;
}

static bool numbers(rank_case *c, const lt_nodes *n)
{
    const layout *l = current;
    const int rank = lt_comm_rank(c->comm);
    bool good = equal(c, "count", n->count, l->count)
                && equal(c, "ranks_per_node", n->ranks_per_node, l->ranks_per_node)
                && equal(c, "contiguous", n->contiguous, l->contiguous)
                && equal(c, "index", n->index, l->of[rank] - '0' + c->spoil)
                && equal(c, "local", n->local, l->local[rank] - '0')
                && equal(c, "locals", n->locals, locals_of(l, l->of[rank] - '0'));
    for (int r = 0; r < l->ranks; r++)
        good = good && equal(c, "of", n->of[r], l->of[r] - '0');
    return good;
}

/* Checks that the group has the ranks with this rank's number, in order. */
static bool group_is(rank_case *c, lt_comm *group, const char *number)
{
    const layout *l = current;
    const int32_t rank = lt_comm_rank(c->comm);
    int32_t member[MOST_RANKS];
    int64_t bytes[MOST_RANKS];
    int size = 0;
    for (int i = 0; i < MOST_RANKS; i++)
        bytes[i] = sizeof rank;
    if (!ok(c, lt_comm_allgather_host(group, &rank, bytes, member)))
        return false;
    for (int r = 0; r < l->ranks; r++)
        if (number[r] == number[rank] && !equal(c, "a member", member[size++], r))
            return false;
    return equal(c, "the group's size", lt_comm_size(group), size);
}

static bool groups(rank_case *c, const lt_nodes *n)
{
    lt_comm *node = NULL, *peers = NULL;
    bool good = ok(c, lt_nodes_open_node(n, c->comm, &node))
                && ok(c, lt_nodes_open_peers(n, c->comm, &peers)) && group_is(c, node, current->of)
                && group_is(c, peers, current->local)
                && equal(c, "rank in the node", lt_comm_rank(node), n->local);
    lt_comm_close(&peers);
    lt_comm_close(&node);
    return good;
}

static bool layout_holds(rank_case *c)
{
    lt_nodes n = {0};
    bool good = open_nodes(c, &n) && numbers(c, &n) && groups(c, &n);
    lt_nodes_clear(&n);
    return good && equal(c, "a cleared struct", n.of || n.count, 0);
}

static void run_layout(void **state)
{
    current = *state;
    expect_cases(current->ranks, layout_holds);
}

/* --- Other tests --- */

static void reject_wrong(void **state)
{
    char why[512];
    (void)state;
    current = &layouts[1];
    assert_int_equal(play_cases(3, layout_holds, true, why, sizeof why), 3);
}

static bool found_is_one_node(rank_case *c)
{
    lt_nodes n = {0};
    bool good = ok(c, lt_comm_nodes(&n, c->comm, 0)) && equal(c, "count", n.count, 1)
                && equal(c, "locals", n.locals, 3)
                && equal(c, "local", n.local, lt_comm_rank(c->comm));
    lt_nodes_clear(&n);
    return good;
}

static void threads_are_one_node(void **state)
{
    (void)state;
    expect_cases(3, found_is_one_node);
}

/* Checks that lt_comm_nodes() fails with these words and leaves *out unchanged. */
static bool told_fails(rank_case *c, int told, const char *part)
{
    lt_nodes n = {.count = 77};
    const lt_status st = lt_comm_nodes(&n, c->comm, told);
    if (!equal(c, "status", (int)st, (int)LT_E_ARG) || !equal(c, "count", n.count, 77))
        return false;
    return strstr(lt_error_message(), part)
           || case_fails(c, "message '%.200s'", lt_error_message());
}

static bool not_divided(rank_case *c)
{
    return told_fails(c, 3, "8 ranks are not a multiple of 3 ranks per node")
           && told_fails(c, 16, "8 ranks are not a multiple of 16 ranks per node")
           && told_fails(c, -2, "-2 ranks per node");
}

static void both_numbers_are_named(void **state)
{
    (void)state;
    expect_cases(8, not_divided);
}

static bool told_apart(rank_case *c)
{
    return told_fails(c, lt_comm_rank(c->comm) == 2 ? 4 : 2,
                      "the number of ranks per node is 2 on rank 0, 4 on rank 2");
}

static void ranks_must_agree(void **state)
{
    (void)state;
    expect_cases(4, told_apart);
}

/* Groups within groups agree on the same failure, whatever its text begins with. */
static bool agree_twice(rank_case *c)
{
    const int rank = lt_comm_rank(c->comm);
    for (int k = 1; k < 3; k++) {
        lt_status st = rank == k ? lt_fail(LT_E_FORMAT, "rank 9: no model %d", k) : LT_OK;
        char want[64];
        snprintf(want, sizeof want, "rank %d: rank 9: no model %d", k, k);
        for (int i = 0; i < 3; i++)
            st = lt_comm_agree_on_status(c->comm, st);
        if (st != LT_E_FORMAT || strcmp(lt_error_message(), want) != 0)
            return case_fails(c, "message '%.200s'", lt_error_message());
    }
    return true;
}

static void a_failed_rank_is_named_once(void **state)
{
    (void)state;
    expect_cases(4, agree_twice);
}

static void alone(void **state)
{
    lt_device *device;
    lt_comm *comm;
    (void)state;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_comm_open(&comm, "self", device));
    for (int told = 0; told < 2; told++) {
        lt_nodes n = {0};
        assert_ok(lt_comm_nodes(&n, comm, told));
        assert_int_equal(n.count * n.locals * n.ranks_per_node, 1);
        assert_true(n.contiguous);
        lt_nodes_clear(&n);
    }
    lt_comm_close(&comm);
    lt_device_close(&device);
}

/* Each allocation fails in turn, until all succeed. */
static void no_memory(void **state)
{
    lt_device *device;
    lt_comm *comm;
    (void)state;
    assert_ok(lt_device_open(&device, "ref", NULL));
    assert_ok(lt_comm_open(&comm, "self", device));
    lt_status st = LT_E_NOMEM;
    int failed = 0;
    for (; st; failed++) {
        lt_nodes n = {.count = 77};
        lt_alloc_fail_at(failed + 1);
        st = lt_comm_nodes(&n, comm, 0);
        lt_alloc_fail_at(0);
        assert_int_equal(st, st ? LT_E_NOMEM : LT_OK);
        assert_int_equal(n.count, st ? 77 : 1);
        lt_nodes_clear(&n);
    }
    assert_true(failed > 3);
    lt_comm_close(&comm);
    lt_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest rest[] = {
        {"a wrong node is found", reject_wrong, NULL, NULL, NULL},
        {"threads of a process are one node", threads_are_one_node, NULL, NULL, NULL},
        {"ranks per node that do not divide the ranks are rejected", both_numbers_are_named, NULL,
         NULL, NULL},
        {"different ranks per node are named", ranks_must_agree, NULL, NULL, NULL},
        {"a failed rank is named once", a_failed_rank_is_named_once, NULL, NULL, NULL},
        {"the communicator of a single rank is a node", alone, NULL, NULL, NULL},
        {"failed allocations leave the result unchanged", no_memory, NULL, NULL, NULL},
    };
    struct CMUnitTest tests[COUNT_OF(layouts) + COUNT_OF(rest)];
    for (size_t i = 0; i < COUNT_OF(layouts); i++)
        tests[i] = (struct CMUnitTest){.name = layouts[i].name,
                                       .test_func = run_layout,
                                       .initial_state = (void *)(uintptr_t)&layouts[i]};
    memcpy(tests + COUNT_OF(layouts), rest, sizeof rest);
    return _cmocka_run_group_tests("topology", tests, COUNT_OF(tests), NULL, NULL);
}
