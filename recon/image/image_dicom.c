/* DICOM: one file of Enhanced MR Image Storage (PS3.3 A.36.2), with a frame for each slice, coil and moment. The frames
 * are marked DERIVED: ORIGINAL ones require attributes of the scanner (timing, coils, averages) that a scan does not
 * contain. */
#include "recon/image/image_dicom_inner.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups of elements ---- */

static void put_frame_kind(struct dicom *d, const struct dicom_series *m)
{
    dicom_text(d, DICOM_TAG(0x0008, 0x9205), "CS", "MONOCHROME");
    dicom_text(d, DICOM_TAG(0x0008, 0x9206), "CS", "VOLUME");
    dicom_text(d, DICOM_TAG(0x0008, 0x9207), "CS", "NONE");
    dicom_text(d, DICOM_TAG(0x0008, 0x9208), "CS", m->series->phases ? "PHASE" : "MAGNITUDE");
    dicom_text(d, DICOM_TAG(0x0008, 0x9209), "CS", "UNKNOWN");
}

/* Frames are indexed by coil (a stack each), position within the stack, and moment. */
static void put_dimensions(struct dicom *d, const struct dicom_series *m)
{
    static const uint32_t pointers[] = {DICOM_TAG(0x0020, 0x9056), DICOM_TAG(0x0020, 0x9057),
                                        DICOM_TAG(0x0020, 0x9128)};
    dicom_put_uid(d, m, DICOM_TAG(0x0020, 0x000d), "studyInstanceUID");
    dicom_text(d, DICOM_TAG(0x0020, 0x000e), "UI", m->uid[1]);
    dicom_put_header(d, m, DICOM_TAG(0x0020, 0x0010), "SH", "studyID");
    dicom_integer(d, DICOM_TAG(0x0020, 0x0011), m->series->info[0].series);
    dicom_integer(d, DICOM_TAG(0x0020, 0x0013), 1);
    dicom_put_uid(d, m, DICOM_TAG(0x0020, 0x0052), "frameOfReferenceUID");
    dicom_text(d, DICOM_TAG(0x0020, 0x1040), "LO", "");
    dicom_sequence(d, DICOM_TAG(0x0020, 0x9221));
    dicom_item(d);
    dicom_text(d, DICOM_TAG(0x0020, 0x9164), "UI", m->uid[2]);
    dicom_end(d);
    dicom_end(d);
    dicom_sequence(d, DICOM_TAG(0x0020, 0x9222));
    for (size_t i = 0; i < sizeof pointers / sizeof *pointers; i++) {
        dicom_item(d);
        dicom_text(d, DICOM_TAG(0x0020, 0x9164), "UI", m->uid[2]);
        dicom_tag(d, DICOM_TAG(0x0020, 0x9165), pointers[i]);
        dicom_tag(d, DICOM_TAG(0x0020, 0x9167), DICOM_TAG(0x0020, 0x9111));
        dicom_end(d);
    }
    dicom_end(d);
}

static void put_format(struct dicom *d, const struct dicom_series *m)
{
    dicom_u16(d, DICOM_TAG(0x0028, 0x0002), 1);
    dicom_text(d, DICOM_TAG(0x0028, 0x0004), "CS", "MONOCHROME2");
    dicom_integer(d, DICOM_TAG(0x0028, 0x0008), (int)m->frames);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0010), (uint16_t)m->series->size[1]);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0011), (uint16_t)m->series->size[0]);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0100), 16);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0101), 16);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0102), 15);
    dicom_u16(d, DICOM_TAG(0x0028, 0x0103), 0);
    dicom_text(d, DICOM_TAG(0x0028, 0x0301), "CS", "NO");
    dicom_text(d, DICOM_TAG(0x0028, 0x2110), "CS", "00");
    dicom_sequence(d, DICOM_TAG(0x0040, 0x0555));
    dicom_end(d);
    dicom_text(d, DICOM_TAG(0x2050, 0x0020), "CS", "IDENTITY");
}

/* ---- functional groups ---- */

static void put_measures(struct dicom *d, const struct dicom_series *m)
{
    double step[3], thickness;
    dicom_steps(m, step, &thickness);
    dicom_sequence(d, DICOM_TAG(0x0028, 0x9110));
    dicom_item(d);
    dicom_numbers(d, DICOM_TAG(0x0018, 0x0050), &thickness, 1);
    dicom_numbers(d, DICOM_TAG(0x0018, 0x0088), &step[2], 1);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x0030), (const double[]){step[1], step[0]}, 2);
    dicom_end(d);
    dicom_end(d);
}

static void put_anatomy(struct dicom *d)
{
    dicom_sequence(d, DICOM_TAG(0x0020, 0x9071));
    dicom_item(d);
    dicom_sequence(d, DICOM_TAG(0x0008, 0x2218));
    dicom_item(d);
    dicom_text(d, DICOM_TAG(0x0008, 0x0100), "SH", "38266002");
    dicom_text(d, DICOM_TAG(0x0008, 0x0102), "SH", "SCT");
    dicom_text(d, DICOM_TAG(0x0008, 0x0104), "LO", "Entire body");
    dicom_end(d);
    dicom_end(d);
    dicom_text(d, DICOM_TAG(0x0020, 0x9072), "CS", "U");
    dicom_end(d);
    dicom_end(d);
}

