/* DICOM for any system: MR Image Storage (PS3.3 A.4), one file per slice, coil and moment, in one zip archive. Marked
 * DERIVED, like the Enhanced MR file (image_dicom.c), with the same study, values and positions. */
#include "recon/image/image_dicom_inner.h"
#include "recon/image/zip_put.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A frame as a separate image. */
struct dicom_slice {
    uint32_t number; /* from 1 on, in the order of the frames */
    struct dicom_source from;
    char instance[65], series[65];
};

/* UIDs are derived from those of the Enhanced MR file, which depend on the images: the same images have the same
 * UIDs. */
static void slice_uids(struct dicom_slice *slice, const struct dicom_series *m)
{
    static const char what[] = "classic";
    struct dicom_hash hash;
    dicom_hash_begin(&hash);
    dicom_hash_add(&hash, m->uid[1], strlen(m->uid[1]));
    dicom_hash_add(&hash, what, sizeof what);
    dicom_hash_uid(&hash, slice->series);
    dicom_hash_add(&hash, &slice->number, sizeof slice->number);
    dicom_hash_uid(&hash, slice->instance);
}

/* A number that the class requires; empty if the header does not have it. */
static void put_asked(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char *name)
{
    if (!dicom_put_number(d, m, tag, name, 1))
        dicom_text(d, tag, "DS", "");
}

static void put_acquisition(struct dicom *d, const struct dicom_series *m, const struct dicom_slice *slice)
{
    double step[3], thickness;
    dicom_steps(m, step, &thickness);
    dicom_text(d, DICOM_TAG(0x0018, 0x0020), "CS", "RM");
    dicom_text(d, DICOM_TAG(0x0018, 0x0021), "CS", "NONE");
    dicom_text(d, DICOM_TAG(0x0018, 0x0022), "CS", "");
    dicom_text(d, DICOM_TAG(0x0018, 0x0023), "CS", m->series->size[2] > 1 ? "3D" : "2D");
    dicom_numbers(d, DICOM_TAG(0x0018, 0x0050), &thickness, 1);
    put_asked(d, m, DICOM_TAG(0x0018, 0x0080), "TR");
    put_asked(d, m, DICOM_TAG(0x0018, 0x0081), "TE");
    dicom_integer(d, DICOM_TAG(0x0018, 0x0086), slice->from.info->contrast + 1);
    dicom_put_number(d, m, DICOM_TAG(0x0018, 0x0087), "systemFieldStrength_T", 1);
    dicom_numbers(d, DICOM_TAG(0x0018, 0x0088), &step[2], 1);
    dicom_text(d, DICOM_TAG(0x0018, 0x0091), "IS", "");
    dicom_put_scanner(d, m);
}

static void put_image(struct dicom *d, const struct dicom_series *m, const struct dicom_slice *slice)
{
    double corner[3], axis[3][3], along = 0;
    dicom_place(m, &slice->from, corner, axis);
    for (int i = 0; i < 3; i++)
        along += corner[i] * axis[2][i];
    dicom_put_uid(d, m, DICOM_TAG(0x0020, 0x000d), "studyInstanceUID");
    dicom_text(d, DICOM_TAG(0x0020, 0x000e), "UI", slice->series);
    dicom_put_header(d, m, DICOM_TAG(0x0020, 0x0010), "SH", "studyID");
    dicom_integer(d, DICOM_TAG(0x0020, 0x0011), m->series->info[0].series);
    dicom_integer(d, DICOM_TAG(0x0020, 0x0012), (int)slice->from.channel + 1);
    dicom_integer(d, DICOM_TAG(0x0020, 0x0013), (int)slice->number);
    dicom_numbers(d, DICOM_TAG(0x0020, 0x0032), corner, 3);
    dicom_numbers(d, DICOM_TAG(0x0020, 0x0037), axis[0], 6);
    dicom_put_uid(d, m, DICOM_TAG(0x0020, 0x0052), "frameOfReferenceUID");
    dicom_text(d, DICOM_TAG(0x0020, 0x0060), "CS", "");
    dicom_integer(d, DICOM_TAG(0x0020, 0x0100), (int)slice->from.moment + 1);
    dicom_integer(d, DICOM_TAG(0x0020, 0x0105), (int)m->layout.frames);
    dicom_text(d, DICOM_TAG(0x0020, 0x1040), "LO", "");
    dicom_numbers(d, DICOM_TAG(0x0020, 0x1041), &along, 1);
}

