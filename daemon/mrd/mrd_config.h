/* mrd_config.h: the configuration that an MRD client sends: a name from the file of option mrd-configs, and parameters.
 * A name is only looked up, never used as a path. */
#ifndef MRIRECON_DAEMON_MRD_CONFIG_H
#define MRIRECON_DAEMON_MRD_CONFIG_H

#include "daemon/base/options.h"
#include "daemon/store/job.h"
#include "recon/recon.h"

enum { MRD_NAME = 128, MRD_TEXT_MOST = 16 << 10, MRD_QUERIES = 3 };

/* Check that every line of the file is valid for MRD streams. Fails with ERR_IO, ERR_BAD_REQUEST (no "NAME QUERY"), and
 * as mrd_job_read(); the sentence names the line. */
int mrd_configs_check(const char *path);

/* The query of the configuration `name`: as the file (`path`; "": none) has it, with or without ".xml"; else "" for
 * "default", and "kind=NAME" for a kind's name. *query: malloc, the caller's. Fails with ERR_IO, ERR_BAD_PARAMETER (no
 * such configuration; the sentence lists the file's), ERR_NO_MEMORY. */
int mrd_config_find(char **query, const char *path, const char *name);

/* Convert parameters that a client sent as text, `bytes` long, to a query. The text is a query
 * ("method=cg&iterations=20"), or a JSON object of parameters, or one with an object "parameters", as FIRE and
 * OpenRecon send it; its member "config" names a configuration (name; "": none). *query: malloc, the caller's. Fails
 * with ERR_BAD_PARAMETER, ERR_NO_MEMORY. */
int mrd_text_read(char **query, char name[MRD_NAME], const char *text, size_t bytes);

/* Fill kind, parameters, name, priority, patience and formats of a job from queries, a later one overriding an earlier
 * one (NULL: none). The kind must read MRD streams and have images as its result. Fails as
 * submission_parameters_read(). */
int mrd_job_read(struct job *job, const struct options *options, char *const queries[MRD_QUERIES]);

/* The file of the job's images, of a kind that was accepted. */
struct result_file mrd_result(const struct job *job);

#endif
