/* DICOM: one file of Enhanced MR Image Storage (PS3.3 A.36.2), with a frame for each slice, coil and moment. The frames
 * are marked DERIVED: ORIGINAL ones require attributes of the scanner (timing, coils, averages) that a scan does not
 * contain. */
#include "recon/image/dicom.h"
#include "recon/image/image_leaf.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENHANCED_MR "1.2.840.10008.5.1.4.1.1.4.1"

enum { GREYS = 65535 };

/* What is written, in order: [frame][channel][slice][z]. */
struct multiframe {
    const struct image_series *series;
    struct image_layout layout;
    size_t frames;     /* of the file */
    double low, slope; /* a pixel is low + slope * stored */
    double window[2];  /* shown as black and as white */
    char uid[3][65];   /* instance, series, dimensions */
};

/* ---- the scan's header ---- */

/* The text of the header's first element of this name, found without a parser: only plain text is accepted. */
static const char *header_text(const struct image_series *series, const char *name, char text[256])
{
    const char *at = series->xml ? series->xml : "";
    size_t length = strlen(name), used = 0;
    text[0] = '\0';
    while ((at = strstr(at, name))) {
        bool element = at > series->xml && (at[-1] == '<' || at[-1] == ':') && at[length] == '>';
        at += length;
        if (element)
            break;
    }
    static const struct {
        const char *code;
        char letter;
    } entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (at = at ? at + 1 : ""; *at && *at != '<' && used < 255; at++) {
        char letter = *at;
        for (size_t i = 0; i < sizeof entities / sizeof *entities && *at == '&'; i++)
            if (strncmp(at, entities[i].code, strlen(entities[i].code)) == 0) {
                letter = entities[i].letter;
                at += strlen(entities[i].code) - 1;
                break;
            }
        text[used++] = letter;
    }
    text[used] = '\0';
    return text;
}

static void put_header(struct dicom *d, const struct multiframe *m, uint32_t tag, const char vr[2], const char *name)
{
    char text[256];
    dicom_text(d, tag, vr, header_text(m->series, name, text));
}

/* The digits of a date (2026-11-22) or a time (10:15:00.5); empty if there are too few. */
static void put_digits(struct dicom *d, const struct multiframe *m, uint32_t tag, const char vr[2], const char *name,
                       const char *fallback)
{
    char text[256], digits[16];
    size_t used = 0, wanted = vr[0] == 'D' ? 8 : 6;
    for (const char *at = header_text(m->series, name, text); *at && *at != '.' && used < wanted; at++)
        if (*at >= '0' && *at <= '9')
            digits[used++] = *at;
    digits[used] = '\0';
    dicom_text(d, tag, vr, used == wanted ? digits : fallback);
}

/* A UID of the header if it is one, else one derived from the header. */
static void put_uid(struct dicom *d, const struct multiframe *m, uint32_t tag, const char *name)
{
    char text[256], made[65];
    const char *uid = header_text(m->series, name, text);
    bool valid = *uid && strlen(uid) <= 64 && strspn(uid, "0123456789.") == strlen(uid) && uid[0] != '.' &&
                 uid[strlen(uid) - 1] != '.' && !strstr(uid, "..");
    for (const char *part = uid; valid && part; part = strchr(part, '.')) {
        part += *part == '.';
        valid = part[0] != '0' || part[1] == '.' || part[1] == '\0';
    }
    struct dicom_hash hash;
    dicom_hash_begin(&hash);
    dicom_hash_add(&hash, name, strlen(name));
    if (m->series->xml)
        dicom_hash_add(&hash, m->series->xml, strlen(m->series->xml));
    dicom_text(d, tag, "UI", valid ? uid : dicom_hash_uid(&hash, made));
}

static void put_number(struct dicom *d, const struct multiframe *m, uint32_t tag, const char *name, double scale)
{
    char text[256], *end = text;
    double value = strtod(header_text(m->series, name, text), &end) * scale;
    if (end > text && isfinite(value) && value > 0)
        dicom_numbers(d, tag, &value, 1);
}

/* ---- groups of elements ---- */

