/* recon_steps.h: one job of kind "recon", and its steps, which recon/mri/run.c calls. Only recon/ includes this.
 */
#ifndef MRIRECON_RECON_STEPS_H
#define MRIRECON_RECON_STEPS_H

#include "gridding/traj/traj.h"
#include "recon/mri/frames.h"
#include "recon/image/image.h"
#include "gridding/base/dev.h"
#include "recon/kind_run.h"
#include "recon/mri/recon_job.h"

#include <jansson.h>

enum { MOST_BATCH = 16 }; /* coils uploaded to the device at a time */

/* Each step fills its members and reads those above. */
struct recon_job {
    struct dev *dev;
    const struct job_request *request;
    const struct job_listener *listener; /* may be NULL */
    double begun;                        /* clock_seconds() */
    double done, share;                  /* progress before the running part of the table in run.c, and its share */
    struct step_progress *told;          /* the last that was reported; NULL: it is not kept */

    const struct recon_input *input; /* of read(); NULL: the scan is the caller's */
    struct scan scan;                /* step "decode" */
    size_t scan_bytes;

    struct frames *frames; /* step "sort" */
    size_t samples;        /* of all frames */
    const struct scan_encoding *encoding;
    int dim, n[3]; /* of the encoding; n[2] = 1 in 2-D */
    int out_n[3];  /* of the images */
    double out_fov_mm[3];
    double out_k[3]; /* cycles per pixel of the images / cycles per pixel of the encoding */

    struct recon_early *early; /* NULL: the upload begins with the image */

    double scale[3];  /* step "trajectory": of the file's trajectory to cycles per pixel */
    int columns;      /* of the file's trajectory */
    int coordinates;  /* of them; 2 in a 3-D scan whose kz follows from the partition (kspace_encode_step_2), else `dim`
                       */
    bool has_weights; /* column `dim` contains density weights, and the parameters allow their use */
    uint64_t *hash;   /* [frames]: of the trajectory (and weights); equal for equal ones. NULL: one frame */

    /* step "noise": the job's coils from the scan's, by whitening, compression or both: mix [coils][mixed_coils].
     * mixed_coils 0: they are the scan's own. */
    int mixed_coils;
    struct c32 *mix;
    double delay[3]; /* gradient delays x, y, xy, in samples */
    bool compressed; /* to fewer, virtual coils; frame->coils is then their number */

    struct recon_cache *cache; /* step "images": the request's; NULL: no cache */
    bool *coil_lives;          /* step "images", [coils]: the coil has a sample that is not 0 */
    struct image_series *images;
    struct image_series *maps;       /* of the same images: a channel for each coil; NULL: not requested */
    struct recon_files *files;       /* of these, begun; NULL: none is */
    bool *made;                      /* step "images", [frames]: the image is complete */
    size_t shown;                    /* number of complete images from the first on */
    const struct recon_made *before; /* images of the scan's beginning (recon_made.h); NULL: none */
    bool lent;                       /* images->data is memory of `before` */
    size_t decisions, warnings;      /* in the report when step "images" began */
    const struct recon_feed *fed;    /* what was gridded ahead (recon_parts.h); NULL: nothing */
    struct recon_feed *feed;         /* grid ahead, into this, and make no image; NULL: make the images */
    struct recon_made **keep;        /* the scan is a beginning: receives its images; NULL: it is complete */
    struct recon_seen *seen;         /* of a scan that arrives (recon_seen.h); NULL: nothing is kept of its readouts */
    const struct frames_begun *more; /* and readouts will follow; NULL: none will */
    size_t host_memory;              /* of a scan that arrives: bytes that were available lately; 0: unknown */
    uint64_t most_bytes;             /* limit of the results' files */
    json_t *report;
};

