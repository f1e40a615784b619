/* The documents of deliveries. */
#include "daemon/http/routes.h"

#include "daemon/wire.h"

enum { JOB_DELIVERIES = 32 };

json_t *delivery_pack(const struct delivery *delivery)
{
    const bool waits = delivery->state == DELIVERY_PENDING;
    return json_pack("{s:s, s:s, s:I, s:o, s:o, s:o, s:s}", "destination", delivery->destination, "state",
                     delivery_state_name(delivery->state), "attempts", (json_int_t)delivery->attempts, "created",
                     wire_time_pack(delivery->created), "next", wire_time_pack(waits ? delivery->due : 0), "ended",
                     wire_time_pack(delivery->ended), "answer", delivery->answer);
}

json_t *deliveries_pack(struct service *service, const char *id)
{
    struct delivery list[JOB_DELIVERIES];
    const struct delivery_filter filter = {.state = -1, .job = id};
    json_t *packed = json_array();
    int count = 0;
    if (store_deliveries(service->core.store, &filter, list, JOB_DELIVERIES, &count))
        count = 0; /* /readyz explains why */
    while (count > 0)
        json_array_append_new(packed, delivery_pack(&list[--count]));
    return packed;
}