static void put_values(struct dicom *d, const struct dicom_series *m)
{
    const double centre = (m->window[0] + m->window[1]) / 2, width = m->window[1] - m->window[0];
    dicom_sequence(d, DICOM_TAG(0x0028, 0x9132));
    dicom_item(d);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x1050), &centre, 1);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x1051), &width, 1);
    dicom_end(d);
    dicom_end(d);
    dicom_sequence(d, DICOM_TAG(0x0028, 0x9145));
    dicom_item(d);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x1052), &m->low, 1);
    dicom_numbers(d, DICOM_TAG(0x0028, 0x1053), &m->slope, 1);
    dicom_text(d, DICOM_TAG(0x0028, 0x1054), "LO", "US");
    dicom_end(d);
    dicom_end(d);
}

static void put_shared(struct dicom *d, const struct dicom_series *m)
{
    dicom_sequence(d, DICOM_TAG(0x5200, 0x9229));
    dicom_item(d);
    dicom_sequence(d, DICOM_TAG(0x0018, 0x9226));
    dicom_item(d);
    dicom_text(d, DICOM_TAG(0x0008, 0x9007), "CS", "DERIVED\\PRIMARY\\OTHER\\NONE");
    put_frame_kind(d, m);
    dicom_end(d);
    dicom_end(d);
    put_anatomy(d);
    put_measures(d, m);
    put_values(d, m);
    dicom_end(d);
    dicom_end(d);
}

static void put_place(struct dicom *d, const struct dicom_series *m, const struct dicom_source *from)
{
    double corner[3], axis[3][3];
    dicom_place(m, from, corner, axis);
    dicom_sequence(d, DICOM_TAG(0x0020, 0x9113));
    dicom_item(d);
    dicom_numbers(d, DICOM_TAG(0x0020, 0x0032), corner, 3);
    dicom_end(d);
    dicom_end(d);
    dicom_sequence(d, DICOM_TAG(0x0020, 0x9116));
    dicom_item(d);
    dicom_numbers(d, DICOM_TAG(0x0020, 0x0037), axis[0], 6);
    dicom_end(d);
    dicom_end(d);
}

static void put_frames(struct dicom *d, const struct dicom_series *m)
{
    dicom_sequence(d, DICOM_TAG(0x5200, 0x9230));
    for (size_t f = 0; f < m->frames; f++) {
        const struct dicom_source from = dicom_source_of(m, f);
        const uint32_t place[] = {(uint32_t)from.channel + 1, (uint32_t)(from.slice * m->series->size[2] + from.z) + 1,
                                  (uint32_t)from.moment + 1};
        char stack[16];
        snprintf(stack, sizeof stack, "%u", place[0]);
        dicom_item(d);
        dicom_sequence(d, DICOM_TAG(0x0020, 0x9111));
        dicom_item(d);
        dicom_text(d, DICOM_TAG(0x0020, 0x9056), "SH", stack);
        dicom_u32(d, DICOM_TAG(0x0020, 0x9057), &place[1], 1);
        dicom_u32(d, DICOM_TAG(0x0020, 0x9128), &place[2], 1);
        dicom_u32(d, DICOM_TAG(0x0020, 0x9157), place, 3);
        dicom_end(d);
        dicom_end(d);
        put_place(d, m, &from);
        dicom_end(d);
    }
    dicom_end(d);
}

/* ---- the file ---- */

static int pixels_put(const struct dicom_series *m, int fd)
{
    const size_t pixels = m->series->size[0] * m->series->size[1];
    uint16_t *greys = malloc(pixels * sizeof *greys);
    int rc = greys ? 0 : err_no_memory("a slice of %zu pixels", pixels);
    for (size_t f = 0; f < m->frames && rc == 0; f++) {
        const struct dicom_source from = dicom_source_of(m, f);
        dicom_greys(m, &from, greys);
        rc = image_put(fd, greys, pixels * sizeof *greys);
    }
    free(greys);
    return rc;
}

static void header_make(struct dicom *d, const struct dicom_series *m)
{
    const struct dicom_object object = {ENHANCED_MR, m->uid[0], "DERIVED\\PRIMARY\\OTHER\\NONE"};
    dicom_begin(d, object.sop_class, object.instance);
    dicom_put_study(d, m, &object);
    put_frame_kind(d, m);
    dicom_put_patient(d, m);
    dicom_put_number(d, m, DICOM_TAG(0x0018, 0x0087), "systemFieldStrength_T", 1);
    dicom_put_scanner(d, m);
    dicom_text(d, DICOM_TAG(0x0018, 0x9004), "CS", "RESEARCH");
    dicom_text(d, DICOM_TAG(0x0018, 0x9174), "CS", "IEC");
    put_dimensions(d, m);
    put_format(d, m);
    put_shared(d, m);
    put_frames(d, m);
    dicom_pixels(d, (uint32_t)(m->frames * 2 * m->series->size[0] * m->series->size[1]));
}

int image_write_dicom(const struct image_series *series, int fd)
{
    struct dicom_series m;
    struct dicom d = {.bytes = NULL};
    int rc = dicom_series_open(&m, series);
    if (rc == 0) {
        header_make(&d, &m);
        rc = d.failed ? err_no_memory("a DICOM header of %zu frames", m.frames) : image_put(fd, d.bytes, d.used);
    }
    if (rc == 0)
        rc = pixels_put(&m, fd);
    free(d.bytes);
    dicom_series_close(&m);
    return rc;
}
