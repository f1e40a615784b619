/* image_dicom_inner.h: what the writers of DICOM share: elements from the scan's header, and frames. Only
 * recon/image/image_dicom*.c include this. */
#ifndef MRIRECON_IMAGE_DICOM_INNER_H
#define MRIRECON_IMAGE_DICOM_INNER_H

#include "recon/image/dicom.h"
#include "recon/image/image_leaf.h"

enum { DICOM_GREYS = 65535 };

/* What is written, in order: [frame][channel][slice][z]. */
struct dicom_series {
    const struct image_series *series;
    struct image_layout layout;
    size_t frames;     /* of the file */
    double low, slope; /* a pixel is low + slope * stored */
    double window[2];  /* shown as black and as white */
    char uid[3][65];   /* instance, series, dimensions */
};

/* ---- elements from the scan's header (image_dicom_head.c) ---- */

/* The text of the header's first element of this name; a UID of it if that is one, else one derived from the header. */
void dicom_put_header(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char vr[2], const char *name);
void dicom_put_uid(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char *name);

/* A positive number of the header, times `scale`; false: it has none, and nothing is written. */
bool dicom_put_number(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char *name, double scale);

#define ENHANCED_MR "1.2.840.10008.5.1.4.1.1.4.1"
#define CLASSIC_MR  "1.2.840.10008.5.1.4.1.1.4"

struct dicom_object {
    const char *sop_class, *instance, *image_type;
};

/* (0008,0005) to (0008,1090); group 0010; (0018,1000) to (0018,5100). */
void dicom_put_study(struct dicom *d, const struct dicom_series *m, const struct dicom_object *object);
void dicom_put_patient(struct dicom *d, const struct dicom_series *m);
void dicom_put_scanner(struct dicom *d, const struct dicom_series *m);

/* ---- frames (image_dicom_frames.c) ---- */

/* Fails with ERR_NO_MEMORY, ERR_NOT_ACCEPTABLE (more than 4 GB of pixels). dicom_series_close() frees. */
int dicom_series_open(struct dicom_series *m, const struct image_series *series);
void dicom_series_close(struct dicom_series *m);

/* Millimetres from a pixel, and a slice, to the next. */
void dicom_steps(const struct dicom_series *m, double step[3], double *thickness);

/* The source of a frame of the file. */
struct dicom_source {
    size_t moment, channel, slice, z;
    const struct image_info *info;
    const float *pixels;
};
struct dicom_source dicom_source_of(const struct dicom_series *m, size_t frame);

/* The centre of its first pixel, and its directions of rows, columns and slices. */
void dicom_place(const struct dicom_series *m, const struct dicom_source *from, double corner[3], double axis[3][3]);

/* Its pixels as they are stored: [ny][nx], little endian. */
void dicom_greys(const struct dicom_series *m, const struct dicom_source *from, uint16_t *greys);

#endif
