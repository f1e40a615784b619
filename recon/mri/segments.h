/* segments.h: time segmentation of off-resonance (Noll et al. 1991, doi:10.1109/42.108599; Sutton et al. 2003,
 * doi:10.1109/TMI.2002.808360):
 *
 *   exp(-2 pi i f t) = sum over segments l of b_l(t) exp(-2 pi i f tau_l)
 *
 * for the frequencies f of a field map, where the b_l(t) of each t are a least-squares fit over a histogram of f. The
 * normal operator needs the same for differences of frequencies (Fessler et al. 2005, doi:10.1109/TSP.2005.853152);
 * their histogram is symmetric, so its b_l are real. Host memory only. Only recon/mri/ includes this.
 */
#ifndef MRIRECON_SEGMENTS_H
#define MRIRECON_SEGMENTS_H

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>

enum { SEGMENTS_MOST = 128, SEGMENTS_BINS = 256 };

/* Frequencies [Hz] first + i step, and their shares, which sum to 1. */
struct spectrum {
    int bins; /* 1 .. 2 SEGMENTS_BINS - 1 */
    double first, step, share[2 * SEGMENTS_BINS - 1];
};

/* Of `count` frequencies. A value of exactly 0 is mostly background, and gets the weight of one bin of the others;
 * every frequency between the extremes gets a small weight. */
void spectrum_of(struct spectrum *out, size_t count, const float *hz);

/* Of the differences of two frequencies: symmetric about 0. */
void spectrum_differences(struct spectrum *out, const struct spectrum *of);

struct segments {
    const struct spectrum *of;
    int count;                                            /* segments: 1 .. SEGMENTS_MOST */
    double from, step;                                    /* tau_l = from + l step, seconds */
    double error;                                         /* root mean square over f, maximum over t */
    double complex factor[SEGMENTS_MOST][SEGMENTS_MOST];  /* Cholesky's, of the normal equations */
    double wave[SEGMENTS_MOST][2 * SEGMENTS_BINS - 1][2]; /* exp(2 pi i f tau_l): re, im */
};

/* The fewest segments, at least `least`, whose error is at most `tolerance` for t from `from` to `until`; `of` outlives
 * *out. False: SEGMENTS_MOST are too few. */
bool segments_make(struct segments *out, const struct spectrum *of, double from, double until, double tolerance,
                   int least);

/* b[count] of one t. */
void segments_at(const struct segments *segments, double t, double complex *b);

#endif
