/* The outbox's part of /metrics. */
#include "daemon/outbox/outbox_parts.h"

#include <string.h>

void outbox_count(struct outbox *outbox, const char *destination, enum delivery_state state)
{
    int i = 0;
    pthread_mutex_lock(&outbox->lock);
    while (i < outbox->counted && strcmp(outbox->count[i].name, destination) != 0)
        i++;
    if (i == outbox->counted && i < OUTBOX_COUNTED) /* the last entry counts all further destinations */
        snprintf(outbox->count[outbox->counted++].name, DELIVERY_NAME, "%s",
                 i < OUTBOX_COUNTED - 1 ? destination : "other");
    struct outbox_count *count = &outbox->count[i < OUTBOX_COUNTED ? i : OUTBOX_COUNTED - 1];
    count->attempts++;
    count->delivered += state == DELIVERY_DELIVERED;
    count->dead += state == DELIVERY_DEAD;
    pthread_mutex_unlock(&outbox->lock);
}

#define PREFIX "mrirecond_"

static void gauge_print(FILE *out, const char *name, const char *help, double value)
{
    fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s gauge\n" PREFIX "%s %.17g\n", name, help, name, name,
            value);
}

/* A counter with a line for each destination; `offset`: that of the member in struct outbox_count. */
static void counter_print(FILE *out, const struct outbox *outbox, const char *name, const char *help, size_t offset)
{
    fprintf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s counter\n", name, help, name);
    for (int i = 0; i < outbox->counted; i++) {
        uint64_t value;
        memcpy(&value, (const char *)&outbox->count[i] + offset, sizeof value);
        fprintf(out, PREFIX "%s{destination=\"%s\"} %llu\n", name, outbox->count[i].name, (unsigned long long)value);
    }
}

int outbox_metrics_print(struct outbox *outbox, FILE *out)
{
    struct delivery_counts counts;
    int rc = store_delivery_counts(outbox->core.store, &counts);
    if (rc)
        return rc;
    gauge_print(out, "deliveries_pending",
                "Deliveries of ended jobs that wait for their next attempt, or are being sent.",
                (double)(counts.pending + counts.sending));
    gauge_print(out, "deliveries_dead", "Deliveries given up: dead letters.", (double)counts.dead);
    gauge_print(out, "deliveries_oldest_timestamp_seconds",
                "When the oldest pending delivery was made; 0: there is none.", 1e-3 * (double)counts.oldest);
    pthread_mutex_lock(&outbox->lock);
    counter_print(out, outbox, "delivery_attempts_total", "Attempts to deliver, by destination.",
                  offsetof(struct outbox_count, attempts));
    counter_print(out, outbox, "deliveries_delivered_total", "Deliveries that arrived, by destination.",
                  offsetof(struct outbox_count, delivered));
    counter_print(out, outbox, "deliveries_given_up_total", "Deliveries that became dead letters, by destination.",
                  offsetof(struct outbox_count, dead));
    pthread_mutex_unlock(&outbox->lock);
    return 0;
}