int recon_trajectory(struct recon_job *job);
int recon_noise(struct recon_job *job);
int recon_compress(struct recon_job *job);
int recon_delay(struct recon_job *job);
/* Whether the parameters compress so many coils, by the data of all readouts. */
bool recon_compresses(const struct param_values *values, int coils);
int recon_images(struct recon_job *job);

/* The job's parameter, by its index. */
static inline int64_t recon_choice(const struct recon_job *job, enum recon_param param)
{
    return job->request->values->value[param].integer;
}

static inline bool recon_wants(const struct recon_job *job, enum recon_result result)
{
    return recon_choice(job, RECON_RESULTS_WANTED) >> result & 1;
}

/* Whether the coils are combined into one image, whether that is the root of the sum of squares, and whether its pixels
 * are complex. */
static inline bool recon_combines(const struct recon_job *job)
{
    return recon_choice(job, RECON_COILS) != RECON_COILS_NONE;
}

static inline bool recon_squares(const struct recon_job *job)
{
    return recon_choice(job, RECON_COILS) == RECON_COILS_RSS;
}

/* Whether they are combined with maps. */
static inline bool recon_maps(const struct recon_job *job)
{
    return recon_combines(job) && !recon_squares(job);
}

static inline bool recon_complex_out(const struct recon_job *job)
{
    return recon_choice(job, RECON_OUTPUT) == RECON_OUTPUT_COMPLEX;
}

static inline bool recon_iterates(const struct recon_job *job)
{
    return recon_choice(job, RECON_METHOD) != RECON_METHOD_ADJOINT;
}

/* Whether all images of a series are solved together. */
static inline bool recon_series(const struct recon_job *job)
{
    return recon_choice(job, RECON_METHOD) >= RECON_METHOD_TEMPORAL_TV;
}

/* The number of threads for a pass over this many samples: for few, one thread is faster. A job on a GPU that is not
 * large uses FEW: on a machine with many cores, to wake them all takes longer than its passes. The number is the same
 * in all passes of a job, and on a CPU that of gridding: libgomp ends the threads that a smaller team does not need,
 * and starts others for the next larger one. */
static inline int recon_threads(const struct recon_job *job, size_t samples)
{
    enum { ALONE = 1 << 16, FEW = 4, MANY_SAMPLES = 1 << 20 };
    const int all = dev_threads(job->dev);
    const bool few = dev_is_gpu(job->dev) && job->samples < MANY_SAMPLES && all > FEW;
    return samples <= ALONE ? 1 : few ? FEW : all;
}

/* Run a job on a decoded scan, which stays the caller's. Fails as kind_run.run() and kind_check(). */
int recon_run_scan(struct job_outcome *out, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan);

/* See kind_run.h. */
int recon_read(void **input, const struct job_request *request, const struct job_listener *listener);
void recon_input_free(void *input);
int recon_run(struct job_outcome *out, struct dev *dev, const struct job_request *request,
              const struct job_listener *listener, const void *input);

/* The images of a scan by the parameters; with `begun`, the complete ones of the beginning of a scan. `arriving`: of
 * the beginning of a scan, also those that are not complete. `grown`: of frames_follow(), for a scan that arrives;
 * NULL: it does not. Fails as frames_create(). */
int recon_frames(struct frames **out, const struct job_request *request, const struct scan *scan,
                 const struct frames_begun *begun, bool arriving, struct frames_grown **grown);

/* Compute the complete images of the beginning of a scan; `begun`: what was found and computed of a shorter one.
 * `more`: readouts will follow; NULL: none will, and all images are complete. *out: the caller's. Fails likewise. */
struct recon_made;
struct recon_feed;
struct recon_begun; /* recon_made.h */
int recon_run_part(struct recon_made **out, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan, const struct frames_begun *more,
                   struct recon_begun *begun);
/* Grid of the beginning of a scan what can be, and add it to begun->feed. Fails likewise. */
int recon_run_feed(struct recon_begun *begun, struct dev *dev, const struct job_request *request,
                   const struct job_listener *listener, const struct scan *scan);

