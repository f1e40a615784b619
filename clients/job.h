/* job.h: functions shared by the commands about jobs. */
#ifndef MRIRECON_JOB_H
#define MRIRECON_JOB_H

#include "clients/result.h"

/* A daemon that is restarted is expected back within this time. */
#define OUTAGE_SECONDS 60.0

/* GET, POST or DELETE /v1/jobs/ID + rest. Fails as server_call. */
int job_call(struct server *server, const char *method, const char *id, const char *rest, json_t **out);

bool job_is_final(const json_t *job);

/* Whether the failure is temporary: the server may accept the same request later. */
bool job_failure_passes(int code);

/* Download a result into a file that appears whole or not at all. Fails as server_download and save_create. */
int job_fetch(struct server *server, const char *id, const struct client_result *result, const char *out);

#endif
