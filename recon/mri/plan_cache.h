/* plan_cache.h: the last NUFFT plan, with its density weights, kept from job to job. Only recon/ includes this.
 *
 * Scans of one protocol share a trajectory: weights and plan of the next job are those of the last. A plan is given out
 * again only for the same parameters and, byte for byte, the same samples, given weights and division into readouts. At
 * most one plan is kept, none that takes more than an eighth of what memory can be had, and it is freed before another
 * is made: a job needs no more memory than without.
 *
 * A cache belongs to one device and to the thread that owns that.
 */
#ifndef MRIRECON_PLAN_CACHE_H
#define MRIRECON_PLAN_CACHE_H

#include "gridding/nufft/nufft.h"
#include "recon/mri/recon_steps.h"

/* What is kept from job to job on one device: of the thread that owns the device; freed before the device. Fails with
 * ERR_NO_MEMORY. */
struct recon_cache;
int recon_cache_create(struct recon_cache **out);
void recon_cache_free(struct recon_cache *cache);

/* All that weights and plan of a frame depend on beside its arrays. Set to 0 before it is filled: compared as bytes. */
struct plan_key {
    struct nufft_params params;
    int64_t dcf, iterations, limited, has_weights, columns, averages;
    int n[3];
    double out_k[3], delay[3];
    size_t samples, count;
    int64_t dim; /* of the samples; the plan's is 2 where a stack's plane has one */
};

/* The frame's arrays. */
struct plan_arrays {
    const float *k;        /* [samples][dim], cycles per pixel of the encoding */
    const float *given;    /* [samples]: the file's weights; NULL: it has none */
    const size_t *offsets; /* [count + 1] */
};

/* The plan kept for this; it stays the cache's, until the next plan_cache_begin(). NULL: there is none. *decisions (the
 * cache's): the report's entries of when it was made. `cache` may be NULL here and below: nothing is kept. */
struct nufft *plan_cache_find(struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays,
                              json_t **decisions);

/* A plan is about to be made: forget the one that is kept, and remember what the new one is made from. */
void plan_cache_begin(struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays);

/* It was made. True: it is the cache's now; false: it stays the caller's, being too large. */
bool plan_cache_keep(struct recon_cache *cache, struct dev *dev, struct nufft *plan, json_t *decisions);

/* Forget the plan. True: there was one. */
bool plan_cache_clear(struct recon_cache *cache);

#endif