/* Warn if images of a series divided in time cover only a wedge of k-space (recon_cover.c). Fails with ERR_NO_MEMORY.
 */
int recon_cover_warn(struct recon_job *job);

/* ---- trajectories of one frame (recon_traj.c) ---- */

/* Samples of the frame's readouts before each: offsets[frame->count + 1]. */
void recon_frame_offsets(const struct recon_job *job, const struct frame *frame, size_t *offsets);

/* The frame's readouts [first, end) as a frame, and the samples before each of them: *own [end - first + 1], malloc.
 * offsets: the whole frame's. Fails with ERR_NO_MEMORY. */
int recon_frame_cut(const struct frame *frame, const size_t *offsets, size_t first, size_t end, struct frame *part,
                    size_t **own);

/* k[samples][dim] in cycles per pixel of the encoding; weights[samples] from the file's column (NULL: not needed). */
void recon_frame_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, float *k,
                        float *weights);

/* Whether readout i + 1 of the frame continues readout i: it is the next segment of the same line, without a jump in k
 * (some scans count their spokes as segments). */
bool recon_readout_continues(const struct recon_job *job, const struct frame *frame, const size_t *offsets,
                             const float *k, size_t i);

/* The frame as curves of one length: readouts, or arms stored as several consecutive segments. False if lengths differ.
 */
bool recon_frame_curves(const struct recon_job *job, const struct frame *frame, const size_t *offsets, const float *k,
                        size_t *curves, size_t *samples);

/* Density weights of the frame, for k[samples][dim] in cycles per pixel of the encoding. `weights` contains the file's
 * if the job has them. Progress runs from `base` over `span` of the images. Fails as dcf_analytic() and dcf_pipe() do.
 */
int recon_frame_density(struct recon_job *job, const struct frame *frame, const size_t *offsets, const float *k,
                        float *weights, double base, double span);

/* Shift the spokes in k[samples][dim] by the job's gradient delays (recon_delay.c). */
void recon_delay_apply(const struct recon_job *job, const struct frame *frame, const size_t *offsets, float *k);

/* ---- coils (coils.c) ---- */

/* One coil of a readout: out[frames_kept(readout)], mixed from the scan's coils if the job has a matrix. */
void recon_coil_mix(const struct recon_job *job, const struct scan_readout *readout, int coil, struct c32 *out);

/* Gather `count` coils of a frame from `first` on, mixed if the job has a matrix: out[count][samples]. Records in
 * job->coil_lives which coils have a signal. Fails with ERR_DATA_NONFINITE. */
int recon_coils_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int first,
                       int count, struct c32 *out);
/* The same of one coil. */
int recon_coil_gather(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int coil,
                      struct c32 *out);
/* As recon_coils_gather(), of coils that are the scan's own (mixed_coils 0), to the device's data[count][samples], by
 * dev_upload_fill(). Fails with ERR_DATA_NONFINITE and ERR_DEVICE. */
int recon_coils_upload(const struct recon_job *job, const struct frame *frame, const size_t *offsets, int first,
                       int count, struct c32 *data);
/* That upload of a small job's only image, begun on a GPU when its readouts are known, beside the steps before
 * gridding. begin: job->early, if memory allows. bytes: of the device's memory that it has, and that the image needs no
 * more; 0 once it is taken. take: data[coils][samples] on the device, the caller's to release after recon_early_free();
 * NULL: there is none. is: whether coils from `first` on are on their way to `data`; then recon_early_end() waits for
 * them in place of recon_coils_upload(), and fails likewise. free: waits for an upload that nobody waited for;
 * err_last() stays. The job's thread calls all of them; until the end others read the scan and the frames, and write
 * job->coil_lives. */
void recon_early_begin(struct recon_job *job);
size_t recon_early_bytes(const struct recon_job *job);
struct c32 *recon_early_take(struct recon_job *job);
bool recon_early_is(const struct recon_job *job, const struct c32 *data, int first);
int recon_early_end(struct recon_job *job);
void recon_early_free(struct recon_job *job);