static void put_frame_kind(struct dicom *d, const struct multiframe *m)
{
    dicom_text(d, DICOM_TAG(0x0008, 0x9205), "CS", "MONOCHROME");
    dicom_text(d, DICOM_TAG(0x0008, 0x9206), "CS", "VOLUME");
    dicom_text(d, DICOM_TAG(0x0008, 0x9207), "CS", "NONE");
    dicom_text(d, DICOM_TAG(0x0008, 0x9208), "CS", m->series->phases ? "PHASE" : "MAGNITUDE");
    dicom_text(d, DICOM_TAG(0x0008, 0x9209), "CS", "UNKNOWN");
}

static void put_study(struct dicom *d, const struct multiframe *m)
{
    static const char none[] = "19000101"; /* the attribute is mandatory, and there is no date */
    dicom_text(d, DICOM_TAG(0x0008, 0x0005), "CS", "ISO_IR 192");
    dicom_text(d, DICOM_TAG(0x0008, 0x0008), "CS", "DERIVED\\PRIMARY\\OTHER\\NONE");
    dicom_text(d, DICOM_TAG(0x0008, 0x0016), "UI", ENHANCED_MR);
    dicom_text(d, DICOM_TAG(0x0008, 0x0018), "UI", m->uid[0]);
    put_digits(d, m, DICOM_TAG(0x0008, 0x0020), "DA", "studyDate", "");
    put_digits(d, m, DICOM_TAG(0x0008, 0x0023), "DA", "studyDate", none);
    put_digits(d, m, DICOM_TAG(0x0008, 0x0030), "TM", "studyTime", "");
    put_digits(d, m, DICOM_TAG(0x0008, 0x0033), "TM", "studyTime", "000000");
    put_header(d, m, DICOM_TAG(0x0008, 0x0050), "SH", "accessionNumber");
    dicom_text(d, DICOM_TAG(0x0008, 0x0060), "CS", "MR");
    dicom_text(d, DICOM_TAG(0x0008, 0x0070), "LO", "mrirecond");
    put_header(d, m, DICOM_TAG(0x0008, 0x0090), "PN", "referringPhysicianName");
    put_header(d, m, DICOM_TAG(0x0008, 0x1030), "LO", "studyDescription");
    put_header(d, m, DICOM_TAG(0x0008, 0x103e), "LO", "protocolName");
    dicom_text(d, DICOM_TAG(0x0008, 0x1090), "LO", "mrirecond");
    put_frame_kind(d, m);
}

static void put_patient(struct dicom *d, const struct multiframe *m)
{
    char text[256];
    put_header(d, m, DICOM_TAG(0x0010, 0x0010), "PN", "patientName");
    put_header(d, m, DICOM_TAG(0x0010, 0x0020), "LO", "patientID");
    put_digits(d, m, DICOM_TAG(0x0010, 0x0030), "DA", "patientBirthdate", "");
    const char *sex = header_text(m->series, "patientGender", text);
    dicom_text(d, DICOM_TAG(0x0010, 0x0040), "CS", strlen(sex) == 1 && strchr("MFO", *sex) ? sex : "");
    put_number(d, m, DICOM_TAG(0x0010, 0x1020), "patientHeight_m", 1);
    put_number(d, m, DICOM_TAG(0x0010, 0x1030), "patientWeight_kg", 1);
}

static void put_device(struct dicom *d, const struct multiframe *m)
{
    static const char *const positions[] = {"HFP", "HFS", "HFDR", "HFDL", "FFDR", "FFDL", "FFP", "FFS"};
    char text[256];
    const char *position = header_text(m->series, "patientPosition", text), *known = "HFS";
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++)
        known = strcmp(position, positions[i]) == 0 ? positions[i] : known;
    put_number(d, m, DICOM_TAG(0x0018, 0x0087), "systemFieldStrength_T", 1);
    dicom_text(d, DICOM_TAG(0x0018, 0x1000), "LO", "none");
    dicom_text(d, DICOM_TAG(0x0018, 0x1020), "LO", MRIRECON_VERSION);
    put_header(d, m, DICOM_TAG(0x0018, 0x1030), "LO", "protocolName");
    dicom_text(d, DICOM_TAG(0x0018, 0x5100), "CS", known);
    dicom_text(d, DICOM_TAG(0x0018, 0x9004), "CS", "RESEARCH");
    dicom_text(d, DICOM_TAG(0x0018, 0x9174), "CS", "IEC");
}

