/* Reads the items of a dataset, and the lists that they refer to, directly from the upload. libhdf5 1.10 trusts the
 * sizes in a damaged file and reads out of bounds: it is only asked where the items are stored. */
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"
#include "gridding/base/num.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static uint64_t little_endian(const uint8_t *p, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | p[i];
    return value;
}

/* ---- filters ---- */

enum { CHECKSUM_BYTES = 4 };

/* The checksum of HDF5's filter fletcher32: over big-endian 16-bit words. */
static uint32_t checksum(const uint8_t *p, size_t bytes)
{
    enum { WORDS = 360 }; /* the most without overflow of a sum */
    uint32_t low = 0, high = 0;
    for (size_t at = 0; at < bytes;) {
        for (int i = 0; i < WORDS && at < bytes; i++, at += 2) {
            low += (uint32_t)p[at] << 8 | (at + 1 < bytes ? p[at + 1] : 0u);
            high += low;
        }
        low = (low & 0xffff) + (low >> 16);
        high = (high & 0xffff) + (high >> 16);
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
    return high << 16 | low;
}

/* Undo the shuffle filter: all first bytes of items of `size` were stored first, then all second ones, and so on. */
static void unshuffle(uint8_t *to, const uint8_t *from, size_t bytes, size_t size)
{
    size_t items = size ? bytes / size : 0;
    for (size_t b = 0; b < size && items; b++)
        for (size_t i = 0; i < items; i++)
            to[i * size + b] = *from++;
    memcpy(to + items * size, from, bytes - items * size);
}

/* Undo one filter: *place is its output and becomes its input, of at most `most` bytes. */
static bool filter_undo(struct scan_h5_items *items, int filter, size_t most, struct scan_h5_place *place)
{
    uint8_t *to = place->at == items->buffer[0] ? items->buffer[1] : items->buffer[0];
    uLongf length = most;
    switch (items->filter[filter].id) {
    case H5Z_FILTER_FLETCHER32:
        if (place->bytes < CHECKSUM_BYTES)
            return false;
        place->bytes -= CHECKSUM_BYTES;
        return little_endian(place->at + place->bytes, CHECKSUM_BYTES) == checksum(place->at, place->bytes);
    case H5Z_FILTER_SHUFFLE:
        if (place->bytes > most)
            return false;
        unshuffle(to, place->at, place->bytes, items->filter[filter].item_bytes);
        place->at = to;
        return true;
    default: /* deflate; others were refused */
        if (uncompress(to, &length, place->at, place->bytes) != Z_OK)
            return false;
        *place = (struct scan_h5_place){to, length};
        return true;
    }
}

/* Undo all filters that were applied, the last first. A filter's input is the chunk, plus a checksum for each earlier
 * filter that adds one. */
static bool filters_undo(struct scan_h5_items *items, unsigned skipped, struct scan_h5_place *place)
{
    for (int i = items->filters - 1; i >= 0; i--) {
        size_t most = items->chunk * items->item_bytes;
        for (int before = 0; before < i; before++)
            if (items->filter[before].id == H5Z_FILTER_FLETCHER32 && !(skipped >> before & 1))
                most += CHECKSUM_BYTES;
        if (!(skipped >> i & 1) && !filter_undo(items, i, most, place))
            return false;
    }
    return true;
}

/* ---- items ---- */

static int filters_read(struct scan_h5_items *items, hid_t plist)
{
    items->filters = H5Pget_nfilters(plist);
    for (int i = 0; i < items->filters; i++) {
        unsigned flags, config, values[1] = {0};
        size_t count = 1;
        items->filter[i].id = H5Pget_filter2(plist, (unsigned)i, &flags, &count, values, 0, NULL, &config);
        items->filter[i].item_bytes = count ? values[0] : 0;
    }
    unsigned options = 0;
    items->last_is_plain =
        H5Pget_chunk_opts(plist, &options) >= 0 && (options & H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS) != 0;
    size_t most = (size_t)items->chunk * items->item_bytes + SCAN_H5_FILTERS * CHECKSUM_BYTES;
    for (int i = 0; i < 2 && items->filters; i++)
        if (!(items->buffer[i] = malloc(most)))
            return err_no_memory_bytes(most, "%zu bytes of a part of the scan", most);
    return 0;
}

int scan_h5_items_open(struct scan_h5_items *items, struct scan_h5 *h5, hid_t dataset, size_t item_bytes)
{
    hid_t plist = H5Dget_create_plist(dataset), space = H5Dget_space(dataset);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    hsize_t chunk = 0;
    size_t bytes;
    *items = (struct scan_h5_items){
        .h5 = h5, .dataset = dataset, .item_bytes = item_bytes, .count = (uint64_t)count, .loaded = UINT64_MAX};
    bool known = count >= 0 && size_mul((size_t)count, item_bytes, &bytes);
    int rc = 0;
    if (known && H5Pget_layout(plist) == H5D_CHUNKED) {
        known = H5Sget_simple_extent_ndims(space) == 1 && H5Pget_chunk(plist, 1, &chunk) == 1 && chunk > 0;
        items->chunk = chunk;
        rc = known ? filters_read(items, plist) : 0;
    } else if (known && count > 0) {
        haddr_t at = H5Dget_offset(dataset);
        known = at != HADDR_UNDEF && at <= h5->bytes && bytes <= h5->bytes - at;
        items->place = (struct scan_h5_place){h5->image + (known ? at : 0), bytes};
    }
    H5Sclose(space);
    H5Pclose(plist);
    if (!known)
        rc = err_set(ERR_MALFORMED_FILE, "A list of the scan is not where the file says: the file is damaged.");
    return rc;
}

void scan_h5_items_close(struct scan_h5_items *items)
{
    for (int i = 0; i < 2; i++) {
        free(items->buffer[i]);
        items->buffer[i] = NULL;
    }
}

/* Make items->place a whole, unpacked chunk. */
static bool chunk_load(struct scan_h5_items *items, uint64_t chunk)
{
    hsize_t at = chunk * items->chunk;
    uint32_t skipped = 0;
    char nothing;
    items->loaded = UINT64_MAX;
    items->place = (struct scan_h5_place){NULL, 0};
    items->h5->place = &items->place;
    herr_t found = H5Dread_chunk(items->dataset, H5P_DEFAULT, &at, &skipped, &nothing);
    items->h5->place = NULL;
    if (found < 0 || !items->place.at)
        return false;
    bool partial = items->count - at < items->chunk;
    if (!(partial && items->last_is_plain) && !filters_undo(items, skipped, &items->place))
        return false;
    if (items->place.bytes != items->chunk * items->item_bytes)
        return false;
    items->loaded = chunk;
    return true;
}

uint64_t scan_h5_items_at(struct scan_h5_items *items, uint64_t first, const uint8_t **at)
{
    uint64_t left = first < items->count ? items->count - first : 0, begin = 0;
    if (left && items->chunk) {
        uint64_t chunk = first / items->chunk;
        if (items->loaded != chunk && !chunk_load(items, chunk))
            return 0;
        begin = chunk * items->chunk;
        left = left < items->chunk - (first - begin) ? left : items->chunk - (first - begin);
    }
    *at = items->place.at + (first - begin) * items->item_bytes;
    return left;
}

/* ---- lists ---- */

/* The object `index` of the collection at `heap`, searched in [from, until). *next: where it ends.
 *
 * "GCOL" | version 1 | 3 bytes | length 8 | objects: index 2, references 2, 4 bytes, length 8, its bytes up to a
 * multiple of 8; index 0: the rest is free */
static bool object_find(const uint8_t *heap, uint64_t from, uint64_t until, uint32_t index, struct scan_h5_place *out,
                        uint64_t *next)
{
    enum { HEAD = 16, ALIGNMENT = 8 };
    for (uint64_t at = from, length; until - at >= HEAD; at += HEAD + ((length + ALIGNMENT - 1) & ~UINT64_C(7))) {
        uint64_t found = little_endian(heap + at, 2), room = until - at - HEAD;
        length = little_endian(heap + at + 8, 8);
        if (found == 0 || length > room)
            return false;
        if (found == index) {
            *out = (struct scan_h5_place){heap + at + HEAD, length};
            *next = at + HEAD + ((length + ALIGNMENT - 1) & ~UINT64_C(7));
            return true;
        }
        if (room - length < (ALIGNMENT - length % ALIGNMENT) % ALIGNMENT)
            return false;
    }
    return false;
}

bool scan_h5_list(struct scan_h5 *h5, const uint8_t *reference, size_t item_bytes, struct scan_h5_place *out,
                  uint64_t *length)
{
    enum { HEAD = 16 };
    uint64_t address = little_endian(reference + 4, 8), index = little_endian(reference + 12, 4);
    *length = little_endian(reference, 4);
    *out = (struct scan_h5_place){NULL, 0};
    if (address == 0 || *length == 0) { /* as an empty list is stored */
        *length = 0;
        return true;
    }
    if (address > h5->bytes - h5->base || h5->bytes - h5->base - address < HEAD || index == 0)
        return false;
    const uint8_t *heap = h5->image + h5->base + address;
    uint64_t until = little_endian(heap + 8, 8), next = 0;
    if (memcmp(heap, "GCOL\1", 5) != 0 || until < HEAD || until > h5->bytes - h5->base - address)
        return false;
    /* Usually the next object is the one that follows. */
    uint64_t from = h5->heap == address && h5->heap_next <= until ? h5->heap_next : HEAD;
    if (!object_find(heap, from, until, (uint32_t)index, out, &next) &&
        !object_find(heap, HEAD, until, (uint32_t)index, out, &next))
        return false;
    h5->heap = address;
    h5->heap_next = next <= until ? next : until;
    return out->bytes == *length * item_bytes;
}
