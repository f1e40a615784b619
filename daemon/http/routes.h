/* routes.h: the table of routes, and what its files share. Only daemon/http/http.c and routes*.c include this. */
#ifndef MRIRECON_DAEMON_ROUTES_H
#define MRIRECON_DAEMON_ROUTES_H

#include "daemon/http/http_answer.h"
#include "daemon/http/request.h"
#include "recon/recon.h"

/* routes.c */
extern const struct route http_routes[]; /* ends with .method = NULL */
int route_index(struct request *request);

/* routes_login.c */
enum { COOKIE_TEXT = 256 };
int route_login(struct request *request);
int route_login_show(struct request *request);
int route_logout(struct request *request);

/* routes_page.c */
/* Whether a request of "/" is to get the web page: it prefers HTML, and the service has a page. */
bool page_is_wanted(struct request *request);
int route_page_home(struct request *request);
int route_page(struct request *request);

/* routes_submit.c */
int route_submit_begin(struct request *request);
int route_submit_work(struct request *request);
int route_submit(struct request *request);
int route_resubmit_work(struct request *request);
/* routes_jobs.c */
int route_job(struct request *request);
int route_cancel_work(struct request *request);
int route_cancel(struct request *request);
int route_delete_work(struct request *request);
int route_delete(struct request *request);
int route_purge_work(struct request *request);
int route_purge(struct request *request);
/* Read a job and, if it runs, its progress, which never decreases from one document to the next. */
int job_look_up(struct service *service, const char *id, struct job *job);
/* The same for a request. Fails with ERR_NOT_FOUND, also if the sender may not see the job. */
int request_job(struct request *request, const char *id, struct job *job);
/* Set request->wait from the header Prefer. */
void request_wait_read(struct request *request);
/* Whether the request must wait for the end of this job, until request->deadline; then it is suspended and its answer()
 * is called again. */
bool request_waits(struct request *request, const struct job *job);
/* Whether the sender may see jobs of `client`. */
bool request_owns(const struct request *request, const char *client);

/* job_document.c */
enum job_field {
    JOB_FIELD_ID = 1 << 0,
    JOB_FIELD_KIND = 1 << 1,
    JOB_FIELD_STATE = 1 << 2,
    JOB_FIELD_PARAMETERS = 1 << 3,
    JOB_FIELD_PROGRESS = 1 << 4,
    JOB_FIELD_STEP = 1 << 5,
    JOB_FIELD_PRIORITY = 1 << 6,
    JOB_FIELD_CLIENT = 1 << 7,
    JOB_FIELD_NAME = 1 << 8,
    JOB_FIELD_CREATED = 1 << 9,
    JOB_FIELD_STARTED = 1 << 10,
    JOB_FIELD_FINISHED = 1 << 11,
    JOB_FIELD_DURATION = 1 << 12,
    JOB_FIELD_DEADLINE = 1 << 13,
    JOB_FIELD_BYTES = 1 << 14,
    JOB_FIELD_ATTEMPTS = 1 << 15,
    JOB_FIELD_ERROR = 1 << 16,
    JOB_FIELD_RESULTS = 1 << 17,
    JOB_FIELD_AHEAD = 1 << 18,
    JOB_FIELD_REPORT = 1 << 19,
    JOB_FIELD_DELIVERIES = 1 << 20,
    JOB_FIELD_SCAN_KEPT = 1 << 21,
    JOB_FIELDS_ALL = (1 << 22) - 1,
    /* Fields that rows of a list do not contain. */
    JOB_FIELDS_LONG = JOB_FIELD_PARAMETERS | JOB_FIELD_RESULTS | JOB_FIELD_REPORT,
    /* The fields of a table of jobs. */
    JOB_FIELDS_SHORT =
        JOB_FIELDS_ALL & ~(JOB_FIELDS_LONG | JOB_FIELD_AHEAD | JOB_FIELD_DEADLINE | JOB_FIELD_DELIVERIES),
};
/* The set of fields called `name` (`length` bytes), or of "short"; 0: unknown. */
unsigned job_fields_find(const char *name, size_t length);
/* The document of a job, with its progress and its position in the queue; a new reference. */
json_t *job_document(struct service *service, const struct job *job);
/* Only these members of it; `ahead` is null. */
json_t *job_document_fields(struct service *service, const struct job *job, unsigned fields);
/* The progress of a job; false: it was running when it was read, but no worker has it now. */
bool job_progress_known(struct service *service, const struct job *job, struct job_progress *out);
/* The same as the members `progress` and `step` of its document; a new reference. */
json_t *job_progress_pack(const struct job *job, const struct job_progress *progress);

