/* Internal declarations of the stand-in's runtime. One lock guards all state. */
#ifndef LT_TESTS_STANDIN_DEVICE_H
#define LT_TESTS_STANDIN_DEVICE_H

#include "standin.h"

#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace standin
{

enum { MOST_DEVICES = 8 };

/* Settings from the environment, read once. */
struct wishes {
    enum when { NOW, LATE, SHUFFLED, MAIN_FIRST, MAIN_LAST } order;
    bool protect;     /* only work may touch device memory: a page fault else */
    unsigned seed;    /* seed of the shuffled order */
    size_t memory;    /* bytes of a device */
    int devices;      /* how many; < 0: no driver */
    bool old_driver;  /* a driver of the previous major version */
    long fault;       /* the n-th work that runs is a fault; 0: none */
    long dropped;     /* the n-th wait of a stream for an event is dropped; -n: all from it on */
    long hasty;       /* the same for waits of the host, for streams and events */
    std::string fail; /* the call of that name fails ... */
    long fails_at;    /* ... when called the n-th time; -n: from then on */
    bool no_memory;   /* for want of memory on the device, where it is a library's */
    long log;         /* 1: counts at the end, to stderr; 2: each wait, and who called */
    long dry; /* 1: libraries compute nothing: their results are 0, or 1 where 0 would be singular;
                 2: kernels neither, and memory is never written: all of it is 0 */
    std::string works;      /* a file: a line for each work that ran, in order */
    bool eager;             /* bytes of kernels outside of graphs are counted too */
    bool first_of_equal;    /* trace only the first of equal matrices in a batch (launch.cpp) */
    long lie[STANDIN_LIES]; /* 0: no lie */
    double norm;            /* norm that a dry run reads back; 0: the computed one */
};
const wishes &wished();

/* For the log and for tests of the stand-in itself. */
struct counters {
    long works, nodes, copies, waits, host_waits, drops, launches, captures;
};
extern counters counted;

/* Traffic of the running work: bytes of device memory, arithmetic, and sequential rows of a triangular solve; of a
 * kernel the mangled types of its launch. */
struct traffic {
    uint64_t read, written;
    double flops;
    int64_t rows;
    const char *types;
};
extern traffic moved;

/* Returns true if the running work belongs to a graph. */
extern bool in_graph;

/* Number of norms that the last norm kernel computed. */
extern size_t norms;

/* Begins and ends the trace of a kernel's accesses; NULL where kernels are not built for that. */
extern void (*tracer)(bool begin);
/* Returns true if the page is device memory. */
bool is_device_page(uintptr_t address);
/* Pages became the device's, or are no more. */
extern void (*pages_changed)(void);

/* Adds the name of a call or kernel to LATHER_STANDIN_CALLS. */
void note(const char *name);

/* A line of the file of works. */
void log_work(const char *what);

extern std::recursive_mutex everything;
typedef std::lock_guard<std::recursive_mutex> locked;

/* A place in a stream, which an event has when it is recorded. */
struct mark {
    bool passed = false;
    std::chrono::steady_clock::time_point when;
};

typedef std::function<bool()> work_fn; /* false: not done yet, again later */

struct node {
    work_fn run;
    const char *what;
    std::vector<int> after; /* nodes before this one */
};

/* One launch of a graph: which nodes are done. */
struct running {
    std::vector<node> nodes;
    std::vector<bool> done;
    size_t left;
};

struct task {
    enum kind { WORK, RECORD, WAIT, GRAPH } kind;
    work_fn run;
    const char *what;
    std::shared_ptr<mark> place;
    std::shared_ptr<running> graph;
};

struct capture {
    std::vector<node> nodes;
    CUstream_st *origin;
    std::thread::id thread;
    bool invalid = false;
    bool ended = false;
};

/* memory.cpp */
enum memory_kind { PAGEABLE, DEVICE, PINNED };
memory_kind kind_of(const void *p);
void open_memory();  /* for work ... */
void close_memory(); /* ... and no more */
void check_span(const void *p, size_t bytes, memory_kind wanted, const char *what);

/* queue.cpp */
void add(CUstream_st *stream, task t);
void finish(CUstream_st *stream);                 /* runs all of it */
void finish(const std::shared_ptr<mark> &place);  /* until it is passed */
void finish_device(int device);                   /* < 0: all */
bool advance(const std::shared_ptr<mark> &place); /* one task towards it; whether it is passed */
bool advance(CUstream_st *stream);                /* the same for its end */
void all_streams(const std::function<void(CUstream_st *)> &f);

/* capture.cpp */
capture *capture_of_thread();
void record_node(CUstream_st *stream, work_fn run, const char *what);

/* runtime.cpp: every function of the runtime begins with entered() and returns by result(). */
cudaError_t entered(const char *name);
cudaError_t result(cudaError_t code);
cudaError_t unsafe_in_capture(const char *name);
bool drops(long *waits, long which); /* counts a wait; whether it is the one to drop */
int current_device();
void make_sticky(int device, cudaError_t code);
cudaError_t sticky(int device);

} /* namespace standin */

/* CUDA's own tags. */
struct CUstream_st {
    int device;
    bool main; /* the device's first of the highest priority */
    bool gone; /* destroyed, with work left */
    std::deque<standin::task> tasks;
    std::shared_ptr<standin::capture> capture; /* NULL: none */
    std::set<int> last;                        /* nodes of it that the next one follows */
};

struct CUevent_st {
    int device;
    bool timed;
    std::shared_ptr<standin::mark> place;      /* position of the last record, or NULL */
    std::shared_ptr<standin::capture> capture; /* it was recorded there */
    std::set<int> last;
};

struct CUgraph_st {
    std::vector<standin::node> nodes;
};

struct CUgraphExec_st {
    std::vector<standin::node> nodes;
};

#endif
