/* field_inner.h: a field map on the device, for the two files of field.h. Only these include it. */
#ifndef MRIRECON_FIELD_INNER_H
#define MRIRECON_FIELD_INNER_H

#include "recon/mri/field.h"
#include "recon/mri/segments.h"

struct field {
    struct recon_job *job;
    struct spectrum spectrum, differences;
    struct segments plain, normal; /* on the same nodes; the second of `differences` */
    int n[3];                      /* of the images */
    size_t pixels, samples;        /* samples: of the frame, or of a stack's plane */
    const struct frame *frame;     /* that of `interpolator` and `times` */
    const float *map;              /* host: of the present slice, [z][y][x] of the encoded matrix; NULL: none yet */
    float *place;                  /* device: [pixels], the present slice's map at each pixel */
    float *times;                  /* host: [most_samples] seconds */
    struct c32 *turns;             /* device: E_l of the present slice [segments][pixels] */
    struct c32 *interpolator;      /* device: conj(b_l) [segments][most_samples] */
    int batch;                     /* coils that are gridded together */
    struct c32 *data, *images;     /* device: [batch][most_samples], [batch][pixels] */
};

/* b of every sample of the present frame, or of a plane of its stack, out[l * samples + m]; readouts whose times are
 * those of the one before have its b. */
void field_interpolate(const struct field *field, const struct frame *frame, const size_t *offsets,
                       const struct stack *stack, const struct segments *segments, struct c32 *out);

#endif