/* The meaning of a stored number. The class has no rescale slope for display, so windows are in stored numbers. */
static void put_meaning(struct dicom *d, const struct dicom_series *m)
{
    dicom_sequence(d, DICOM_TAG(0x0040, 0x9096));
    dicom_item(d);
    dicom_text(d, DICOM_TAG(0x0028, 0x3003), "LO", m->series->phases ? "Phase" : "Magnitude");
    dicom_sequence(d, DICOM_TAG(0x0040, 0x08ea));
    dicom_item(d);
    dicom_text(d, DICOM_TAG(0x0008, 0x0100), "SH", m->series->phases ? "rad" : "1");
    dicom_text(d, DICOM_TAG(0x0008, 0x0102), "SH", "UCUM");
    dicom_text(d, DICOM_TAG(0x0008, 0x0104), "LO", m->series->phases ? "radian" : "no units");
    dicom_end(d);
    dicom_end(d);
    dicom_text(d, DICOM_TAG(0x0040, 0x9210), "SH", m->series->phases ? "PHASE" : "MAGNITUDE");
    dicom_u16(d, DICOM_TAG(0x0040, 0x9211), DICOM_GREYS);
    dicom_u16(d, DICOM_TAG(0x0040, 0x9216), 0);
    dicom_double(d, DICOM_TAG(0x0040, 0x9224), m->low);
    dicom_double(d, DICOM_TAG(0x0040, 0x9225), m->slope);
    dicom_end(d);
    dicom_end(d);
}

static void put_values(struct dicom *d, const struct dicom_series *m)
{
    const double black = (m->window[0] - m->low) / m->slope, white = (m->window[1] - m->low) / m->slope;
    const double centre = (black + white) / 2, width = white - black;
    double step[3], thickness;
    dicom_steps(m, step, &thickness);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0002), 1);
    dicom_text(d, DICOM_TAG(0x0028, 0x0004), "CS", "MONOCHROME2");
    dicom_u16(d, DICOM_TAG(0x0028, 0x0010), (uint16_t)m->series->size[1]);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0011), (uint16_t)m->series->size[0]);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x0030), (const double[]){step[1], step[0]}, 2);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0100), 16);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0101), 16);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0102), 15);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0103), 0);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x1050), &centre, 1);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x1051), &width, 1);
    put_meaning(d, m);
}

static int slice_put(struct zip_put *zip, const struct dicom_series *m, const struct dicom_slice *slice,
                     uint16_t *greys)
{
    const struct dicom_object object = {
        CLASSIC_MR, slice->instance, m->series->phases ? "DERIVED\\PRIMARY\\OTHER\\P" : "DERIVED\\PRIMARY\\OTHER\\M"};
    const size_t bytes = m->series->size[0] * m->series->size[1] * sizeof *greys;
    struct dicom d = {.bytes = NULL};
    char name[ZIP_PUT_NAME];
    snprintf(name, sizeof name, "%06u.dcm", slice->number);
    dicom_begin(&d, object.sop_class, object.instance);
    dicom_put_study(&d, m, &object);
    dicom_put_patient(&d, m);
    put_acquisition(&d, m, slice);
    put_image(&d, m, slice);
    put_values(&d, m);
    dicom_pixels(&d, (uint32_t)bytes);
    dicom_greys(m, &slice->from, greys);
    int rc = d.failed ? err_no_memory("a DICOM header") : zip_put_file(zip, name, d.bytes, d.used, greys, bytes);
    free(d.bytes);
    return rc;
}

int image_write_dicom_zip(const struct image_series *series, int fd)
{
    struct dicom_series m;
    struct zip_put zip;
    uint16_t *greys = NULL;
    int rc = dicom_series_open(&m, series);
    if (rc == 0 && !(greys = malloc(series->size[0] * series->size[1] * sizeof *greys)))
        rc = err_no_memory("a slice of %zu x %zu pixels", series->size[0], series->size[1]);
    zip_put_begin(&zip, fd);
    for (size_t f = 0; f < m.frames && rc == 0; f++) {
        struct dicom_slice slice = {.number = (uint32_t)f + 1, .from = dicom_source_of(&m, f)};
        slice_uids(&slice, &m);
        rc = slice_put(&zip, &m, &slice, greys);
    }
    rc = zip_put_end(&zip, rc);
    free(greys);
    dicom_series_close(&m);
    return rc;
}