/* delivery_document.c */
/* A delivery as a document; a new reference. */
json_t *delivery_pack(const struct delivery *delivery);
/* The deliveries of a job, as the member `deliveries` of its document; a new reference. */
json_t *deliveries_pack(struct service *service, const char *id);

/* routes_deliveries.c */
int route_deliveries_work(struct request *request);
int route_deliveries(struct request *request);
int route_deliver_work(struct request *request);
int route_deliver(struct request *request);
int route_destinations(struct request *request);

/* routes_list.c */
int route_jobs_work(struct request *request);
int route_jobs(struct request *request);

/* routes_query.c */
/* Read the query of a submission into request->job: kind, parameters, name, priority, deadline, client; no formats.
 * Fails with ERR_UNKNOWN_KIND, ERR_UNKNOWN_PARAMETER, ERR_BAD_PARAMETER, ERR_BAD_REQUEST. */
int submission_read(struct request *request);
/* The same for a rerun: the defaults are those of the job `before`. */
int resubmission_read(struct request *request, const struct job *before);
/* Set request->job's name, if the option job-names allows names: `text` without control and format characters, cut
 * between characters if it is too long. */
void submission_name(struct request *request, const char *text);

/* routes_uploads.c */
int route_uploads_options(struct request *request);
int route_upload_create_begin(struct request *request);
int route_upload_create_work(struct request *request);
int route_upload_create(struct request *request);
int route_upload(struct request *request);
int route_upload_append_begin(struct request *request);
int route_upload_append_work(struct request *request);
int route_upload_append(struct request *request);
int route_upload_delete_work(struct request *request);
int route_upload_delete(struct request *request);

/* routes_events.c */
int route_events(struct request *request);

/* routes_feed.c */
int route_feed(struct request *request);

/* routes_results.c */
int route_results(struct request *request);
int route_result(struct request *request);
/* Answer with this file of a succeeded job. If it does not exist yet, it is converted, and the request waits. */
int result_answer(struct request *request, const struct job *job, struct result_file file, const char *const *headers);
/* The same of a job whose end is not yet stored (EARLY in scheduler.h). Fails with ERR_NOT_FOUND if the job did not
 * write the file; nothing is answered then. */
int result_answer_early(struct request *request, const struct job *job, struct result_file file,
                        const char *const *headers);
/* The media types of a result, for a sentence: "application/x-hdf5, image/png and application/x-npy".
 */
enum { RESULT_MEDIA = 256 };
void result_media(const struct result_form *form, char text[RESULT_MEDIA]);
/* The index of a job's default result in its kind's table. */
int result_default(const struct kind *kind, const struct job *job);

/* routes_images.c */
/* Answer with the images of request->job, one by one. Fails with ERR_CONFLICT if the job was not submitted for that. */
int images_answer(struct request *request, const char *const *headers);
int route_stream(struct request *request);

/* routes_fill.c */
/* The present counts, without readiness and workers. Fails with ERR_STORE, ERR_IO. */
int service_now(struct service *service, struct metrics_now *now);
/* The same as the members `queue`, `disk` and `kept` of a document; a new reference. */
json_t *service_fill_pack(struct service *service);

/* routes_service.c */
/* A parameter's value as JSON: a number if its type is one. */
json_t *param_value_pack(const struct param *param, const char *text);
int route_kinds(struct request *request);
int route_live(struct request *request);
int route_ready(struct request *request);
int route_metrics(struct request *request);

#endif
