/* The context's handles of cuDNN, cuBLAS and cuSOLVER, and the libraries' versions. */
#ifndef LT_CUDA_LIBRARIES_H
#define LT_CUDA_LIBRARIES_H

#include "cuda.h"

lt_status lt_cuda_libraries_open(lt_cuda *c);
void lt_cuda_libraries_close(lt_cuda *c);
const char *lt_cuda_library_text(lt_cuda_library library, int code);

/* Checks the libraries found at run time: lt_cuda_check_version(). */
lt_status lt_cuda_libraries_check(void);
/* Returns "cuda: the CUDA runtime 13.0, cuDNN 9.19, ...", valid until the next call. */
const char *lt_cuda_libraries_info(void);

#endif
