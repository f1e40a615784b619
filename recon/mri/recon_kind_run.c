/* The running half of kind "recon". */
#include "recon/mri/plan_cache.h"
#include "recon/mri/recon_ahead.h"
#include "recon/mri/recon_kind.h"

static int cache_create(void **cache)
{
    struct recon_cache *made = NULL;
    int rc = recon_cache_create(&made);
    *cache = made;
    return rc;
}

static void cache_free(void *cache)
{
    recon_cache_free(cache);
}

const struct kind_run recon_kind_run = {
    .kind = &recon_kind,
    .read = recon_read,
    .input_free = recon_input_free,
    .run = recon_run,
    .cache_create = cache_create,
    .cache_free = cache_free,
    .ahead_create = recon_ahead_create,
    .ahead_go = recon_ahead_go,
    .ahead_free = recon_ahead_free,
};
