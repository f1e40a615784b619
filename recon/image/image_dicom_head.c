/* Elements of DICOM images that come from the scan's ISMRMRD header. */
#include "recon/image/image_dicom_inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The text of the header's first element of this name, found without an XML parser; only plain text is accepted. */
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

void dicom_put_header(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char vr[2], const char *name)
{
    char text[256];
    dicom_text(d, tag, vr, header_text(m->series, name, text));
}

/* The digits of a date (2026-11-22) or a time (10:15:00.5); empty if there are too few. */
static void put_digits(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char vr[2], const char *name,
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

/* A UID from the header if it is valid, otherwise one derived from the header. */
void dicom_put_uid(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char *name)
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

bool dicom_put_number(struct dicom *d, const struct dicom_series *m, uint32_t tag, const char *name, double scale)
{
    char text[256], *end = text;
    double value = strtod(header_text(m->series, name, text), &end) * scale;
    const bool there = end > text && isfinite(value) && value > 0;
    if (there)
        dicom_numbers(d, tag, &value, 1);
    return there;
}

/* ---- groups of elements ---- */

void dicom_put_study(struct dicom *d, const struct dicom_series *m, const struct dicom_object *object)
{
    static const char none[] = "19000101"; /* the attribute is mandatory, and the date is unknown */
    dicom_text(d, DICOM_TAG(0x0008, 0x0005), "CS", "ISO_IR 192");
    dicom_text(d, DICOM_TAG(0x0008, 0x0008), "CS", object->image_type);
    dicom_text(d, DICOM_TAG(0x0008, 0x0016), "UI", object->sop_class);
    dicom_text(d, DICOM_TAG(0x0008, 0x0018), "UI", object->instance);
    put_digits(d, m, DICOM_TAG(0x0008, 0x0020), "DA", "studyDate", "");
    put_digits(d, m, DICOM_TAG(0x0008, 0x0023), "DA", "studyDate", none);
    put_digits(d, m, DICOM_TAG(0x0008, 0x0030), "TM", "studyTime", "");
    put_digits(d, m, DICOM_TAG(0x0008, 0x0033), "TM", "studyTime", "000000");
    dicom_put_header(d, m, DICOM_TAG(0x0008, 0x0050), "SH", "accessionNumber");
    dicom_text(d, DICOM_TAG(0x0008, 0x0060), "CS", "MR");
    dicom_text(d, DICOM_TAG(0x0008, 0x0070), "LO", "mrirecond");
    dicom_put_header(d, m, DICOM_TAG(0x0008, 0x0090), "PN", "referringPhysicianName");
    dicom_put_header(d, m, DICOM_TAG(0x0008, 0x1030), "LO", "studyDescription");
    dicom_put_header(d, m, DICOM_TAG(0x0008, 0x103e), "LO", "protocolName");
    dicom_text(d, DICOM_TAG(0x0008, 0x1090), "LO", "mrirecond");
}

void dicom_put_patient(struct dicom *d, const struct dicom_series *m)
{
    char text[256];
    dicom_put_header(d, m, DICOM_TAG(0x0010, 0x0010), "PN", "patientName");
    dicom_put_header(d, m, DICOM_TAG(0x0010, 0x0020), "LO", "patientID");
    put_digits(d, m, DICOM_TAG(0x0010, 0x0030), "DA", "patientBirthdate", "");
    const char *sex = header_text(m->series, "patientGender", text);
    dicom_text(d, DICOM_TAG(0x0010, 0x0040), "CS", strlen(sex) == 1 && strchr("MFO", *sex) ? sex : "");
    dicom_put_number(d, m, DICOM_TAG(0x0010, 0x1020), "patientHeight_m", 1);
    dicom_put_number(d, m, DICOM_TAG(0x0010, 0x1030), "patientWeight_kg", 1);
}

void dicom_put_scanner(struct dicom *d, const struct dicom_series *m)
{
    static const char *const positions[] = {"HFP", "HFS", "HFDR", "HFDL", "FFDR", "FFDL", "FFP", "FFS"};
    char text[256];
    const char *position = header_text(m->series, "patientPosition", text), *known = "HFS";
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++)
        known = strcmp(position, positions[i]) == 0 ? positions[i] : known;
    dicom_text(d, DICOM_TAG(0x0018, 0x1000), "LO", "none");
    dicom_text(d, DICOM_TAG(0x0018, 0x1020), "LO", MRIRECON_VERSION);
    dicom_put_header(d, m, DICOM_TAG(0x0018, 0x1030), "LO", "protocolName");
    dicom_text(d, DICOM_TAG(0x0018, 0x5100), "CS", known);
}
