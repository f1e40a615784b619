/* dicom.h: inside recon/image: elements of a DICOM data set, explicit VR little endian (PS3.5), appended to memory in
 * ascending order of their tags.
 *
 * Own code rather than DCMTK or GDCM, which are C++ and far larger than writing one kind of object requires: elements,
 * sequences and lengths. */
#ifndef MRIRECON_DICOM_H
#define MRIRECON_DICOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tag as gggg,eeee. */
#define DICOM_TAG(group, element) ((uint32_t)(group) << 16 | (element))

enum { DICOM_DEPTH = 8 };

/* A data set under construction; zeroed at first. */
struct dicom {
    uint8_t *bytes; /* the caller's to free */
    size_t used, room;
    bool failed;                  /* no memory: nothing more is appended */
    size_t open[2 * DICOM_DEPTH]; /* offsets of the lengths of open sequences and items */
    int opened;
};

/* Text of any VR except the binary ones: `text` is UTF-8. It is cut to the length that the VR allows, and characters
 * that the VR does not allow become blanks; "\\" separates values if the VR is one of codes, numbers or UIDs. */
void dicom_text(struct dicom *d, uint32_t tag, const char vr[2], const char *text);
void dicom_u16(struct dicom *d, uint32_t tag, uint16_t value);                         /* US */
void dicom_u32(struct dicom *d, uint32_t tag, const uint32_t *values, size_t count);   /* UL */
void dicom_double(struct dicom *d, uint32_t tag, double value);                        /* FD */
void dicom_tag(struct dicom *d, uint32_t tag, uint32_t value);                         /* AT */
void dicom_numbers(struct dicom *d, uint32_t tag, const double *values, size_t count); /* DS */
void dicom_integer(struct dicom *d, uint32_t tag, int value);                          /* IS */

/* A sequence and its items; each is closed by dicom_end(). */
void dicom_sequence(struct dicom *d, uint32_t tag);
void dicom_item(struct dicom *d);
void dicom_end(struct dicom *d);

/* 128 zero bytes, "DICM" and the file's meta information. */
void dicom_begin(struct dicom *d, const char *sop_class, const char *sop_instance);

/* The head of (7FE0,0010) of `bytes`, an even number; the pixels follow it. */
void dicom_pixels(struct dicom *d, uint32_t bytes);

/* 128 bits derived from everything that was added (FNV-1a), as a UID: 2.25. and a number (PS3.5 B.2). */
struct dicom_hash {
    unsigned __int128 value;
};
void dicom_hash_begin(struct dicom_hash *hash);
void dicom_hash_add(struct dicom_hash *hash, const void *bytes, size_t count);
const char *dicom_hash_uid(const struct dicom_hash *hash, char uid[65]);

#endif
