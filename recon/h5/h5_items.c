/* Reads the items of a dataset, and the lists that they refer to, directly from the upload. */
#include "recon/h5/h5_upload.h"

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
static bool filter_undo(struct h5_items *items, int filter, size_t most, struct h5_place *place)
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
        *place = (struct h5_place){to, length};
        return true;
    }
}

/* Undo all filters that were applied, the last first. A filter's input is the chunk, plus a checksum for each earlier
 * filter that adds one. */
static bool filters_undo(struct h5_items *items, unsigned skipped, struct h5_place *place)
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

static int filters_read(struct h5_items *items, hid_t plist)
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
    size_t most = (size_t)items->chunk * items->item_bytes + H5_UPLOAD_FILTERS * CHECKSUM_BYTES;
    for (int i = 0; i < 2 && items->filters; i++)
        if (!(items->buffer[i] = malloc(most)))
            return err_no_memory_bytes(most, "%zu bytes of a part of the scan", most);
    return 0;
}

/* The sides of a chunk, or of the whole dataset. */
static bool shape_read(struct h5_items *items, hid_t plist, hid_t space)
{
    hsize_t size[H5_UPLOAD_AXES] = {0}, side[H5_UPLOAD_AXES] = {0};
    const int axes = H5Sget_simple_extent_ndims(space);
    const bool chunked = H5Pget_layout(plist) == H5D_CHUNKED;
    if (axes < 0 || axes > H5_UPLOAD_AXES || H5Sget_simple_extent_dims(space, size, NULL) < 0 ||
        (chunked && (axes < 1 || H5Pget_chunk(plist, axes, side) != axes)))
        return false;
    items->axes = axes;
    items->chunk = chunked;
    for (int d = 0; d < axes; d++) {
        items->size[d] = size[d];
        items->side[d] = chunked ? side[d] : size[d];
        items->chunk *= side[d]; /* without an overflow: the dataset was opened by h5_dataset_any() */
    }
    return items->chunk > 0 || !chunked;
}

int h5_items_open(struct h5_items *items, struct h5_upload *h5, hid_t dataset, size_t item_bytes)
{
    hid_t plist = H5Dget_create_plist(dataset), space = H5Dget_space(dataset);
    hssize_t count = H5Sget_simple_extent_npoints(space);
    size_t bytes;
    *items = (struct h5_items){
        .h5 = h5, .dataset = dataset, .item_bytes = item_bytes, .count = (uint64_t)count, .loaded = UINT64_MAX};
    bool known = count >= 0 && size_mul((size_t)count, item_bytes, &bytes) && shape_read(items, plist, space);
    int rc = 0;
    if (known && items->chunk) {
        rc = filters_read(items, plist);
    } else if (known && count > 0) {
        haddr_t at = H5Dget_offset(dataset);
        known = at != HADDR_UNDEF && at <= h5->bytes && bytes <= h5->bytes - at;
        h5_upload_wait(h5, known ? at + bytes : 0);
        items->place = (struct h5_place){h5->image + (known ? at : 0), bytes};
    }
    H5Sclose(space);
    H5Pclose(plist);
    if (!known)
        rc = err_set(ERR_MALFORMED_FILE, "A dataset is not where the file says: the file is damaged.");
    return rc;
}

void h5_items_close(struct h5_items *items)
{
    for (int i = 0; i < 2; i++) {
        free(items->buffer[i]);
        items->buffer[i] = NULL;
    }
}

/* Make items->place the whole, unpacked chunk with these indices, counted in chunks. */
static bool chunk_load(struct h5_items *items, const uint64_t *chunk)
{
    hsize_t at[H5_UPLOAD_AXES];
    uint64_t number = 0;
    uint32_t skipped = 0;
    bool partial = false;
    char nothing;
    for (int d = 0; d < items->axes; d++) {
        at[d] = chunk[d] * items->side[d];
        partial = partial || items->size[d] - at[d] < items->side[d];
        number = number * ((items->size[d] - 1) / items->side[d] + 1) + chunk[d];
    }
    if (items->chunk == 0 || items->loaded == number)
        return true;
    items->loaded = UINT64_MAX;
    items->place = (struct h5_place){NULL, 0};
    items->h5->place = &items->place;
    herr_t found = H5Dread_chunk(items->dataset, H5P_DEFAULT, at, &skipped, &nothing);
    items->h5->place = NULL;
    if (found < 0 || !items->place.at)
        return false;
    if (!(partial && items->last_is_plain) && !filters_undo(items, skipped, &items->place))
        return false;
    if (items->place.bytes != items->chunk * items->item_bytes)
        return false;
    items->loaded = number;
    return true;
}

uint64_t h5_items_at(struct h5_items *items, uint64_t first, const uint8_t **at)
{
    uint64_t left = first < items->count ? items->count - first : 0, begin = 0;
    if (left && items->chunk) {
        uint64_t chunk = first / items->chunk;
        if (!chunk_load(items, &chunk))
            return 0;
        begin = chunk * items->chunk;
        left = left < items->chunk - (first - begin) ? left : items->chunk - (first - begin);
    }
    *at = items->place.at + (first - begin) * items->item_bytes;
    return left;
}

/* ---- arrays ---- */

/* Items of the loaded chunk, converted. */
struct converted {
    const uint64_t *chunk; /* its indices */
    uint64_t first;        /* the first row of the destination */
    size_t item_bytes;     /* there */
    uint8_t *to;
};

