/* field.h: off-resonance correction with the scan's field map f [Hz], one for all slices or one for each. A sample at
 * k, t seconds after the start of its readout, is
 *
 *   s(k, t) = sum over r of x(r) exp(-2 pi i (k . r + f(r) t)) = sum over l of b_l(t) A (E_l x)(k)
 *
 * by time segments l (recon/mri/segments.h), E_l = exp(-2 pi i f tau_l), A being the transform without a field.
 *
 *   adjoint            sum_l conj(E_l) A' conj(b_l) y                  conjugate phase
 *   normal operator    sum_l conj(E_l) (A' W b'_l A) E_l x             b'_l: of differences of frequencies, real
 *
 * so that of each segment the normal operator has a kernel as one without a field has (gridding/nufft/normal.h). Only
 * recon/mri/ includes this.
 */
#ifndef MRIRECON_FIELD_H
#define MRIRECON_FIELD_H

#include "gridding/nufft/normal.h"
#include "gridding/op.h"
#include "recon/mri/recon_steps.h"

struct field;

/* *out is NULL if the scan has no field map, if the parameters do not use it, or if it changes the phase of no sample
 * by as much as the tolerance (reported as a decision). Uses little memory. Fails with ERR_DATA_NONFINITE,
 * ERR_MALFORMED_FILE (the map has another matrix, there are more than one and not one for each slice, samples without
 * a time), ERR_LIMIT (more segments than SEGMENTS_MOST), ERR_NO_MEMORY. */
int field_open(struct field **out, struct recon_job *job);
void field_free(struct field *field);
int field_segments(const struct field *field);

/* Device memory, in bytes, that field_load() takes for images of `pixels`, and samples[most_samples]; false: more than
 * can be counted. */
bool field_bytes(const struct field *field, size_t pixels, size_t most_samples, int batch, size_t *bytes);

/* Memory on the job's device for images of n[] pixels; up to `batch` coils will be gridded together. Fails as
 * dev_alloc(). */
int field_load(struct field *field, const int n[3], size_t most_samples, int batch);

/* The E_l of the frame's slice: before field_adjoint() and the normal operator. Fails as dev_upload(). */
int field_slice(struct field *field, const struct frame *frame);
/* The map of field_slice(): tells slices apart. */
const float *field_map(const struct field *field);

/* *why is set where the partitions of `stack` have different sampling times. Fails with ERR_MALFORMED_FILE. */
struct stack;
int field_times(struct field *field, const struct frame *frame, const size_t *offsets, const float *k,
                const struct stack *stack, const char **why);

/* The b_l of a frame's samples, or of those of one plane of `stack` (NULL: it is none); k[samples][dim], in any unit,
 * tells which readouts go on. Fails as dev_upload(). */
int field_frame(struct field *field, const struct frame *frame, const size_t *offsets, const float *k,
                const struct stack *stack);

/* Conjugate phase: images[count][pixels] of data[count][planes][samples], of the frame of field_frame(), as is `plan`,
 * which makes one of the planes of an image. Asks before each segment of some coils. Fails as nufft_adjoint(), and with
 * the answer. */
int field_adjoint(struct field *field, struct nufft *plan, int count, int planes, const struct c32 *data,
                  struct c32 *images, const struct normal_ask *ask);

/* The kernels of the normal operator of the same frame and stack, kernels[segments][normal_kernel_elements()]: of
 * `plan` and its k with weights[samples], which it has again afterwards. *normal is an operator of these sizes, the
 * caller's. Fails as normal_create_of(). */
int field_kernels(struct field *field, struct normal **normal, const struct nufft_params *params, struct nufft *plan,
                  const struct stack *stack, const float *k, const float *weights, struct c32 **kernels,
                  const struct normal_ask *ask);

/* The normal operator with a field, of `inner`, the one without, which uses `normal`. */
struct field_normal {
    const struct field *field;
    struct normal *normal;
    const struct c32 *kernels;
    struct op inner;
    struct c32 *turned, *part; /* device: [pixels] each */
};
int field_normal_open(struct field_normal *out, const struct field *field, struct normal *normal, struct op inner,
                      const struct c32 *kernels);
void field_normal_close(struct field_normal *normal);
struct op field_normal_op(struct field_normal *normal); /* `normal` alone is set */

#endif
