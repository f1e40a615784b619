/* point_bins.h: the bin of a point in a box: formulas shared by CPU and GPU. Only gridding/range includes this. */
#ifndef MRIRECON_POINT_BINS_H
#define MRIRECON_POINT_BINS_H

#include "gridding/base/host_device.h"
#include "gridding/range/box.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* The bins of a box; 1 from its dimension on. The outermost bins of an open axis include all points outside. */
struct point_bins {
    int bins[3];
    double edge[3]; /* of a bin */
    size_t all;
};

enum { POINT_BINS_AXIS_MOST = 4096 };

/* Bins of half the reach, but at most four per point, and no more than 32 bits can number. */
static inline struct point_bins point_bins_choose(const struct range_box *box, double reach, size_t inputs)
{
    const size_t wanted = 64 + 4 * inputs, most = wanted < UINT32_MAX ? wanted : UINT32_MAX - 1;
    struct point_bins p;
    for (double longer = 0.5;; longer *= 1.25) {
        p.all = 1;
        for (int d = 0; d < 3; d++) {
            double length = d < box->dim ? box->cells[d] * box->spacing[d] : 1, bins = length / (longer * reach);
            p.bins[d] = d >= box->dim || bins < 1             ? 1
                        : bins > (double)POINT_BINS_AXIS_MOST ? (int)POINT_BINS_AXIS_MOST
                                                              : (int)bins;
            p.edge[d] = length / p.bins[d];
            p.all *= (size_t)p.bins[d];
        }
        if (p.all <= most)
            return p;
    }
}

/* Wrap a position into the box along a periodic axis. fine: it is a double. */
static HOST_DEVICE inline double point_place(const struct range_box *box, int d, double at, bool fine)
{
    const double length = ROUNDED_PRODUCT(box->cells[d], box->spacing[d]);
    double from = at - box->origin[d];
    if (!box->periodic[d] || (from >= 0 && from < length))
        return at;
    from -= ROUNDED_PRODUCT(floor(from / length), length);
    const double placed = fine ? box->origin[d] + from : (double)(float)(box->origin[d] + from);
    return placed - box->origin[d] >= 0 && placed - box->origin[d] < length ? placed : box->origin[d];
}

static HOST_DEVICE inline int point_bin(double origin, double edge, int bins, double at)
{
    const double bin = floor((at - origin) / edge);
    return bin < 0 ? 0 : bin > bins - 1 ? bins - 1 : (int)bin;
}

/* The bins [from, to] of an axis that [low, high] (positions) touches. On a periodic axis, numbering continues through
 * the images: bin b is bin b mod bins of image floor(b / bins). to < from: none. */
struct bin_span {
    long from, to;
};

static HOST_DEVICE inline struct bin_span point_span(double origin, double edge, int bins, bool periodic, double low,
                                                     double high)
{
    const double slack = 1e-6; /* of a bin: more than rounding errors */
    double from = floor((low - origin) / edge - slack), to = floor((high - origin) / edge + slack), last = bins - 1;
    if (!periodic) {
        from = from < 0 ? 0 : from > last ? last : from;
        to = to < 0 ? 0 : to > last ? last : to;
    }
    const struct bin_span span = {(long)from, (long)to};
    return span;
}

static HOST_DEVICE inline long image_of(long bin, int bins)
{
    return bin >= 0 ? bin / bins : -((-bin + bins - 1) / bins);
}

#endif