/* Put `count` items, which follow item `in` of the chunk, where they belong; a chunk may reach beyond the dataset. */
static void items_put(const struct h5_items *items, const struct converted *c, uint64_t in, uint64_t count,
                      const uint8_t *from)
{
    const int last = items->axes - 1;
    while (count) {
        uint64_t rest = in, run = 0, place = 0, step = 1, room = 0;
        bool inside = true;
        for (int d = last; d >= 0; rest /= items->side[d--]) {
            const uint64_t within = rest % items->side[d], at = c->chunk[d] * items->side[d] + within;
            if (d == last) {
                run = items->side[d] - within < count ? items->side[d] - within : count;
                room = at < items->size[d] ? items->size[d] - at : 0;
            }
            inside = inside && at < items->size[d];
            place += (d == 0 ? at - c->first : at) * step;
            step *= items->size[d];
        }
        if (inside)
            memcpy(c->to + place * c->item_bytes, from, (run < room ? run : room) * c->item_bytes);
        from += run * c->item_bytes;
        in += run;
        count -= run;
    }
}

/* Rows [first, until) of the dataset that are in the chunk with these indices. */
static bool chunk_convert(struct h5_items *items, const struct h5_numbers *numbers, const struct converted *c,
                          uint64_t until, hid_t wanted)
{
    enum { BATCH = 2048, NUMBER = 8 };
    uint64_t work[BATCH], row_items = 1;
    const uint64_t begin = c->chunk[0] * items->side[0], end = begin + items->side[0], most = BATCH / numbers->count;
    for (int d = 1; d < items->axes; d++)
        row_items *= items->side[d];
    if (!chunk_load(items, c->chunk) || items->item_bytes > numbers->count * NUMBER)
        return false;
    uint64_t in = ((c->first > begin ? c->first : begin) - begin) * row_items;
    const uint64_t past = ((until < end ? until : end) - begin) * row_items;
    for (uint64_t count; in < past; in += count) {
        count = past - in < most ? past - in : most;
        memcpy(work, items->place.at + in * items->item_bytes, count * items->item_bytes);
        if (H5Tconvert(numbers->stored, wanted, count * numbers->count, work, NULL, H5P_DEFAULT) < 0)
            return false;
        items_put(items, c, in, count, (const uint8_t *)work);
    }
    return true;
}

bool h5_items_convert(struct h5_items *items, const struct h5_numbers *numbers, uint64_t first, uint64_t rows,
                      hid_t wanted, size_t bytes, void *to)
{
    uint64_t chunk[H5_UPLOAD_AXES] = {0}, from = 0;
    const struct converted c = {.chunk = chunk, .first = first, .item_bytes = bytes * numbers->count, .to = to};
    if (items->axes < 1 || first > items->size[0] || rows > items->size[0] - first)
        return false;
    if (items->count == 0 || rows == 0)
        return true;
    chunk[0] = from = first / items->side[0];
    for (int d = 0; d >= 0;) {
        if (!chunk_convert(items, numbers, &c, first + rows, wanted))
            return false;
        for (d = items->axes - 1; d >= 0; d--) { /* the next chunk; the last axis is the fastest */
            const uint64_t end = d == 0 ? first + rows : items->size[d];
            if (++chunk[d] <= (end - 1) / items->side[d])
                break;
            chunk[d] = d == 0 ? from : 0;
        }
    }
    return true;
}

/* ---- lists ---- */

/* The object `index` of the collection at `heap`, searched in [from, until). *next: where it ends.
 *
 * "GCOL" | version 1 | 3 bytes | length 8 | objects: index 2, references 2, 4 bytes, length 8, its bytes up to a
 * multiple of 8; index 0: the rest is free */
static bool object_find(const uint8_t *heap, uint64_t from, uint64_t until, uint32_t index, struct h5_place *out,
                        uint64_t *next)
{
    enum { HEAD = 16, ALIGNMENT = 8 };
    for (uint64_t at = from, length; until - at >= HEAD; at += HEAD + ((length + ALIGNMENT - 1) & ~UINT64_C(7))) {
        uint64_t found = little_endian(heap + at, 2), room = until - at - HEAD;
        length = little_endian(heap + at + 8, 8);
        if (found == 0 || length > room)
            return false;
        if (found == index) {
            *out = (struct h5_place){heap + at + HEAD, length};
            *next = at + HEAD + ((length + ALIGNMENT - 1) & ~UINT64_C(7));
            return true;
        }
        if (room - length < (ALIGNMENT - length % ALIGNMENT) % ALIGNMENT)
            return false;
    }
    return false;
}

bool h5_list(struct h5_upload *h5, const uint8_t *reference, size_t item_bytes, struct h5_place *out, uint64_t *length)
{
    enum { HEAD = 16 };
    uint64_t address = little_endian(reference + 4, 8), index = little_endian(reference + 12, 4);
    *length = little_endian(reference, 4);
    *out = (struct h5_place){NULL, 0};
    if (address == 0 || *length == 0) { /* as an empty list is stored */
        *length = 0;
        return true;
    }
    if (address > h5->bytes - h5->base || h5->bytes - h5->base - address < HEAD || index == 0)
        return false;
    const uint8_t *heap = h5->image + h5->base + address;
    h5_upload_wait(h5, h5->base + address + HEAD);
    uint64_t until = little_endian(heap + 8, 8), next = 0;
    if (memcmp(heap, "GCOL\1", 5) != 0 || until < HEAD || until > h5->bytes - h5->base - address)
        return false;
    h5_upload_wait(h5, h5->base + address + until);
    /* Usually the next object is the one that follows. */
    uint64_t from = h5->heap == address && h5->heap_next <= until ? h5->heap_next : HEAD;
    if (!object_find(heap, from, until, (uint32_t)index, out, &next) &&
        !object_find(heap, HEAD, until, (uint32_t)index, out, &next))
        return false;
    h5->heap = address;
    h5->heap_next = next <= until ? next : until;
    return out->bytes == *length * item_bytes;
}
