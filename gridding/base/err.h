/* err.h: error codes and messages.
 *
 * A function that can fail returns 0, or a negative code of the table below after storing one sentence for a person in
 * the calling thread's error slot: what was wrong, where, what was expected, what to do. The function that detects the
 * failure writes the sentence; callers return the code unchanged.
 *
 * The table is the only list of failures in the project: the code, its stable kebab-case name (part of the HTTP API),
 * its HTTP status, and its title.
 */
#ifndef MRIRECON_ERR_H
#define MRIRECON_ERR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ERR_TABLE(X)                                                                                            \
    /* the machine */                                                                                           \
    X(INTERNAL, 500, "internal", "Internal error")                                                              \
    X(NO_MEMORY, 503, "out-of-memory", "Not enough memory")                                                     \
    X(NO_DESCRIPTORS, 503, "out-of-descriptors", "Not enough file descriptors")                                 \
    X(GPU_OOM, 503, "gpu-oom", "Not enough device memory")                                                      \
    X(DEVICE, 503, "device-failed", "The compute device failed")                                                \
    X(NO_DEVICE, 503, "no-device", "No such compute device")                                                    \
    X(IO, 500, "io-error", "Reading or writing failed")                                                         \
    X(SPOOL_FULL, 507, "spool-full", "The spool is full")                                                       \
    X(STORE, 500, "store-failed", "The job store failed")                                                       \
    X(WORKER_DIED, 500, "worker-died", "The worker process died")                                               \
    X(TIMEOUT, 500, "time-limit", "The time limit was reached")                                                 \
    X(CANCELED, 409, "canceled", "The job was canceled")                                                        \
    X(DEADLINE, 504, "deadline-passed", "The deadline passed before the job began")                             \
    X(NOT_DONE, 504, "not-done", "The job is not done yet")                                                     \
    /* the request */                                                                                           \
    X(BAD_REQUEST, 400, "bad-request", "Malformed request")                                                     \
    X(UNKNOWN_KIND, 400, "unknown-kind", "Unknown job kind")                                                    \
    X(UNKNOWN_PARAMETER, 400, "unknown-parameter", "Unknown parameter")                                         \
    X(BAD_PARAMETER, 400, "bad-parameter", "Parameter out of range")                                            \
    X(UNAUTHORIZED, 401, "unauthorized", "A token is needed")                                                   \
    X(FORBIDDEN, 403, "forbidden", "The token does not allow this")                                             \
    X(NOT_FOUND, 404, "not-found", "Not found")                                                                 \
    X(MISDIRECTED, 421, "misdirected", "Another host is meant")                                                 \
    X(METHOD_NOT_ALLOWED, 405, "method-not-allowed", "Method not allowed")                                      \
    X(NOT_ACCEPTABLE, 406, "not-acceptable", "No such representation")                                          \
    X(CONFLICT, 409, "conflict", "The job is not in a state that allows this")                                  \
    X(LENGTH_REQUIRED, 411, "length-required", "Content-Length required")                                       \
    X(PRECONDITION_FAILED, 412, "precondition-failed", "The result has changed")                                \
    X(TOO_LARGE, 413, "body-too-large", "The body is too large")                                                \
    X(URI_TOO_LONG, 414, "uri-too-long", "The request's path and query are too long")                           \
    X(HEADERS_TOO_LARGE, 431, "headers-too-large", "The request's headers are too large")                       \
    X(RANGE, 416, "range-not-satisfiable", "The range is outside the result")                                   \
    X(KEY_IN_USE, 409, "idempotency-key-in-use", "A request with this key is in progress")                      \
    X(KEY_REUSED, 422, "idempotency-key-reused", "The key was used for another request")                        \
    X(SCAN_GONE, 409, "scan-not-kept", "The scan was not kept")                                                 \
    X(QUOTA, 429, "client-quota", "The client has reached its quota")                                           \
    X(QUEUE_FULL, 503, "queue-full", "The queue is full")                                                       \
    X(CONNECTIONS, 503, "too-many-connections", "Too many connections")                                         \
    X(DRAINING, 503, "draining", "The service is stopping")                                                     \
    X(EMPTY_BODY, 400, "empty-body", "The body is empty")                                                       \
    X(BODY_INCOMPLETE, 400, "body-incomplete", "The body ended early")                                          \
    X(DIGEST, 400, "digest-mismatch", "The body does not match its digest")                                     \
    X(UPLOAD_OFFSET, 409, "upload-offset", "Wrong upload offset")                                               \
    X(UPLOAD_LOCKED, 423, "upload-locked", "Another request is writing to this upload")                         \
    X(UPLOAD_CHECKSUM, 460, "upload-checksum", "The bytes do not match their checksum")                         \
    X(TUS_VERSION, 412, "tus-version", "Unsupported version of tus")                                            \
    /* the file */                                                                                              \
    X(UNKNOWN_FORMAT, 415, "unknown-format", "Unsupported file format")                                         \
    X(MALFORMED_FILE, 422, "malformed-file", "The file is damaged or violates its format")                      \
    X(TRUNCATED, 422, "truncated-file", "The file ends early")                                                  \
    X(HOSTILE_FILE, 422, "hostile-file", "The file contains something that no scan needs")                      \
    X(DECODER_DIED, 422, "decoder-died", "The decoder crashed while reading the file")                          \
    X(LIMIT, 422, "limit-exceeded", "The file exceeds a limit of this service")                                 \
    X(HEADER_INVALID, 422, "header-invalid", "The ISMRMRD header is invalid")                                   \
    /* the scan */                                                                                              \
    X(NO_IMAGE_DATA, 422, "no-image-data", "The scan contains no image data")                                   \
    X(ENCODING_INVALID, 422, "encoding-invalid", "An acquisition does not match its encoding")                  \
    X(TRAJ_MISSING, 422, "trajectory-missing", "The scan has no trajectory")                                    \
    X(TRAJ_RANGE, 422, "trajectory-out-of-range", "The trajectory exceeds the encoded k-space")                 \
    X(TRAJ_NONFINITE, 422, "trajectory-nonfinite", "The trajectory is not finite")                              \
    X(TRAJ_AMBIGUOUS, 422, "trajectory-scaling-ambiguous", "The unit of the trajectory is ambiguous")           \
    X(TRAJ_DIMENSIONS, 422, "trajectory-dimensions", "The trajectory does not match the encoding's dimensions") \
    X(DCF_AMBIGUOUS, 422, "dcf-ambiguous", "The density weights are ambiguous")                                 \
    X(DCF_MISSING, 422, "dcf-missing", "The scan contains no density weights")                                  \
    X(DCF_INVALID, 422, "dcf-invalid", "The density weights are unusable")                                      \
    X(DATA_NONFINITE, 422, "data-nonfinite", "The k-space data are not finite")                                 \
    X(COILS_DIFFER, 422, "coils-differ", "The number of coils changes within an image")                         \
    X(DIVERGED, 422, "diverged", "The iteration diverged")                                                      \
    X(RESULT_TOO_LARGE, 422, "result-too-large", "The result is too large")                                     \
    X(NOISE_MISSING, 422, "noise-dependency-missing", "The noise data named by the scan are missing")

