#include "daemon/worker/worker.h"

struct job_request worker_request(const struct worker_options *options, const struct kind *kind,
                                  const struct param_values *values, int input, struct decoder *decoder)
{
    return (struct job_request){
        .kind = kind,
        .values = values,
        .input = input,
        .decoder = decoder,
        .memory_bytes = options->memory_bytes,
        .decode_seconds = options->decode_seconds,
    };
}
