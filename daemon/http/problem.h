/* problem.h: failures as problem documents (RFC 9457). */
#ifndef MRIRECON_DAEMON_PROBLEM_H
#define MRIRECON_DAEMON_PROBLEM_H

#include "gridding/base/err.h"

#include <jansson.h>

#define PROBLEM_MEDIA "application/problem+json"

/* {type, title, status, detail, code, job_id?, acquisition_index?, required_bytes?, available_bytes?}; a new reference.
 * `job`: the id of the job that failed, or NULL. */
json_t *problem_pack(const struct err *failure, const char *job);

/* The same of a failure in the store's form, {code, detail, ...}. */
json_t *problem_of(const json_t *error, const char *job);

#endif