#define ERR_ENUM(name, status, text, title) ERR_##name##_INDEX,
enum err_index { ERR_OK_INDEX, ERR_TABLE(ERR_ENUM) ERR_COUNT };
#undef ERR_ENUM
#define ERR_ENUM(name, status, text, title) ERR_##name = -(int)ERR_##name##_INDEX,
enum err_code { ERR_TABLE(ERR_ENUM) ERR_NONE = 0 };
#undef ERR_ENUM

/* One failure. Numbers that do not apply are -1. */
struct err {
    int code;            /* 0 or an enum err_code */
    int64_t acquisition; /* index of the acquisition in the file, from 0 */
    int64_t required;    /* bytes */
    int64_t available;   /* bytes */
    char text[768];      /* one or two sentences: one line of UTF-8 without control and formatting characters */
};

#if defined(__GNUC__)
#define ERR_PRINTF(f, a) __attribute__((format(printf, f, a), cold))
#else
#define ERR_PRINTF(f, a)
#endif

/* Record a failure in the calling thread's slot, replacing an earlier one, and return `code`. Here and below, bytes
 * that are not printable text become "?", because sentences may quote untrusted input. */
int err_set(int code, const char *format, ...) ERR_PRINTF(2, 3);

/* The same with numbers for programs: the acquisition at fault, or the bytes required and available. */
int err_set_acquisition(int code, int64_t acquisition, const char *format, ...) ERR_PRINTF(3, 4);
int err_set_bytes(int code, int64_t required, int64_t available, const char *format, ...) ERR_PRINTF(4, 5);

/* ERR_NO_MEMORY, "Not enough memory for a plan.": the only wording for an allocation that failed. `what`, a format,
 * names the purpose of the memory ("a plan", "%zu samples"), without a full stop; `required`: its bytes. */
int err_no_memory(const char *what, ...) ERR_PRINTF(1, 2);
int err_no_memory_bytes(size_t required, const char *what, ...) ERR_PRINTF(2, 3);

/* Prepend words to the text of the failure in the slot ("scan.h5: "), and return its code. */
int err_prefix(const char *format, ...) ERR_PRINTF(1, 2);

/* The calling thread's last failure. Valid until the thread's next failure. Never NULL. */
const struct err *err_last(void);

/* Copy a failure (from another thread or process) into the calling thread's slot and return its code. */
int err_restore(const struct err *failure);

/* Replace, in place, all bytes that are not one line of UTF-8 text: control and formatting characters, invalid
 * sequences. Applied to failures and to log lines. */
void err_clean(char *text);

/* The stable name, the HTTP status and the title of a code. Unknown codes are described as ERR_INTERNAL. */
const char *err_name(int code);
int err_status(int code);
const char *err_title(int code);

/* The code with this stable name, or ERR_INTERNAL. */
int err_from_name(const char *name);

#ifdef __cplusplus
}
#endif
#endif
