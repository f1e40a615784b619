/* intervals.h: the interval of distances of a pair, for counts: a table look-up in float32, which marks pairs near an
 * edge as undecided. Only gridding/range includes this. */
#ifndef MRIRECON_INTERVALS_H
#define MRIRECON_INTERVALS_H

#include "gridding/base/host_device.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A float32 distance has an index into a table. It is in interval table[index] if that is below INTERVAL_DOUBT, outside
 * all intervals if that is INTERVAL_FAR, and is otherwise decided in double precision. */
enum { INTERVAL_FAR = 0xffff, INTERVAL_DOUBT = 0xfffe };

/* The error bound of a float32 distance r: relative r + absolute. */
struct interval_error {
    double relative, absolute;
};

/* Fill table[places] from squared edges edge2[edges], ascending. end(of, t): the float32 distance at which entry t ends
 * and the next begins; entry 0 begins at 0. */
static inline void interval_table(int edges, const double *edge2, const struct interval_error *error, int places,
                                  double (*end)(const void *of, int place), const void *of, uint16_t *table)
{
    int interval = -1; /* the last one whose lower edge is below the entry */
    double begin = 0;
    for (int t = 0; t < places; t++) {
        const double next = end(of, t), low = fmax(0, begin * (1 - error->relative) - error->absolute),
                     high = next * (1 + error->relative) + error->absolute;
        while (interval + 1 < edges && edge2[interval + 1] <= low * low)
            interval++;
        const bool sure = interval + 1 == edges || high * high <= edge2[interval + 1];
        const bool outside = interval < 0 || interval == edges - 1;
        table[t] = (uint16_t)(!sure ? INTERVAL_DOUBT : outside ? INTERVAL_FAR : interval);
        begin = next;
    }
}

/* ---- logarithmic entries, on the CPU ---- */

/* The index of a squared distance r2 is its bits as a float >> shift, minus first, and at least 0: a fixed number of
 * entries per power of two, so that short distances are resolved as well as long ones, at no cost. A value of `limit`
 * or above is beyond all edges. */
struct interval_octaves {
    int shift, first, places;
    float limit;
};

/* A small table stays in the first-level cache, but with many intervals it would leave too many pairs undecided. */
enum { INTERVAL_FEW = 64, INTERVAL_BITS_FEW = 10, INTERVAL_BITS = 12, INTERVAL_OCTAVES_MOST = 24 };
enum { INTERVAL_PLACES_MOST = (INTERVAL_OCTAVES_MOST + 2) << INTERVAL_BITS };

static inline uint32_t interval_bits(double r)
{
    const float r2 = (float)(r * r);
    uint32_t bits;
    memcpy(&bits, &r2, sizeof bits);
    return bits;
}

static inline float interval_float(uint32_t bits)
{
    const uint32_t infinite = 0x7f800000;
    float r2;
    bits = bits < infinite ? bits : infinite;
    memcpy(&r2, &bits, sizeof r2);
    return r2;
}

static inline struct interval_octaves interval_octaves(int edges, const double *edge2,
                                                       const struct interval_error *error)
{
    const int bits = edges <= INTERVAL_FEW ? INTERVAL_BITS_FEW : INTERVAL_BITS;
    const double last = sqrt(edge2[edges - 1]), shortest = sqrt(edge2[0] > 0 ? edge2[0] : edge2[1]);
    const double longest = last * (1 + error->relative) + error->absolute,
                 nearest = fmax(0, shortest * (1 - error->relative) - error->absolute);
    struct interval_octaves o;
    o.shift = 23 - bits;
    const int end = (int)(interval_bits(longest) >> o.shift) + 2;
    o.first = (int)(interval_bits(nearest) >> o.shift) - 1;
    if (o.first < end - (INTERVAL_OCTAVES_MOST << bits))
        o.first = end - (INTERVAL_OCTAVES_MOST << bits);
    o.first = o.first > 0 ? o.first : 0;
    o.places = end - o.first;
    o.limit = interval_float((uint32_t)end << o.shift);
    return o;
}

static inline double interval_octaves_end(const void *of, int place)
{
    const struct interval_octaves *o = (const struct interval_octaves *)of;
    return sqrt((double)interval_float((uint32_t)(o->first + place + 1) << o->shift));
}

/* ---- entries of equal length, on a GPU, whose shared memory is small ---- */

/* The index of r is r * steps. */
struct interval_equal {
    double step;
};

enum { INTERVAL_EQUAL_MOST = 8192 };

static inline int interval_equal_places(int edges)
{
    return edges <= INTERVAL_FEW ? INTERVAL_EQUAL_MOST / 4 : INTERVAL_EQUAL_MOST;
}

static inline double interval_equal_end(const void *of, int place)
{
    return (place + 1) / ((const struct interval_equal *)of)->step;
}

/* The interval that contains r2; -1: none. */
static HOST_DEVICE inline int interval_of(int edges, const double *edge2, double r2)
{
    if (r2 < edge2[0] || r2 >= edge2[edges - 1])
        return -1;
    int low = 0, high = edges - 1; /* edge2[low] <= r2 < edge2[high] */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (r2 < edge2[middle])
            high = middle;
        else
            low = middle;
    }
    return low;
}

#endif
