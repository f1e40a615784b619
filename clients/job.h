/* job.h: what the commands about jobs share. */
#ifndef MRIRECON_JOB_H
#define MRIRECON_JOB_H

#include "clients/client.h"

/* A daemon that is being restarted is back within this time. */
#define OUTAGE_SECONDS 60.0

/* GET, POST or DELETE /v1/jobs/ID + rest. Fails as server_call. */
int job_call(struct server *server, const char *method, const char *id, const char *rest, json_t **out);

bool job_is_final(const json_t *job);

/* Whether the server, as it is now, may do later what it did not do now. */
bool job_failure_passes(int code);

/* Download a job's image into a file that appears whole or not at all. Fails as server_download and save_create. */
int job_fetch(struct server *server, const char *id, const char *format, const char *out);

/* The form asked for: --format, else what the name of the file --out ends in, else h5. false: *wrong is no form. */
bool client_format(const struct client_options *options, const char **format, const char **wrong);
/* Say so; CLIENT_USAGE. */
int client_wrong_format(const char *wrong);

#endif
