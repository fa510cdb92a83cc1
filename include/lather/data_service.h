/** Data sets whose samples other processes and machines read, decode and augment. */
#ifndef LATHER_DATA_SERVICE_H
#define LATHER_DATA_SERVICE_H

#include "lather/data.h"

/** Answers loaders. A request says all that its answer depends on (which data, the sample's index, the key of its
 *  random numbers, the transform), so nothing is kept from one to the next, it may be sent twice, and any service
 *  of the same data may answer it, with the same bytes as a loader makes itself. */
typedef struct lt_data_service lt_data_service;

typedef struct lt_data_service_config {
    const char *address;     /**< as in lt_service_config */
    const char *secret;      /**< likewise; NULL: as in lt_dataset_service() */
    int threads;             /**< samples at once; 0: as many as affinity mask and cgroup allow */
    const lt_dataset *train; /**< borrowed; NULL: nothing to train on */
    const lt_dataset *val;   /**< borrowed; NULL: nothing to evaluate */
} lt_data_service_config;

/** Owns: *out is yours. Errors: LT_E_ARG, LT_E_IO. */
LT_API LT_MUST_CHECK lt_status lt_data_service_open(lt_data_service **out,
                                                    const lt_data_service_config *config);
/** With the port that it got. Borrowed. */
LT_API const char *lt_data_service_address(const lt_data_service *service);
/** Samples that it made. */
LT_API int64_t lt_data_service_samples(const lt_data_service *service);
/** Waits for samples being made, whose augmentation it stops. Before the data sets. */
LT_API void lt_data_service_close(lt_data_service **service);

/**
 * The data set that the services at these addresses, with commas between, have: `service:ADDRESS[,ADDRESS]` of
 * lt_dataset_open(). Its samples are made there, each by the next service in turn; by another where one does not
 * answer; batches have the same bytes as on the services' own machines. Loaders wait for answers in their threads: as
 * many samples are asked for at once as a loader has threads. A loader's cache_bytes have no effect. secret NULL:
 * that of LATHER_JOB_TOKEN, or of the file that LATHER_JOB_TOKEN_FILE names; else none.
 *
 * Errors  LT_E_ARG (an address; the services have different data), LT_E_COMM (none answers), LT_E_FORMAT
 *         (a malformed response, or numbers above the trainer's limits)
 */
LT_API LT_MUST_CHECK lt_status lt_dataset_service(lt_dataset **out, const char *addresses,
                                                  const char *secret, bool train);

#endif
