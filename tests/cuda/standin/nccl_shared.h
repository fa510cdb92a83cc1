/* Inside of the stand-in for NCCL: memory that the ranks of one communicator share, and the work that
 * they do with it. Ranks are processes of one machine, or several in one. */
#ifndef LT_TESTS_STANDIN_NCCL_SHARED_H
#define LT_TESTS_STANDIN_NCCL_SHARED_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <string>
#include <vector>

namespace standin_nccl
{

/* Data goes through slots of SLOT bytes, two for each rank, and messages through pipes of two PIPE
 * bytes from each rank to each other. */
enum { MOST_RANKS = 16, SLOTS = 2, SLOT = 1 << 20, PIPE = 1 << 16 };

enum kind { ALLREDUCE, REDUCE_SCATTER, GATHER, REDUCE, BROADCAST, SEND, RECEIVE };

/* Arguments of a call that must agree on all ranks. */
struct call {
    int kind, dtype, op, root;
    uint64_t count; /* as in the call's arguments */
};

enum place { ABSENT, HERE, LEFT, ABORTED };

/* Written by its rank alone; counts only rise. */
struct rank_area {
    std::atomic<int> place;
    std::atomic<uint64_t> posted, consumed; /* pieces of collectives */
    call what[SLOTS];
    std::atomic<uint64_t> sent[MOST_RANKS], taken[MOST_RANKS]; /* pieces of messages to, from */
    std::atomic<uint64_t> splits;
    int color[SLOTS], key[SLOTS];
};

struct segment {
    std::atomic<int> attached;
    rank_area rank[MOST_RANKS];
};

/* One rank's end. Work that is queued or recorded keeps it. */
struct end {
    std::string name;
    int file = -1, rank = 0, size = 0;
    segment *shared = nullptr;
    uint64_t pieces = 0; /* pieces of collectives that this rank has completed */
    uint64_t splits = 0;
    std::atomic<bool> aborted{false}, closed{false};
    std::atomic<int> running{0};  /* threads in its work */
    std::atomic<int> captured{0}; /* graphs that hold its work */
    std::atomic<int> failure{ncclSuccess};
    std::mutex mutex; /* guards the fields below */
    std::string why;

    ~end();
    char *slot(int from, uint64_t piece) const;
    char *pipe(int from, int to, uint64_t piece) const;
    void fail(ncclResult_t code, const std::string &reason);
    /* Notes it if a rank has died; seldom looks, unless now is true. */
    void look_for_dead(bool now);
};

/* Meeting point of the ranks of this machine. */
std::string new_name();
void make_file(const std::string &name);
/* Until all are there. NULL, and *why, if they do not come. */
std::shared_ptr<end> attach(const std::string &name, int rank, int size, std::string *why);

struct operation {
    call what;
    const void *in;
    void *out;
};

/* Work of one group of calls on a stream; copied for each run. */
class work
{
  public:
    work(std::shared_ptr<end> e, std::vector<operation> ops, bool recorded);
    /* As far as it goes; true: done. */
    bool operator()();

  private:
    bool collective(const operation &o);
    bool post(const operation &o, uint64_t at, uint64_t length);
    bool fits(const operation &o);
    void take(const operation &o, uint64_t at, uint64_t length);
    bool messages();
    bool message(size_t i);
    bool step();

    std::shared_ptr<end> e;
    std::vector<operation> ops;
    std::shared_ptr<void> captured;
    size_t at = 0;               /* the collective that is done now */
    uint64_t offset = 0;         /* in its elements */
    bool posted = false;         /* this rank's piece of it */
    std::vector<uint64_t> moved; /* elements moved per message */
};

size_t bytes_of(int dtype);
/* out[i] = the terms' [i] in this order, combined; of 16-bit types in f32, rounded once. */
void reduce(void *out, const std::vector<const char *> &term, uint64_t count, int dtype, int op);

} /* namespace standin_nccl */

#endif
