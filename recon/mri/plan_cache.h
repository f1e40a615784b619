/* plan_cache.h: the last NUFFT plan, with its density weights, kept from job to job. Only recon/ includes this.
 *
 * Scans of one protocol share a trajectory, so the next job often needs the same weights and plan. A plan is reused
 * only for the same parameters and, byte for byte, the same samples, given weights and division into readouts. At most
 * one plan is kept, of at most an eighth of the available memory, and it is freed before another is made: a job needs
 * no more memory than without the cache.
 *
 * A cache belongs to one device and to the thread that owns the device. */
#ifndef MRIRECON_PLAN_CACHE_H
#define MRIRECON_PLAN_CACHE_H

#include "gridding/nufft/nufft_parts.h"
#include "recon/mri/recon_steps.h"

/* The cache of one device: belongs to the thread that owns the device; freed before the device. Fails with
 * ERR_NO_MEMORY. */
struct recon_cache;
int recon_cache_create(struct recon_cache **out);
void recon_cache_free(struct recon_cache *cache);

/* A plan's adjoint in parts. */
struct plan_parts {
    struct nufft_parts *of; /* NULL: there is none */
    int coils;
    uint64_t turn; /* of the sums that are in it; no two are alike */
};
void plan_parts_free(struct plan_parts *parts);

/* Everything that the weights and plan of a frame depend on, apart from its arrays. Set it to 0 before filling it: it
 * is compared as bytes. */
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
    const size_t *offsets; /* [count + 1]: samples before each readout */
    size_t first;          /* k and given begin with this readout: those before it are the plan's, as is known */
};

/* The cached plan for these parameters; it stays the cache's, until the next plan_cache_begin(). NULL: there is none.
 * *decisions (the cache's): the report's entries about its creation. `cache` may be NULL here and below: no cache. */
struct nufft *plan_cache_find(struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays,
                              json_t **decisions);

/* A plan is about to be created: free the cached one, and record the key of the new one. */
void plan_cache_begin(struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays);

/* The plan was made, with these weights [samples], which are copied. True: it is the cache's now; false: it is too
 * large and stays the caller's. */
bool plan_cache_keep(struct recon_cache *cache, struct dev *dev, struct nufft *plan, const float *weights,
                     json_t *decisions);

/* Whether the plan that is kept is for a frame that begins with these: of the same parameters but for the batch, and
 * the same arrays, so far. */
bool plan_cache_begins(const struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays);

/* Of the plan that is kept: a number that no other has; 0: there is none. */
uint64_t plan_cache_number(const struct recon_cache *cache);

/* Of the plan that is kept; NULL: there is none. The weights that it was made with; the readouts of its frame; its
 * adjoint in parts, which is freed with it; and a number for the next sums in there. */
const float *plan_cache_weights(const struct recon_cache *cache);
const size_t *plan_cache_offsets(const struct recon_cache *cache, size_t *count);
struct plan_parts *plan_cache_parts(struct recon_cache *cache);
uint64_t plan_cache_turn(struct recon_cache *cache);

/* Free the plan. True: there was one. */
bool plan_cache_clear(struct recon_cache *cache);

#endif