/* Frames are indexed by coil (a stack each), place within it, and moment. */
static void put_dimensions(struct dicom *d, const struct multiframe *m)
{
    static const uint32_t pointers[] = {DICOM_TAG(0x0020, 0x9056), DICOM_TAG(0x0020, 0x9057),
                                        DICOM_TAG(0x0020, 0x9128)};
    put_uid(d, m, DICOM_TAG(0x0020, 0x000d), "studyInstanceUID");
    dicom_text(d, DICOM_TAG(0x0020, 0x000e), "UI", m->uid[1]);
    put_header(d, m, DICOM_TAG(0x0020, 0x0010), "SH", "studyID");
    dicom_integer(d, DICOM_TAG(0x0020, 0x0011), m->series->info[0].series);
    dicom_integer(d, DICOM_TAG(0x0020, 0x0013), 1);
    put_uid(d, m, DICOM_TAG(0x0020, 0x0052), "frameOfReferenceUID");
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

static void put_format(struct dicom *d, const struct multiframe *m)
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

/* Millimetres from a pixel, and a slice, to the next. */
static void steps_get(const struct multiframe *m, double step[3], double *thickness)
{
    const struct image_series *s = m->series;
    for (int a = 0; a < 3; a++)
        step[a] = (double)s->info[0].fov_mm[a] / (double)s->size[a];
    *thickness = step[2];
    if (s->size[2] == 1 && s->slice_spacing_mm > 0)
        step[2] = (double)s->slice_spacing_mm;
}

static void put_measures(struct dicom *d, const struct multiframe *m)
{
    double step[3], thickness;
    steps_get(m, step, &thickness);
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

static void put_values(struct dicom *d, const struct multiframe *m)
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

static void put_shared(struct dicom *d, const struct multiframe *m)
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

/* The source of a frame of the file. */
struct source {
    size_t moment, channel, slice, z;
    const struct image_info *info;
    const float *pixels;
};

static struct source source_of(const struct multiframe *m, size_t frame)
{
    const struct image_series *s = m->series;
    size_t depth = s->size[2], slices = m->layout.slices;
    struct source from = {.z = frame % depth,
                          .slice = frame / depth % slices,
                          .channel = frame / depth / slices % s->channels,
                          .moment = frame / depth / slices / s->channels};
    size_t image = m->layout.images[from.moment * slices + from.slice];
    from.info = &s->info[image];
    from.pixels = image_plane(s, image, from.channel) + from.z * s->size[0] * s->size[1] * image_lanes(s);
    return from;
}

/* The centre of the first pixel: floor(N / 2) pixels before the centre of the image, along each axis. */
static void put_place(struct dicom *d, const struct multiframe *m, const struct source *from)
{
    double step[3], thickness, axis[3][3], corner[3];
    const struct image_info *info = from->info;
    steps_get(m, step, &thickness);
    image_direction(info->read_dir, 0, axis[0]);
    image_direction(info->phase_dir, 1, axis[1]);
    image_direction(info->slice_dir, 2, axis[2]);
    for (int i = 0; i < 3; i++)
        corner[i] = (double)info->position[i] - (double)(m->series->size[0] / 2) * step[0] * axis[0][i] -
                    (double)(m->series->size[1] / 2) * step[1] * axis[1][i] +
                    ((double)from->z - (double)(m->series->size[2] / 2)) * step[2] * axis[2][i];
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

static void put_frames(struct dicom *d, const struct multiframe *m)
{
    dicom_sequence(d, DICOM_TAG(0x5200, 0x9230));
    for (size_t f = 0; f < m->frames; f++) {
        const struct source from = source_of(m, f);
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

/* ---- pixels ---- */

/* A pixel's value: its magnitude, or its phase; 0 if it is not finite. */
static double value_of(const struct image_series *s, const float *pixels, size_t i)
{
    double value = s->complex_valued ? hypot((double)pixels[2 * i], (double)pixels[2 * i + 1]) : (double)pixels[i];
    return isfinite(value) ? value : 0;
}

/* One slope for all: with a slope for each slice or moment, the series would flicker. */
static int values_range(struct multiframe *m)
{
    const struct image_series *s = m->series;
    float low = 0, high = 0;
    double most = 0;
    int rc = s->phases ? 0 : image_window(s, &low, &high);
    for (size_t i = 0, all = s->count * s->channels * image_pixels(s); i < all; i++)
        most = fmax(most, fabs(value_of(s, s->data, i)));
    m->low = s->phases ? -M_PI : 0;
    m->slope = s->phases ? 2 * M_PI / GREYS : most > 0 ? most / GREYS : 1;
    m->window[0] = s->phases ? -M_PI : (double)low;
    m->window[1] = s->phases ? M_PI : high > low ? (double)high : (double)low + m->slope;
    return rc;
}

static int pixels_put(const struct multiframe *m, int fd)
{
    const size_t pixels = m->series->size[0] * m->series->size[1];
    uint16_t *grey = malloc(pixels * sizeof *grey);
    int rc = grey ? 0 : err_no_memory("a slice of %zu pixels", pixels);
    for (size_t f = 0; f < m->frames && rc == 0; f++) {
        const struct source from = source_of(m, f);
        for (size_t i = 0; i < pixels; i++) {
            double stored = (value_of(m->series, from.pixels, i) - m->low) / m->slope;
            grey[i] = htole16((uint16_t)fmax(0, fmin(GREYS, rint(stored))));
        }
        rc = image_put(fd, grey, pixels * sizeof *grey);
    }
    free(grey);
    return rc;
}

/* ---- the file ---- */

/* Derived from the file's contents: the same images have the same UIDs, and different images have different ones. */
static void uids_make(struct multiframe *m)
{
    static const char *const what[] = {"instance", "series", "dimensions"};
    const struct image_series *s = m->series;
    struct dicom_hash hash;
    dicom_hash_begin(&hash);
    dicom_hash_add(&hash, s->size, sizeof s->size);
    dicom_hash_add(&hash, s->info, s->count * sizeof *s->info);
    dicom_hash_add(&hash, s->data, s->count * s->channels * image_pixels(s) * image_lanes(s) * sizeof(float));
    if (s->xml)
        dicom_hash_add(&hash, s->xml, strlen(s->xml));
    for (size_t i = 0; i < sizeof what / sizeof *what; i++) {
        dicom_hash_add(&hash, what[i], strlen(what[i]));
        dicom_hash_uid(&hash, m->uid[i]);
    }
}

static int multiframe_put(struct multiframe *m, size_t bytes, int fd)
{
    struct dicom d = {.bytes = NULL};
    dicom_begin(&d, ENHANCED_MR, m->uid[0]);
    put_study(&d, m);
    put_patient(&d, m);
    put_device(&d, m);
    put_dimensions(&d, m);
    put_format(&d, m);
    put_shared(&d, m);
    put_frames(&d, m);
    dicom_pixels(&d, (uint32_t)bytes);
    int rc = d.failed ? err_no_memory("a DICOM header of %zu frames", m->frames) : image_put(fd, d.bytes, d.used);
    free(d.bytes);
    return rc == 0 ? pixels_put(m, fd) : rc;
}

int image_write_dicom(const struct image_series *series, int fd)
{
    struct multiframe m = {.series = series};
    size_t bytes = 0;
    if (series->count == 0 || image_pixels(series) == 0)
        return err_set(ERR_INTERNAL, "A series without pixels makes no DICOM file.");
    m.frames = series->count * series->channels * series->size[2];
    if (!size_mul(m.frames, 2 * series->size[0] * series->size[1], &bytes) || bytes > UINT32_MAX - 1 ||
        m.frames > INT32_MAX)
        return err_set(
            ERR_NOT_ACCEPTABLE,
            "A DICOM file holds at most 4 GB of pixels; these are %zu frames of %zu x %zu. Ask for h5 or npy.",
            m.frames, series->size[0], series->size[1]);
    int rc = image_layout_create(&m.layout, series);
    if (rc == 0)
        rc = values_range(&m);
    if (rc == 0) {
        uids_make(&m);
        rc = multiframe_put(&m, bytes, fd);
    }
    free(m.layout.images);
    return rc;
}
