/* Kernels that race, and the same without: for test_cuda_races. */
#ifndef LT_TESTS_CUDA_RACES_H
#define LT_TESTS_CUDA_RACES_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct race_row {
    const char *name;
    const char *kernel; /* kernel named in a report */
    bool races;
    void (*run)(void);
} race_row;

enum { RACE_ROWS = 14 };
extern const race_row race_rows[RACE_ROWS];

#ifdef __cplusplus
}
#endif

#endif
