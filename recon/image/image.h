/* image.h: series of images, and the files they are served as. Host memory. */
#ifndef MRIRECON_IMAGE_H
#define MRIRECON_IMAGE_H

#include "gridding/base/num.h"
#include "recon/recon.h"

/* The position of one image, and its counters. */
struct image_info {
    float position[3]; /* of the volume's centre, mm, LPS (the ISMRMRD convention) */
    float read_dir[3], phase_dir[3], slice_dir[3];
    float fov_mm[3]; /* x, y, z */
    float table_position[3];
    uint16_t average, slice, contrast, phase, repetition, set;
    uint16_t series, index;
    uint32_t measurement_uid, time_stamp;
};

/* Images of one size. data: [count][channels][z][y][x], float32 magnitudes, phases in radians, -pi .. pi, where
 * `phases`, or complex64 where `complex_valued`. */
struct image_series {
    size_t count, channels, size[3]; /* size: x, y, z */
    bool complex_valued, phases;     /* not both */
    float slice_spacing_mm;  /* between neighbouring slices of a multi-slice 2-D series; 0: one slice or a volume */
    struct image_info *info; /* [count] */
    float *data;
    char *xml;   /* the scan's ISMRMRD header, NUL-terminated, or NULL */
    int threads; /* that may write it as a picture; 0: the caller's alone */
};

/* Counters that distinguish images at one place, the most significant first. */
enum image_counter { IMAGE_REPETITION, IMAGE_PHASE, IMAGE_CONTRAST, IMAGE_SET, IMAGE_AVERAGE, IMAGE_COUNTERS };
const char *image_counter_name(enum image_counter counter); /* "repetition", ... */

/* The frames of a series, in the order of npy's and NIfTI's: a frame is all that is alike but for its slice. */
struct image_frames {
    size_t count, size[IMAGE_COUNTERS];   /* of frames; of the values of each counter */
    bool grid;                            /* each combination of values is one frame, the last counter fastest */
    uint16_t (*counters)[IMAGE_COUNTERS]; /* [count] */
};

/* The caller frees counters. Fails with ERR_NO_MEMORY. */
int image_frames_find(struct image_frames *out, const struct image_series *series);

/* Allocate a zeroed series (info and data owned by it). Fails with ERR_NO_MEMORY. */
int image_series_create(struct image_series **out, size_t count, size_t channels, const size_t size[3],
                        bool complex_valued);
void image_series_free(struct image_series *series);

/* The forms an image is served in; names and media types are in image_formats.c, which links nothing. */
enum image_format {
    IMAGE_H5,
    IMAGE_NIFTI,
    IMAGE_PNG,
    IMAGE_NPY,
    IMAGE_DICOM,
    IMAGE_DICOM_ZIP,
    IMAGE_CFL,
    IMAGE_MRD,
    IMAGE_FORMATS
};
extern const struct result_form image_form;               /* of results that are images */
const char *image_format_name(enum image_format format);  /* "h5", "nii.gz", "png", "npy", "dcm", "dcm.zip", "cfl.tar",
                                                             "mrd": also the file's ending */
const char *image_format_media(enum image_format format); /* "application/x-hdf5", ... */

/* An upper bound of the size of a file of a series of this shape (count, channels, size, complex_valued are read) in
 * `format`, with an ISMRMRD header of `xml_bytes`. Returns false if it cannot be counted. */
bool image_file_most(const struct image_series *shape, enum image_format format, size_t xml_bytes, size_t *bytes);

/* Write `series` to `fd` (a file opened for writing, at 0) as `format`.
 * Complex values: h5 and npy keep them, NIfTI stores complex64, PNG and DICOM show magnitudes.
 * npy: [frame][channel][slice or z][y][x], a frame being all that is alike but for its slice; PNG: a tile for each of
 * these, at most 4096 pixels across and down. NIfTI: slices become z, frames t; cal_min and cal_max are PNG's window.
 * cfl.tar: BART's image.hdr and image.cfl, complex, dimensions x, y, z, coil (3), contrast (5), phase (6), repetition
 * (10), set (11), slice (13), average (14), as `bart twixread` has them; frames that are no grid are all in 10.
 * mrd: an MRD version 1 stream: the scan's header, the images in the order of the series, and the end.
 * Fails with ERR_IO, ERR_NO_MEMORY, ERR_SPOOL_FULL (no space left), ERR_LIMIT (more images than h5 and mrd count),
 * ERR_NOT_ACCEPTABLE (nothing is written; NIfTI: no one affine places all images, or they are too many; DICOM: more
 * than 4 GB of pixels; the sentence says why, and what to ask for). DICOM: Enhanced MR, 16 bits with one slope, frames
 * by coil, slice or z, and frame; dcm.zip: each of these frames as a classic MR image in a file of its own, 000001.dcm
 * and so on. UIDs follow from the images, so the same images have the same; those of study and frame of reference are
 * the scan's. */
int image_write(const struct image_series *series, enum image_format format, int fd);

/* The same as format h5, in two steps, for a series whose values come last. begin: write all else to an empty file; *at
 * (above 0) is the place of the values. info, xml and the shape stay the same from then on. finish: write the values.
 * Without that, the file is refused as truncated. Fail as image_write(); of a file whose beginning failed nothing can
 * be used. */
int image_begin_h5(const struct image_series *series, int fd, int64_t *at);
int image_finish_h5(const struct image_series *series, int fd, int64_t at);

/* Image `index` as its message in a stream of format mrd, which has image_message_bytes() of the series' shape: its
 * bytes from `at` on, as many as lie together (*count). What comes before the pixels, which end the message, is put
 * into `beginning`. NULL: the header cannot count them (ERR_LIMIT). */
enum { IMAGE_BEGINNING = 1024 };
const void *image_message_piece(const struct image_series *series, size_t index, size_t at,
                                char beginning[IMAGE_BEGINNING], size_t *count);
size_t image_message_bytes(const struct image_series *series);

/* Write one slice as PNG. Fails as image_write, and with ERR_NOT_ACCEPTABLE if there is no such frame, slice or
 * channel. */
int image_write_view(const struct image_series *series, const struct result_view *view, int fd);

/* Read back an image file that image_write(IMAGE_H5) wrote: `path` is opened read-only.
 * Fails with ERR_IO, ERR_MALFORMED_FILE, ERR_NO_MEMORY. */
int image_read_h5(struct image_series **out, const char *path);
/* The same, of an open file. */
int image_read_h5_fd(struct image_series **out, int fd);

#endif
