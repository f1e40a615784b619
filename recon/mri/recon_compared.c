/* How far the image that arrives has been compared with the plan that is kept (recon_parts.h). */
#include "recon/mri/recon_parts.h"

#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>

static void terms_fill(const struct recon_job *job, struct feed_terms *terms)
{
    memset(terms, 0, sizeof *terms);
    memcpy(terms->scale, job->scale, sizeof terms->scale);
    terms->dim = job->dim;
    terms->columns = job->columns;
    terms->coordinates = job->coordinates;
    terms->has_weights = job->has_weights;
    terms->encoding = job->frames->encoding;
}

size_t recon_compared(const struct recon_feed *feed, const struct recon_job *job, const struct frame *frame)
{
    struct feed_terms terms;
    terms_fill(job, &terms);
    const bool same =
        feed->compared > 0 && feed->compared <= frame->count && feed->plan == plan_cache_number(job->cache) &&
        memcmp(&terms, &feed->terms, sizeof terms) == 0 &&
        memcmp(feed->readouts, job->frames->readouts + frame->first, feed->compared * sizeof *feed->readouts) == 0;
    return same ? feed->compared : 0;
}

size_t recon_feed_compared(const struct recon_job *job, const struct frame *frame)
{
    return job->keep && job->fed ? recon_compared(job->fed, job, frame) : 0;
}

int recon_compared_note(struct recon_feed *feed, const struct recon_job *job, const struct frame *frame)
{
    uint32_t *readouts = realloc(feed->readouts, frame->count * sizeof *readouts);
    if (!readouts)
        return err_no_memory("%zu readouts of a stream", frame->count);
    feed->readouts = readouts;
    memcpy(readouts, job->frames->readouts + frame->first, frame->count * sizeof *readouts);
    feed->compared = frame->count;
    feed->plan = plan_cache_number(job->cache);
    terms_fill(job, &feed->terms);
    return 0;
}
