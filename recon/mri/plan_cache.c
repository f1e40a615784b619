#include "recon/mri/plan_cache.h"

#include "gridding/base/err.h"
#include "gridding/base/host_memory.h"

#include <stdlib.h>
#include <string.h>

enum { SHARE = 8 }; /* the cache may use 1 / SHARE of the available memory */

struct recon_cache {
    struct plan_key key;
    float *k, *given, *weights;
    size_t *offsets;
    size_t bytes; /* of these arrays */
    struct nufft *plan;
    struct plan_parts parts;
    json_t *decisions;
    uint64_t turns, plans, number; /* plans: kept so far; number: of this one, 0: none */
};

void plan_parts_free(struct plan_parts *parts)
{
    nufft_parts_free(parts->of);
    *parts = (struct plan_parts){.of = NULL};
}

int recon_cache_create(struct recon_cache **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : err_no_memory("a cache of plans");
}

void recon_cache_free(struct recon_cache *cache)
{
    plan_cache_clear(cache);
    free(cache);
}

bool plan_cache_clear(struct recon_cache *cache)
{
    bool full = cache && cache->plan;
    if (!cache)
        return false;
    plan_parts_free(&cache->parts);
    nufft_free(cache->plan);
    json_decref(cache->decisions);
    free(cache->k);
    free(cache->given);
    free(cache->weights);
    free(cache->offsets);
    *cache = (struct recon_cache){.turns = cache->turns, .plans = cache->plans};
    return full;
}

static size_t k_bytes(const struct plan_key *key)
{
    return key->samples * (size_t)key->dim * sizeof(float);
}

/* Whether a frame of this key has the cached arrays, as far as it goes. */
static bool arrays_same(const struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays)
{
    const size_t first = arrays->offsets[arrays->first], count = key->samples - first, dim = (size_t)key->dim;
    return memcmp(cache->offsets, arrays->offsets, (key->count + 1) * sizeof *arrays->offsets) == 0 &&
           memcmp(cache->k + first * dim, arrays->k, count * dim * sizeof(float)) == 0 &&
           (!arrays->given || memcmp(cache->given + first, arrays->given, count * sizeof(float)) == 0);
}

struct nufft *plan_cache_find(struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays,
                              json_t **decisions)
{
    if (!cache || !cache->plan || memcmp(&cache->key, key, sizeof *key) != 0 || !arrays_same(cache, key, arrays))
        return NULL;
    *decisions = cache->decisions;
    return cache->plan;
}

static void *copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    return to ? memcpy(to, from, bytes) : NULL;
}

void plan_cache_begin(struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays)
{
    if (!cache)
        return;
    plan_cache_clear(cache);
    size_t given = arrays->given ? key->samples * sizeof(float) : 0, offsets = (key->count + 1) * sizeof(size_t);
    size_t bytes = k_bytes(key) + given + offsets + key->samples * sizeof(float);
    if (bytes > host_memory_available() / SHARE)
        return;
    cache->key = *key;
    cache->k = copy(arrays->k, k_bytes(key));
    cache->given = arrays->given ? copy(arrays->given, given) : NULL;
    cache->offsets = copy(arrays->offsets, offsets);
    cache->bytes = bytes;
    if (!cache->k || !cache->offsets || (arrays->given && !cache->given))
        plan_cache_clear(cache);
}

bool plan_cache_keep(struct recon_cache *cache, struct dev *dev, struct nufft *plan, const float *weights,
                     json_t *decisions)
{
    struct nufft_info info;
    size_t available = 0, total, host = host_memory_available();
    if (!cache || !cache->k)
        return false;
    nufft_describe(plan, &info);
    bool fits = dev_memory(dev, &available, &total) == 0 && info.bytes <= available / SHARE &&
                (dev_is_gpu(dev) ? 0 : info.bytes) + cache->bytes <= host / SHARE;
    cache->weights = fits ? copy(weights, cache->key.samples * sizeof *weights) : NULL;
    if (!cache->weights) {
        plan_cache_clear(cache);
        return false;
    }
    cache->plan = plan;
    cache->number = ++cache->plans;
    cache->decisions = json_incref(decisions);
    return true;
}

bool plan_cache_begins(const struct recon_cache *cache, const struct plan_key *key, const struct plan_arrays *arrays)
{
    if (!cache || !cache->plan || key->samples > cache->key.samples || key->count > cache->key.count)
        return false;
    struct plan_key whole = *key;
    whole.samples = cache->key.samples;
    whole.count = cache->key.count;
    whole.params.batch = cache->key.params.batch;
    return memcmp(&whole, &cache->key, sizeof whole) == 0 && arrays_same(cache, key, arrays);
}

uint64_t plan_cache_number(const struct recon_cache *cache)
{
    return cache && cache->plan ? cache->number : 0;
}

const float *plan_cache_weights(const struct recon_cache *cache)
{
    return cache && cache->plan ? cache->weights : NULL;
}

const size_t *plan_cache_offsets(const struct recon_cache *cache, size_t *count)
{
    *count = cache && cache->plan ? cache->key.count : 0;
    return cache && cache->plan ? cache->offsets : NULL;
}

struct plan_parts *plan_cache_parts(struct recon_cache *cache)
{
    return cache && cache->plan ? &cache->parts : NULL;
}

uint64_t plan_cache_turn(struct recon_cache *cache)
{
    return ++cache->turns;
}
