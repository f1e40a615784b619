/* recon_iterative.h: the iterative methods of step "images": coil images by gridding, coil maps from them, and a solver
 * on the normal operator of sensitivity encoding. Only recon/mri/ includes this. */
#ifndef MRIRECON_RECON_ITERATIVE_H
#define MRIRECON_RECON_ITERATIVE_H

#include "recon/mri/recon_gridder.h"

struct iterative;

/* Size of the images that are solved for: the encoded field of view, and the job's images where these are wider, in the
 * voxels of the job's images. What lies outside the field of view of the job's images must be solved for, too: its
 * samples are there. */
void iterative_size(const struct recon_job *job, int n[3]);

/* Device memory, in bytes, for images of g->n and g->most_coils coils, in addition to gridding's; and that of each
 * other device that shares the coils. False: overflow. */
bool iterative_bytes(const struct gridder *g, size_t *own, size_t *other);

/* Set g->solved_most and g->divided as if there were enough memory; and halve the coils that are computed together,
 * false: there are as few as can be. */
void iterative_whole(struct gridder *g);
bool iterative_halve(struct gridder *g);

/* Allocates all of that except memory used during a single image. Fails as dev_alloc(). */
int iterative_create(struct iterative **out, struct gridder *g);
void iterative_free(struct iterative *it);

/* Image `f`, into the series. Fails as gridder_plan(), maps_estimate() and the solvers. */
int iterative_frame(struct iterative *it, size_t f);

/* Set g->together, g->longest and g->kernels: how many images are solved together, if their method is not one of a
 * series (recon_together.c). Fails with ERR_DEVICE. */
int together_sizes(struct gridder *g);

/* Of g->together: the images order[0 .. *done) of at most `count`, into the series; those of one number of coils that
 * are not made yet. Fails as iterative_frame(). */
int together_frames(struct iterative *it, const size_t *order, size_t count, size_t *done);

/* The images of the series that begins with `lead`, from all readouts together, or by windows (recon_series.c). Where
 * readouts will follow, those of complete windows. Fails as iterative_frame(). */
int series_frames(struct iterative *it, size_t lead);

/* Whether image `f` is the first of its series: images that differ only in time. */
bool series_leads(const struct recon_job *job, size_t f);

/* Set g->longest and g->kernels. Fails with ERR_BAD_PARAMETER (the scan is not a series), ERR_COILS_DIFFER,
 * ERR_NO_MEMORY. */
int series_sizes(struct gridder *g);

/* Report the iterations, and the values of parameters that were "auto". */
void iterative_report(struct iterative *it);

#endif