/* After all coils of all frames were gathered: warn of those that contain only zeros. False: all do. */
bool recon_coils_report(struct recon_job *job, int coils);

/* The first readout from `first` on before which there are `samples` or more; offsets ascend up to that of `last`. */
size_t recon_offset_find(const size_t *offsets, size_t first, size_t last, size_t samples);

/* The samples of one coil of a readout without the discarded ones: [frames_kept(readout)]. */
const struct c32 *recon_kept_data(const struct recon_job *job, const struct scan_readout *readout, int coil);
bool recon_any_nonfinite(const struct c32 *data, size_t count);
int recon_data_nonfinite(const struct scan_readout *readout); /* sets ERR_DATA_NONFINITE */

/* The inverse of Cholesky's factor of the lower triangle of Hermitian covariance[n][n], which is overwritten:
 * out[n][n], lower triangular, scaled so that the coils' mean noise power stays the same. Returns 1 if the covariance
 * is not positive definite. Fails with ERR_NO_MEMORY. */
int recon_whitening(int n, double (*covariance)[2], struct c32 *out);

/* Whether the coils are combined with the scan's own maps (recon_given.c); coils=adaptive uses estimated ones. */
static inline bool recon_maps_given(const struct recon_job *job)
{
    return job->scan.maps && recon_choice(job, RECON_COILS) != RECON_COILS_ADAPTIVE;
}

/* These maps, for images of n[] pixels, with the voxels of the encoding: maps[coils][z][y][x], device memory; *support:
 * the share of pixels with a map. Fails with ERR_COILS_DIFFER, ERR_DATA_NONFINITE, ERR_NO_MEMORY, ERR_DEVICE. */
int recon_given_maps(const struct recon_job *job, int coils, const int n[3], struct c32 *maps, double *support);

/* Check that the scan's coil or field map fits the reconstructed encoding: it has the first encoding's matrix. Fails
 * with ERR_MALFORMED_FILE. */
int recon_given_check(const struct recon_job *job, const char *what);

/* ---- files (recon_files.c) ---- */

/* Begin native files of the job's images and maps, whose shape, places and header are there, in a thread of its own, on
 * a GPU: a CPU has no processor to spare. end: wait for that; `failed`: they are to be empty again. */
void recon_files_begin(struct recon_job *job);
void recon_files_end(struct recon_job *job, bool failed);

/* ---- report (recon_report.c) ---- */

/* Report to the listener that `fraction` of the running part of the table in run.c is done, and `iteration` of
 * `iterations` of the step's unit (0 of 0: it has none). Fails with ERR_CANCELED. */
int recon_tell(const struct recon_job *job, enum recon_step step, double fraction, int64_t iteration,
               int64_t iterations);
/* Report the same again: what the device asks during a long computation (gridding/base/ask.h); `job` as void *. Fails
 * with ERR_CANCELED. */
int recon_asked(void *job);
int recon_report_create(json_t **out);
void recon_report_stage(struct recon_job *job, const char *name, double seconds); /* adds to an existing value */
void recon_report_number(struct recon_job *job, const char *name, double value);
void recon_report_decide(struct recon_job *job, const char *what, const char *value, const char *reason, ...)
    __attribute__((format(printf, 4, 5)));
/* Replace the report's decisions by an empty list and return the old list. The caller passes it to recon_report_back(),
 * which appends the decisions made meanwhile, and frees what that returns. */
json_t *recon_report_aside(struct recon_job *job);
json_t *recon_report_back(struct recon_job *job, json_t *before);
/* Add decisions of before. */
void recon_report_repeat(struct recon_job *job, const json_t *decisions);
/* What distinguishes the frames of the images, if there are several: "frames". */
int recon_report_frames(struct recon_job *job);
void recon_report_warn(struct recon_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
