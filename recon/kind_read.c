/* Shared by the read() functions of all kinds. */
#include "recon/kind_run.h"

#include "gridding/base/host_memory.h"

enum { DECODE_SECONDS = 5 }; /* a small scan takes some ms */

struct decode_limits job_decode_limits(const struct job_request *request)
{
    return (struct decode_limits){
        .bytes = request->memory_bytes ? request->memory_bytes : host_memory_available() / 4 * 3,
        .seconds = request->decode_seconds > 0 ? request->decode_seconds : DECODE_SECONDS,
        .arriving = request->arriving,
        .live = request->live,
    };
}

int job_decode_canceled(void *context)
{
    const struct job_listener *listener = context;
    const struct step_progress now = {.step = 0};
    return listener && listener->progress && listener->progress(listener->context, &now) != 0;
}
