/** The data service: other processes or machines read, decode and augment samples. */
#ifndef LATHER_DATA_SERVICE_H
#define LATHER_DATA_SERVICE_H

#include "lather/data.h"

/** A server that makes samples for loaders. A request contains everything that its response depends on: the data
 *  set, the sample's index, the random key and the transform. So the server is stateless, requests can be sent
 *  again, and any service of the same data gives the bytes that a loader would make locally. */
typedef struct lt_data_service lt_data_service;

typedef struct lt_data_service_config {
    const char *address;     /**< address to listen on, as in lt_service_config */
    const char *secret;      /**< shared secret, as in lt_service_config; NULL: the environment's */
    int threads;             /**< worker threads; 0: the CPUs in affinity mask and cgroup */
    const lt_dataset *train; /**< borrowed training data; NULL if not served */
    const lt_dataset *val;   /**< borrowed validation data; NULL if not served */
} lt_data_service_config;

/** Starts the service. Owns: *out is the caller's. Errors: LT_E_ARG, LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_data_service_open(lt_data_service **out,
                                                    const lt_data_service_config *config);
/** Returns the borrowed address, including the port. */
LT_API const char *lt_data_service_address(const lt_data_service *service);
/** Returns the number of samples made so far. */
LT_API int64_t lt_data_service_samples(const lt_data_service *service);
/** Cancels the samples in progress, waits for them and stops. Call before freeing the data sets. */
LT_API void lt_data_service_close(lt_data_service **service);

/**
 * Opens the data set of one or more services (`service:ADDRESS[,ADDRESS]` in lt_dataset_open()). The services make
 * its samples in turn and replace one that does not respond; batches have the same bytes as made locally. Each of a
 * loader's threads has one request in flight; its cache_bytes has no effect. secret NULL: the content of
 * LATHER_JOB_TOKEN or of the file LATHER_JOB_TOKEN_FILE, if set.
 *
 * Errors  LT_E_ARG (an invalid address; services with different data), LT_E_COMM (no service responds), LT_E_FORMAT
 *         (a malformed response, or numbers above the trainer's limits)
 */
LT_API LT_MUST_CHECK lt_status lt_dataset_service(lt_dataset **out, const char *addresses,
                                                  const char *secret, bool train);

#endif
