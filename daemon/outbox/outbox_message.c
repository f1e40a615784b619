/* Messages to senders. */
#include "daemon/outbox/outbox_parts.h"

#include "daemon/wire.h"

#include <stdlib.h>

/* The body of a webhook. It contains no job names: clients may have used patients' names. */
static char *event_text(const struct job *job)
{
    char type[40];
    snprintf(type, sizeof type, "job.%s", job_state_name(job->state));
    json_t *event = json_pack("{s:s, s:o, s:{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:s+, s:O?}}", "type", type,
                              "timestamp", wire_time_pack(job->finished), "data", "id", job->id, "kind", job->kind,
                              "state", job_state_name(job->state), "client", job->client, "created",
                              wire_time_pack(job->created), "started", wire_time_pack(job->started), "finished",
                              wire_time_pack(job->finished), "href", "/v1/jobs/", job->id, "error", job->error);
    char *text = json_dumps(event, JSON_COMPACT);
    json_decref(event);
    return text;
}

json_t *outbox_message(struct outbox *outbox, const struct sending *sending)
{
    const struct destination *to = &sending->to;
    struct job job;
    json_t *message;
    if (to->type != DESTINATION_WEBHOOK) {
        message = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I}", "type", destination_type_name(to->type), "address",
                            to->address, "ca", to->ca, "secret", to->secret, "calling", to->calling, "called",
                            to->called, "timeout", (json_int_t)to->timeout);
        if (!message)
            err_no_memory("a message to a sender");
        return message;
    }
    if (store_get_brief(outbox->core.store, sending->delivery.job, &job))
        return NULL;
    char *body = event_text(&job), id[JOB_ID + DELIVERY_NAME + 1];
    snprintf(id, sizeof id, "%s.%s", job.id, to->name);
    job_clear(&job);
    message = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s?}", "type", destination_type_name(to->type), "address",
                        to->address, "ca", to->ca, "secret", to->secret, "id", id, "timeout", (json_int_t)to->timeout,
                        "body", body);
    free(body);
    if (!message)
        err_no_memory("a message to a sender");
    return message;
}
