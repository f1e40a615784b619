#include "recon/image/dicom.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

static void append(struct dicom *d, const void *bytes, size_t count)
{
    if (!d->failed && d->room - d->used < count) {
        size_t room = 2 * d->room + count + 4096;
        uint8_t *grown = realloc(d->bytes, room);
        d->failed = !grown;
        d->bytes = grown ? grown : d->bytes;
        d->room = grown ? room : d->room;
    }
    if (d->failed || count == 0)
        return;
    memcpy(d->bytes + d->used, bytes, count);
    d->used += count;
}

static void append16(struct dicom *d, uint16_t value)
{
    value = htole16(value);
    append(d, &value, sizeof value);
}

static void append32(struct dicom *d, uint32_t value)
{
    value = htole32(value);
    append(d, &value, sizeof value);
}

static void append_tag(struct dicom *d, uint32_t tag)
{
    append16(d, (uint16_t)(tag >> 16));
    append16(d, (uint16_t)tag);
}

/* Tag, VR and length; these VRs have a length of 32 bits. */
static void head(struct dicom *d, uint32_t tag, const char vr[2], uint32_t length)
{
    static const char *const longs[] = {"OB", "OW", "SQ", "UT"};
    bool is_long = false;
    for (size_t i = 0; i < sizeof longs / sizeof *longs; i++)
        is_long = is_long || memcmp(vr, longs[i], 2) == 0;
    append_tag(d, tag);
    append(d, vr, 2);
    if (is_long) {
        append16(d, 0);
        append32(d, length);
    } else {
        append16(d, (uint16_t)length);
    }
}

/* ---- texts ---- */

static const struct vr {
    char name[3];
    size_t most;    /* bytes of a value */
    bool separates; /* a backslash separates values */
} vrs[] = {{"AE", 16, false}, {"CS", 16, true},  {"DA", 8, false},    {"DS", 16, true},  {"DT", 26, false},
           {"IS", 12, true},  {"LO", 64, false}, {"PN", 64, false},   {"SH", 16, false}, {"ST", 1024, false},
           {"TM", 14, false}, {"UI", 64, true},  {"LT", 10240, false}};

static const struct vr *vr_find(const char vr[2])
{
    size_t i = 0;
    while (i + 1 < sizeof vrs / sizeof *vrs && memcmp(vrs[i].name, vr, 2) != 0)
        i++;
    return &vrs[i];
}

/* The length of the part of the text that fits in one value: whole characters of UTF-8. */
static size_t text_fits(const char *text, size_t most)
{
    size_t length = strlen(text);
    if (length <= most)
        return length;
    while (most > 0 && ((uint8_t)text[most] & 0xc0) == 0x80)
        most--;
    return most;
}

void dicom_text(struct dicom *d, uint32_t tag, const char vr[2], const char *text)
{
    const struct vr *kind = vr_find(vr);
    size_t length = kind->separates ? strlen(text) : text_fits(text, kind->most);
    head(d, tag, vr, (uint32_t)(length + length % 2));
    for (size_t i = 0; i < length; i++) {
        bool plain = (uint8_t)text[i] >= ' ' && text[i] != 0x7f && (text[i] != '\\' || kind->separates);
        append(d, plain ? text + i : " ", 1);
    }
    if (length % 2)
        append(d, memcmp(vr, "UI", 2) == 0 ? "\0" : " ", 1);
}

/* The most digits that 16 characters hold. */
static int number_print(char *text, size_t size, double value)
{
    enum { MOST = 16 };
    int used = 0;
    for (int digits = 10; digits > 0; digits--) {
        used = snprintf(text, size, "%.*g", digits, value + 0.0);
        if (used <= MOST)
            break;
    }
    return used;
}

void dicom_numbers(struct dicom *d, uint32_t tag, const double *values, size_t count)
{
    char text[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < count && used + 32 < sizeof text; i++) {
        if (i > 0)
            text[used++] = '\\';
        used += (size_t)number_print(text + used, sizeof text - used, isfinite(values[i]) ? values[i] : 0);
    }
    dicom_text(d, tag, "DS", text);
}

void dicom_integer(struct dicom *d, uint32_t tag, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    dicom_text(d, tag, "IS", text);
}

