/* mrd_config.h: what an MRD client's configuration asks for: a name among those of the option mrd-configs, and
 * parameters. A name is looked up and never a path. */
#ifndef MRIRECON_DAEMON_MRD_CONFIG_H
#define MRIRECON_DAEMON_MRD_CONFIG_H

#include "daemon/base/options.h"
#include "daemon/store/job.h"
#include "recon/recon.h"

enum { MRD_NAME = 128, MRD_TEXT_MOST = 16 << 10, MRD_QUERIES = 3 };

/* That every line of the file can be run on a stream of MRD. Fails with ERR_IO, ERR_BAD_REQUEST (no "NAME QUERY"), and
 * as mrd_job_read(); the sentence names the line. */
int mrd_configs_check(const char *path);

/* The query of the configuration `name`: of the file (`path`; "": none), with or without ".xml" at its end; else "" of
 * "default", and "kind=NAME" of a kind's name. *query: malloc, the caller's. Fails with ERR_IO, ERR_BAD_PARAMETER (no
 * such configuration; the sentence lists the file's), ERR_NO_MEMORY. */
int mrd_config_find(char **query, const char *path, const char *name);

/* Parameters that a client sends as text, `bytes` long, as a query: a query itself ("method=cg&iterations=20"), or a
 * JSON object of them, or one in its member "parameters", as FIRE and OpenRecon send it; its member "config" names a
 * configuration (name; "": none). *query: malloc, the caller's. Fails with ERR_BAD_PARAMETER, ERR_NO_MEMORY. */
int mrd_text_read(char **query, char name[MRD_NAME], const char *text, size_t bytes);

/* Fill kind, parameters, name, priority, patience and formats of a job from queries, of which a later one counts more
 * (NULL: none). The kind must read MRD streams and give images. Fails as submission_parameters_read(). */
int mrd_job_read(struct job *job, const struct options *options, char *const queries[MRD_QUERIES]);

/* The file of the job's images, for a kind that passed. */
struct result_file mrd_result(const struct job *job);

#endif
