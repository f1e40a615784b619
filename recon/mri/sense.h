/* sense.h: the normal operator of sensitivity encoding (Pruessmann et al. 2001, doi:10.1002/mrm.1241):
 *
 *   r = sum over coils c of conj(S_c) A' W A S_c x
 *
 * S: coil maps; A' W A: the normal operator of one coil (gridding/nufft/normal.h).
 *
 * Coils of large images are summed in groups, whose size depends on the image alone, and the groups' sums are added in
 * their order. The parts of a device (dev_join()) share the groups: the same bits for any number of them. Only
 * recon/mri/ includes this.
 */
#ifndef MRIRECON_SENSE_H
#define MRIRECON_SENSE_H

#include "gridding/nufft/normal.h"
#include "gridding/op.h"

/* The groups that one part of the device computes. */
struct sense_part {
    struct dev *dev;
    struct normal *normal;  /* part 0: the caller's */
    const struct c32 *maps; /* of its coils; part 0: the caller's */
    struct c32 *copy;       /* part 0: NULL; others: their coils' maps */
    struct c32 *scratch;    /* [batch][pixels] */
    struct c32 *x, *sums;   /* part 0: NULL; others: [pixels], [groups][pixels] */
    int first, groups;
};

struct sense {
    struct dev *dev;
    size_t pixels;
    int planes; /* of an image, to each of which the normal operator is applied alone */
    int coils, batch, group;
    int parts, opened;      /* that compute; that have memory */
    const struct c32 *maps; /* device: [coils][pixels] */
    struct c32 *sum;        /* device: [pixels], one group's; NULL: there is one group */
    struct sense_part part[DEV_PARTS_MOST];
    /* Called between batches, so that a cancel does not wait for all coils; a non-zero return ends the call with that
     * code. May be NULL. */
    int (*ask)(void *context);
    void *context;
};

/* Of `coils` with images of `pixels`: the number in a group, and of groups. */
int sense_group(size_t pixels, int coils);
int sense_groups(size_t pixels, int coils);

/* Memory for images of `pixels` and at most `coils`, of which `batch` are computed together; also on the device's parts
 * if `divide`. It is kept between images. Fails as dev_alloc(). */
int sense_open(struct sense *sense, struct dev *dev, size_t pixels, int coils, int batch, bool divide);
void sense_close(struct sense *sense);

/* The maps of the next image. They stay the caller's; parts have copies, which are made while the host goes on, and
 * which later changes of `maps` are ordered after. Fails as dev_copy(). */
int sense_maps(struct sense *sense, int coils, const struct c32 *maps);

/* The normal operator, applied to each of the `planes` of an image. It stays the caller's; parts have copies likewise.
 * After sense_maps(). Fails as normal_copy(). */
int sense_normal(struct sense *sense, struct normal *normal, int planes);

/* The operator, valid as long as `sense`; only its `normal` is set. */
struct op sense_op(struct sense *sense);

/* The same of several frames at once, each with its own maps, and with its own kernel or the operator's, where
 * normal_takes_coils(): no images of coils are in memory. */
struct sense_frames {
    struct normal *normal;
    struct normal_coils coils;
};

/* The operator of images of `pixels`, valid as long as `frames`. */
struct op_frames sense_frames_op(struct sense_frames *frames, size_t pixels);

/* x = x + sum over `count` coils from `first` of conj(S_c) images[c]: images[count][pixels] of device memory. */
int sense_combine(struct sense *sense, int first, int count, const struct c32 *images, struct c32 *x);

#endif
