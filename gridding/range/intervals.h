/* intervals.h: to which interval of distances a pair belongs, for counts: by a table that float32 reads, which leaves
 * in doubt what lies near an edge. Only gridding/range includes this. */
#ifndef MRIRECON_INTERVALS_H
#define MRIRECON_INTERVALS_H

#include "gridding/base/host_device.h"

#include <stdbool.h>
#include <stdint.h>

/* A squared distance r2 (float32) belongs to interval table[r2 step] if that is below INTERVAL_DOUBT, is longer or
 * shorter than all where it is INTERVAL_FAR, and else is looked at in double precision. */
enum { INTERVAL_FAR = 0xffff, INTERVAL_DOUBT = 0xfffe };

/* Few places stay in the nearest cache; of many intervals, few would leave too much in doubt. */
enum { INTERVAL_PLACES_MOST = 8192 };
static inline int interval_places(int edges)
{
    return edges <= 64 ? INTERVAL_PLACES_MOST / 4 : INTERVAL_PLACES_MOST;
}

/* table[places] of squared edges edge2[edges], rising; error: what float32's r2 may err by. Returns `step`. */
static inline float interval_table(int edges, const double *edge2, double error, int places, uint16_t *table)
{
    const double step = (places - 1) / edge2[edges - 1];
    int interval = -1; /* the last whose lower edge lies below a place */
    for (int t = 0; t < places; t++) {
        const double low = t / step - error, high = (t + 1) / step + error;
        while (interval + 1 < edges && edge2[interval + 1] <= low)
            interval++;
        const bool sure = interval + 1 == edges || high <= edge2[interval + 1];
        const bool outside = interval < 0 || interval == edges - 1;
        table[t] = (uint16_t)(!sure ? INTERVAL_DOUBT : outside ? INTERVAL_FAR : interval);
    }
    return (float)step;
}

/* The interval that r2 lies in; -1: none. */
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
