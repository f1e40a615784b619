/* pairs_cpu.h: one pass over the pairs of points, for sums (pairs_cpu.c) and counts (pair_counts_cpu.c). Only these two
 * include it. */
#ifndef MRIRECON_PAIRS_CPU_H
#define MRIRECON_PAIRS_CPU_H

#include "gridding/range/pencils.h"
#include "gridding/range/points_cpu.h"

/* Buffers of a thread: for shifted points, and for points near a block, of sums. */
enum {
    ROOM_FLOATS = 3 * 2 * (PAIR_RUN + PAIR_BLOCK + 2 * POINTS_PADDING),
    NEAR_COLUMN = PAIR_RUN + POINTS_PADDING,
    NEAR_FLOATS = 8 * NEAR_COLUMN
};

/* A box around points. */
struct pair_bounds {
    double low[3], high[3];
};

/* One row's run against one bin's points. */
struct pair_cut {
    struct pair_run run;
    struct pair_bounds bounds; /* indices of the row's bins along y and z */
    size_t first;              /* range of the run in `from` */
    long image[3];
};

/* Points of `to`: of one bin. */
struct pair_share {
    uint32_t first, last;
};

struct pair_state;

struct pair_job {
    const struct points_cpu *to, *from;
    const struct pencils_leaf *leaf;
    double reach;
    bool fine;          /* at least one of the sets has double positions */
    bool once;          /* each pair of one set in one order only */
    const float *value; /* sorted as `from`, padded; or NULL */
    struct pair_share *task;
    size_t tasks;
    struct watch *watch;
    struct pair_laws laws;
    float *vectors, *scalars; /* of this channel; or NULL */
    /* Process a block and a row. */
    void (*each)(struct pair_state *b, const struct pair_cut *row, const struct pair_block *of);
    int edges;
    const double *edge, *edge2;
    struct pair_counts *counts; /* [threads]; NULL: sums */
};

/* The state of a task. */
struct pair_state {
    const struct pair_job *job;
    size_t first, last;
    struct pair_bounds bounds;
    float *room; /* [ROOM_FLOATS], buffer for shifted points */
    /* Of sums: points that may be partners, of the last rows; `of` the block, paired with them; and whether some rows
     * are of periodic images. */
    struct pair_near near;
    struct pair_block of;
    bool crosses;
    struct watch_pace *pace;
    double sums[PAIR_BLOCK][PAIR_PARTS];
};

/* Of points [first, last). */
struct pair_bounds pair_bounds_of(const struct points_cpu *p, size_t first, size_t last);

/* Make the tasks of a job; the caller frees job->task. Fails with ERR_NO_MEMORY. */
int pairs_cpu_tasks(struct pair_job *job);
/* Run them. last: no further pass follows. Fails with ERR_NO_MEMORY, ERR_CANCELED. */
int pairs_cpu_all(struct pair_job *job, bool last);

#endif
