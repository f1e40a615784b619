/* nufft_parts.h: an adjoint whose samples arrive in parts, during a measurement.
 *
 * The adjoint is linear in its samples: each part is gridded when it arrives, and little more than the FFT remains at
 * the end. The CPU sums each part into grids of all transforms, and transforms the lines along one axis that no later
 * part reaches; in 2-D, along the axis of which this leaves less to the last part. A GPU, whose gridding takes less
 * time than the upload, keeps the samples and transforms them at the end.
 *
 * The same bits for the same division, whatever the timing, because parts are added in order. On the CPU another
 * division has other roundings; on a GPU, and on the CPU with one part, the bits are those of nufft_adjoint(). Memory,
 * threads and device are as in nufft.h.
 */
#ifndef MRIRECON_NUFFT_PARTS_H
#define MRIRECON_NUFFT_PARTS_H

#include "gridding/nufft/nufft.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nufft_parts;

/* For `batch` transforms by `plan`, which must outlive this and must not be used otherwise during a call. Part p is
 * samples first[p] to first[p + 1] - 1 of the plan's, of `count` parts; first[0] is 0, first[count] all samples, and no
 * part is empty. k[samples][dim] and weights[samples] (NULL: all 1) are the plan's; host memory, read during the call
 * only. Fails with ERR_BAD_PARAMETER, ERR_NO_MEMORY, ERR_GPU_OOM, ERR_DEVICE. */
int nufft_parts_create(struct nufft_parts **out, struct nufft *plan, int batch, int count, const size_t *first,
                       const float *k, const float *weights);
void nufft_parts_free(struct nufft_parts *parts);
size_t nufft_parts_bytes(const struct nufft_parts *parts); /* bytes of device memory */

/* Start again: parts 0, 1, .. follow. Fails with ERR_DEVICE. */
int nufft_parts_begin(struct nufft_parts *parts);
/* The device memory [samples of the part] into which the data of the next part's transform `transform` must be written.
 */
struct c32 *nufft_parts_data(struct nufft_parts *parts, int transform);
/* Add the next part, whose data have been written. Fails with ERR_DEVICE. */
int nufft_parts_add(struct nufft_parts *parts);
int nufft_parts_added(const struct nufft_parts *parts); /* parts added since nufft_parts_begin() */

/* After the last part, as nufft_adjoint(): image[batch][nz][ny][nx], and as nufft_adjoint_squares(). Consumes the sums.
 * Fail with ERR_DEVICE. */
int nufft_parts_image(struct nufft_parts *parts, struct c32 *image);
int nufft_parts_squares(struct nufft_parts *parts, float *squares);

#ifdef __cplusplus
}
#endif
#endif
