/* A CUDA driver without a device: the functions that cuDNN calls to build plans whose kernels it compiles at run
 * time. Kernels are loaded but cannot be launched. A module must be machine code for compute capability 9.0. The
 * driver's functions are found by name, so no CUDA header is needed. */

#include <elf.h>
#include <string.h>

enum { CUDA_MACHINE = 190, CAPABILITY = 90 };
enum { SUCCESS = 0, STUB_LIBRARY = 34, INVALID_IMAGE = 200 }; /* CUresult */

/* Handles of libraries and kernels: any address except NULL. */
static char loaded;

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuGetErrorString(int error, const char **text);
int cuLibraryLoadData(void **library, const void *code);
int cuLibraryGetKernel(void **kernel, void *library, const char *name);
int cuLibraryUnload(void *library);

int cuInit(unsigned flags)
{
    (void)flags;
    return STUB_LIBRARY;
}

int cuDeviceGetCount(int *count)
{
    *count = 1; /* for none cuDNN loads nothing */
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text)
{
    *text = error ? "a driver without a device" : "no error";
    return SUCCESS;
}

/* The capability is in the flags' second byte, in older files in the first. */
static int is_for_device(const void *code)
{
    Elf64_Ehdr head;
    memcpy(&head, code, sizeof head);
    return memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && head.e_machine == CUDA_MACHINE
           && ((head.e_flags >> 8 & 0xff) == CAPABILITY || (head.e_flags & 0xff) == CAPABILITY);
}

/* Six arguments about options follow. */
int cuLibraryLoadData(void **library, const void *code)
{
    *library = &loaded;
    return is_for_device(code) ? SUCCESS : INVALID_IMAGE;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = &loaded;
    return SUCCESS;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return SUCCESS;
}

/* Looked for when cuDNN opens the driver, which is not one without them; not called. */
#define ABSENT(name)         \
    int name(void);          \
    int name(void)           \
    {                        \
        return STUB_LIBRARY; \
    }

ABSENT(cuCtxGetCurrent)
ABSENT(cuCtxGetDevice)
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuDeviceGet)
ABSENT(cuDeviceGetAttribute)
ABSENT(cuDevicePrimaryCtxRelease)
ABSENT(cuDevicePrimaryCtxReset)
ABSENT(cuDevicePrimaryCtxRetain)
ABSENT(cuDriverGetVersion)
ABSENT(cuFuncGetAttribute)
ABSENT(cuFuncSetAttribute)
ABSENT(cuGetErrorName)
ABSENT(cuKernelGetAttribute)
ABSENT(cuKernelGetFunction)
ABSENT(cuKernelSetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkAddData_v2)
ABSENT(cuLinkAddFile_v2)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkCreate_v2)
ABSENT(cuLinkDestroy)
ABSENT(cuMemcpyDtoH_v2)
ABSENT(cuModuleGetFunction)
ABSENT(cuModuleGetGlobal_v2)
ABSENT(cuModuleLoadData)
ABSENT(cuModuleLoadDataEx)
ABSENT(cuModuleLoadFatBinary)
ABSENT(cuModuleUnload)
ABSENT(cuOccupancyMaxActiveBlocksPerMultiprocessor)
ABSENT(cuOccupancyMaxPotentialClusterSize)
ABSENT(cuStreamGetCtx)
ABSENT(cuStreamSynchronize)
ABSENT(cuTensorMapEncodeIm2col)
ABSENT(cuTensorMapEncodeTiled)
