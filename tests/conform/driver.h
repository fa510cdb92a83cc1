/* Why a CUDA device does not open. */
#ifndef LT_TESTS_CONFORM_DRIVER_H
#define LT_TESTS_CONFORM_DRIVER_H

/* Prints whether libcuda.so.1 exists, and the result of its cuInit(), by number and name. */
void say_what_the_driver_says(void);

#endif
