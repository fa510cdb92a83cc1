/** Status codes and error messages: every fallible function returns an lt_status. */
#ifndef LATHER_STATUS_H
#define LATHER_STATUS_H

#ifdef __cplusplus
#define LT_EXTERN      extern "C"
#define LT_EXTERN_DATA extern "C"
#else
#define LT_EXTERN
#define LT_EXTERN_DATA extern
#endif

/* Attribute of functions, and of objects, that the library exports. */
#define LT_API                 LT_EXTERN __attribute__((visibility("default")))
#define LT_API_DATA            LT_EXTERN_DATA __attribute__((visibility("default")))
#define LT_MUST_CHECK          __attribute__((warn_unused_result))
#define LT_PRINTF(text, first) __attribute__((format(printf, text, first)))
/* Marks a function that the next major version removes; advice: "use lt_x()" (docs/RELEASING.md). */
#define LT_DEPRECATED(advice) __attribute__((deprecated(advice)))

/** One row per status: source of the enum, the names and the help texts. */
#define LT_STATUS_LIST(X)                                          \
    X(OK, "success")                                               \
    X(E_NOMEM, "host or device memory is exhausted")               \
    X(E_ARG, "an argument is outside its documented range")        \
    X(E_SHAPE, "tensor shapes or dtypes do not fit together")      \
    X(E_IO, "the operating system refused a file operation")       \
    X(E_FORMAT, "a file or image is malformed")                    \
    X(E_UNSUPPORTED, "valid, but not in this backend or build")    \
    X(E_DEVICE, "the accelerator or its library reported a fault") \
    X(E_COMM, "another rank failed or disconnected")               \
    X(E_CANCELLED, "cancelled by another thread")                  \
    X(END, "not a failure: the sequence is finished")

typedef enum lt_status {
#define X(name, help) LT_##name,
    LT_STATUS_LIST(X)
#undef X
} lt_status;

/** Returns the message of the last failing call on this thread; "" if none has failed.
 *  Borrowed: valid until the next failing call on this thread. */
LT_API const char *lt_error_message(void);

/** Returns the enumerator's name: "LT_E_SHAPE". Never NULL. */
LT_API const char *lt_status_name(lt_status status);

/** Returns one sentence on what the status means. Never NULL. */
LT_API const char *lt_status_help(lt_status status);

/** Returns the library's version, "MAJOR.MINOR.PATCH". */
LT_API const char *lt_version(void);

#include "lather/detail/old_names.h"

#endif