/* ---- numbers ---- */

void dicom_u16(struct dicom *d, uint32_t tag, uint16_t value)
{
    head(d, tag, "US", sizeof value);
    append16(d, value);
}

void dicom_u32(struct dicom *d, uint32_t tag, const uint32_t *values, size_t count)
{
    head(d, tag, "UL", (uint32_t)(count * sizeof *values));
    for (size_t i = 0; i < count; i++)
        append32(d, values[i]);
}

void dicom_double(struct dicom *d, uint32_t tag, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    head(d, tag, "FD", sizeof bits);
    append32(d, (uint32_t)bits);
    append32(d, (uint32_t)(bits >> 32));
}

void dicom_tag(struct dicom *d, uint32_t tag, uint32_t value)
{
    head(d, tag, "AT", sizeof value);
    append_tag(d, value);
}

/* ---- sequences ---- */

static void open_length(struct dicom *d)
{
    d->open[d->opened++] = d->used - sizeof(uint32_t);
}

void dicom_sequence(struct dicom *d, uint32_t tag)
{
    head(d, tag, "SQ", 0);
    open_length(d);
}

void dicom_item(struct dicom *d)
{
    append_tag(d, DICOM_TAG(0xfffe, 0xe000));
    append32(d, 0);
    open_length(d);
}

void dicom_end(struct dicom *d)
{
    size_t at = d->open[--d->opened];
    uint32_t length = htole32((uint32_t)(d->used - at - sizeof length));
    if (!d->failed)
        memcpy(d->bytes + at, &length, sizeof length);
}

/* ---- the file ---- */

void dicom_begin(struct dicom *d, const char *sop_class, const char *sop_instance)
{
    static const uint8_t preamble[128];
    const uint32_t length = 0;
    append(d, preamble, sizeof preamble);
    append(d, "DICM", 4);
    dicom_u32(d, DICOM_TAG(0x0002, 0x0000), &length, 1);
    size_t at = d->used;
    head(d, DICOM_TAG(0x0002, 0x0001), "OB", 2);
    append(d, "\0\1", 2);
    dicom_text(d, DICOM_TAG(0x0002, 0x0002), "UI", sop_class);
    dicom_text(d, DICOM_TAG(0x0002, 0x0003), "UI", sop_instance);
    dicom_text(d, DICOM_TAG(0x0002, 0x0010), "UI", "1.2.840.10008.1.2.1");
    dicom_text(d, DICOM_TAG(0x0002, 0x0012), "UI", "2.25.91530847305291087741503862740175526921"); /* mrirecond */
    dicom_text(d, DICOM_TAG(0x0002, 0x0013), "SH", "MRIRECOND");
    uint32_t whole = htole32((uint32_t)(d->used - at));
    if (!d->failed)
        memcpy(d->bytes + at - sizeof whole, &whole, sizeof whole);
}

void dicom_pixels(struct dicom *d, uint32_t bytes)
{
    head(d, DICOM_TAG(0x7fe0, 0x0010), "OW", bytes);
}

/* ---- UIDs ---- */

void dicom_hash_begin(struct dicom_hash *hash)
{
    hash->value = (unsigned __int128)UINT64_C(0x6c62272e07bb0142) << 64 | UINT64_C(0x62b821756295c58d);
}

void dicom_hash_add(struct dicom_hash *hash, const void *bytes, size_t count)
{
    const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;
    const uint8_t *at = bytes;
    for (size_t i = 0; i < count; i++)
        hash->value = (hash->value ^ at[i]) * prime;
}

const char *dicom_hash_uid(const struct dicom_hash *hash, char uid[65])
{
    /* The bits of version and variant of a custom UUID (RFC 9562, version 8). */
    const unsigned __int128 one = 1;
    unsigned __int128 value = hash->value;
    value = (value & ~(one * 0xf << 76)) | one * 0x8 << 76;
    value = (value & ~(one * 0x3 << 62)) | one * 0x2 << 62;
    char digits[40];
    int used = 0;
    do
        digits[used++] = (char)('0' + (int)(value % 10));
    while ((value /= 10) != 0);
    char *to = stpcpy(uid, "2.25.");
    while (used > 0)
        *to++ = digits[--used];
    *to = '\0';
    return uid;
}
