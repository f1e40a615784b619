/* An MRD version 1 stream of images, as Gadgetron's and FIRE's clients read it: the scan's header (message 3), each
 * image (1022: header, length of its attributes, attributes, pixels), and the end (4); little-endian. */
#include "recon/image/image_head.h"
#include "recon/image/image_leaf.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are written as they stand in memory: little-endian"
#endif

enum { MESSAGE_HEADER = 3, MESSAGE_CLOSE = 4, MESSAGE_IMAGE = 1022 };

_Static_assert(sizeof(ISMRMRD_ImageHeader) == 198, "packed, as it is sent");

static int header_put(const char *xml, int fd)
{
    const uint16_t id = MESSAGE_HEADER;
    const uint32_t length = (uint32_t)strlen(xml);
    int rc = image_put(fd, &id, sizeof id);
    if (rc == 0)
        rc = image_put(fd, &length, sizeof length);
    return rc == 0 ? image_put(fd, xml, length) : rc;
}

static size_t pixel_bytes(const struct image_series *series)
{
    return series->channels * image_pixels(series) * image_lanes(series) * sizeof(float);
}

size_t image_message_bytes(const struct image_series *series)
{
    return sizeof(uint16_t) + sizeof(ISMRMRD_ImageHeader) + sizeof(uint64_t) + strlen(image_attributes) +
           pixel_bytes(series);
}

int image_write_message(const struct image_series *series, size_t index, int fd)
{
    const uint16_t id = MESSAGE_IMAGE;
    ISMRMRD_ImageHeader head;
    int rc = image_head_check(series);
    if (rc != 0)
        return rc;
    image_head_fill(&head, series, index);
    const uint64_t attributes = head.attribute_string_len;
    rc = image_put(fd, &id, sizeof id);
    if (rc == 0)
        rc = image_put(fd, &head, sizeof head);
    if (rc == 0)
        rc = image_put(fd, &attributes, sizeof attributes);
    if (rc == 0)
        rc = image_put(fd, image_attributes, attributes);
    return rc == 0 ? image_put(fd, image_plane(series, index, 0), pixel_bytes(series)) : rc;
}

int image_write_mrd(const struct image_series *series, int fd)
{
    const uint16_t end = MESSAGE_CLOSE;
    int rc = image_head_check(series);
    if (rc == 0 && series->xml)
        rc = header_put(series->xml, fd);
    for (size_t i = 0; i < series->count && rc == 0; i++)
        rc = image_write_message(series, i, fd);
    return rc == 0 ? image_put(fd, &end, sizeof end) : rc;
}
