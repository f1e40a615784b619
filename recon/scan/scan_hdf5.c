/* Reads an ISMRMRD HDF5 file. By libhdf5 itself, never by libismrmrd, whose readers trust the file. Members are found
 * by name, since libismrmrd (376 bytes an item), h5py (372) and native alignment (384) lay them out differently. The
 * file is read twice: first all heads, which have every length and offset; then trajectories and data, in place if they
 * are float32. libhdf5 finds the scan's datasets and converts numbers; items and lists are taken from the file by
 * recon/h5/h5_items.c, which checks every length. */
#include "recon/scan/scan_build.h"
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"
#include "recon/h5/h5_length.h"

#include <errno.h>
#include <libxml/parser.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MUST_COPY = 1, /* in addition to error codes: the samples cannot be read in place */
    HEADS = 1024,  /* acquisitions a batch in the first pass */
    ARRIVING = 8,  /* the same of a file that is still being written: few are left to convert when its end has come */
    SAMPLES = 256, /* at most, in the second */
};

/* A list of numbers in each item. */
struct list {
    size_t at;         /* its reference in the item */
    hid_t type;        /* of its numbers; -1: float32, no conversion */
    size_t item_bytes; /* of one number */
};

/* The numbers of one list, float32. */
struct samples {
    const void *at;
    uint64_t count;
};

/* One open scan. */
struct source {
    struct h5_upload h5;
    hid_t group, dataset;
    struct h5_items items;
    hid_t head_stored, head; /* types of an item's head */
    size_t head_at, head_bytes;
    struct list traj, data;
    char name[SCAN_H5_NAME];
};

int scan_readers_init(void)
{
    /* External links and plug-in filters would open files that the upload names. */
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0)
        return err_set(ERR_INTERNAL, "The library libhdf5 cannot be initialised.");
    H5Lunregister(H5L_TYPE_EXTERNAL);
    xmlInitParser();
    return 0;
}

/* ---- types ---- */

/* Member `name` of the items is a list of numbers of any width. */
static int list_open(struct list *list, hid_t stored, const char *name)
{
    unsigned place = (unsigned)H5Tget_member_index(stored, name);
    hid_t type = H5Tget_member_type(stored, place), item = -1;
    H5T_class_t class = H5Tget_class(type);
    if (class == H5T_VLEN)
        item = H5Tget_super(type);
    H5Tclose(type);
    list->at = H5Tget_member_offset(stored, place);
    if (item < 0 || !h5_is_plain(item) || list->at > H5Tget_size(stored) ||
        H5Tget_size(stored) - list->at < H5_UPLOAD_REFERENCE) {
        H5Tclose(item);
        return err_set(ERR_MALFORMED_FILE,
                       "The acquisitions' \"%s\" is %s; ISMRMRD requires a variable-length list of float32.", name,
                       class != H5T_VLEN ? "no variable-length list" : "a list of something other than numbers");
    }
    list->item_bytes = H5Tget_size(item);
    if (H5Tequal(item, H5T_NATIVE_FLOAT) > 0)
        H5Tclose(item);
    else
        list->type = item;
    return 0;
}

static int types_create(struct source *s, hid_t stored)
{
    static const char *const names[] = {"head", "traj", "data"};
    if (H5Tget_class(stored) != H5T_COMPOUND)
        return err_set(ERR_MALFORMED_FILE,
                       "\"data\" is not a list of acquisitions: ISMRMRD requires items of head, traj and data.");
    for (int i = 0; i < 3; i++)
        if (H5Tget_member_index(stored, names[i]) < 0)
            return err_set(ERR_MALFORMED_FILE, "The acquisitions lack the member \"%s\", which ISMRMRD requires.",
                           names[i]);
    int rc = list_open(&s->traj, stored, "traj");
    if (rc == 0)
        rc = list_open(&s->data, stored, "data");
    if (rc != 0)
        return rc;
    unsigned place = (unsigned)H5Tget_member_index(stored, "head");
    s->head_stored = H5Tget_member_type(stored, place);
    s->head_at = H5Tget_member_offset(stored, place);
    s->head_bytes = H5Tget_size(s->head_stored);
    if (H5Tget_class(s->head_stored) != H5T_COMPOUND)
        return err_set(ERR_MALFORMED_FILE, "The acquisitions' \"head\" has no members, which ISMRMRD requires.");
    if (s->head_at > H5Tget_size(stored) || s->head_bytes > H5Tget_size(stored) - s->head_at)
        return err_set(ERR_MALFORMED_FILE, "The acquisitions' \"head\" reaches beyond them: the file is damaged.");
    return scan_h5_head_type(&s->head, s->head_stored);
}

/* ---- the header ---- */

static int xml_text(struct source *s, hid_t dataset, hid_t type, char **out, size_t *bytes)
{
    bool variable = H5Tis_variable_str(type) > 0;
    size_t fixed = variable ? H5_UPLOAD_REFERENCE : H5Tget_size(type);
    struct h5_items items;
    struct h5_place text = {.bytes = fixed};
    uint64_t length;
    if (fixed > SCAN_MAX_XML)
        return err_set(ERR_LIMIT, "The ISMRMRD header (xml) takes %zu bytes; at most %d are read.", fixed,
                       SCAN_MAX_XML);
    int rc = h5_items_open(&items, &s->h5, dataset, fixed);
    if (rc == 0 &&
        (h5_items_at(&items, 0, &text.at) == 0 || (variable && !h5_list(&s->h5, text.at, 1, &text, &length))))
        rc = err_set(ERR_MALFORMED_FILE,
                     "The ISMRMRD header (xml) in group \"%s\" cannot be read: the file is damaged.", s->name);
    if (rc == 0 && !text.at)
        rc = err_set(ERR_HEADER_INVALID, "The file's ISMRMRD header (xml) is empty.");
    if (rc == 0 && text.bytes > SCAN_MAX_XML)
        rc = err_set(ERR_LIMIT, "The ISMRMRD header (xml) is longer than the %d bytes that are read.", SCAN_MAX_XML);
    if (rc == 0) {
        *bytes = strnlen((const char *)text.at, text.bytes);
        *out = malloc(*bytes + 1);
        if (*out)
            memcpy(*out, text.at, *bytes);
        else
            rc = err_no_memory("reading the ISMRMRD header");
    }
    h5_items_close(&items);
    return rc;
}

static int xml_read(struct source *s, char **out, size_t *bytes)
{
    hid_t dataset;
    int rc = h5_dataset_list(&dataset, s->group, "xml");
    if (rc != 0)
        return rc;
    hid_t space = H5Dget_space(dataset), type = H5Dget_type(dataset);
    if (H5Tget_class(type) != H5T_STRING || H5Sget_simple_extent_npoints(space) != 1)
        rc = err_set(ERR_MALFORMED_FILE, "\"xml\" in group \"%s\" must be one string, the ISMRMRD header; it is %s.",
                     s->name, H5Tget_class(type) == H5T_STRING ? "a list of several, or empty" : "no string");
    else
        rc = xml_text(s, dataset, type, out, bytes);
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(dataset);
    return rc;
}

/* ---- the acquisitions ---- */

static int damaged(uint64_t acquisition)
{
    return err_set_acquisition(
        ERR_MALFORMED_FILE, (int64_t)acquisition,
        "Acquisition %llu cannot be read: the file is damaged there, or its types are not those of "
        "ISMRMRD.",
        (unsigned long long)acquisition);
}

/* While the next item is still on its way: take the pages that the second pass reads of this one. */
static void lists_touch(struct source *s, const uint8_t *item)
{
    struct h5_place place;
    uint64_t length;
    h5_list(&s->h5, item + s->traj.at, s->traj.item_bytes, &place, &length);
    h5_list(&s->h5, item + s->data.at, s->data.item_bytes, &place, &length);
}

/* Read the heads of `count` items from `first` on into heads[]. `work` and `beside` have space for them, in the file's
 * layout or ours. */
static int heads_convert(struct source *s, uint64_t first, size_t count, struct scan_readout *heads, char *work,
                         char *beside)
{
    const uint8_t *at = NULL;
    uint64_t run = 0;
    for (size_t i = 0; i < count; i++, run--, at += s->items.item_bytes) {
        if (!run)
            run = h5_items_at(&s->items, first + i, &at);
        if (!run)
            return damaged(first + i);
        memcpy(work + i * s->head_bytes, at + s->head_at, s->head_bytes);
        if (s->h5.growing >= 0)
            lists_touch(s, at);
    }
    memset(beside, 0, count * sizeof *heads);
    if (H5Tconvert(s->head_stored, s->head, count, work, beside, H5P_DEFAULT) < 0)
        return damaged(first);
    memcpy(heads, work, count * sizeof *heads);
    for (size_t i = 0; i < count; i++)
        heads[i].acquisition = (uint32_t)(first + i);
    return 0;
}

static int heads_read(struct source *s, struct scan_builder *b)
{
    size_t room = s->head_bytes > sizeof(struct scan_readout) ? s->head_bytes : sizeof(struct scan_readout);
    const size_t most = s->h5.growing >= 0 ? ARRIVING : HEADS;
    const size_t batch = s->items.count < most ? (size_t)s->items.count : most;
    struct scan_readout *heads = malloc(batch * sizeof *heads);
    char *work = calloc(batch, room), *beside = malloc(batch * sizeof *heads);
    int rc = heads && work && beside ? 0 : err_no_memory("reading the acquisitions' heads");
    for (uint64_t first = 0; first < s->items.count && rc == 0; first += batch) {
        size_t count = s->items.count - first < batch ? (size_t)(s->items.count - first) : batch;
        rc = heads_convert(s, first, count, heads, work, beside);
        if (rc == 0)
            rc = scan_builder_readouts(b, heads, count);
    }
    free(beside);
    free(work);
    free(heads);
    return rc == 0 ? scan_builder_layout(b) : rc;
}

/* The list of an item as float32: in place in the file, or converted into `work`, which grows and which the caller
 * frees. */
static int list_read(struct source *s, const struct list *list, const uint8_t *item, uint64_t acquisition,
                     struct samples *out, char **work)
{
    struct h5_place place;
    uint64_t length;
    if (!h5_list(&s->h5, item + list->at, list->item_bytes, &place, &length))
        return damaged(acquisition);
    out->count = length;
    out->at = place.at;
    if (list->type < 0 || length == 0)
        return 0;
    size_t number = list->item_bytes > sizeof(float) ? list->item_bytes : sizeof(float);
    free(*work);
    *work = malloc(length * number); /* the list has at most 2^32 numbers, all of them in the file */
    if (!*work)
        return err_no_memory_bytes(length * number, "the %llu bytes of acquisition %llu",
                                   (unsigned long long)(length * number), (unsigned long long)acquisition);
    memcpy(*work, place.at, place.bytes);
    if (H5Tconvert(list->type, H5T_NATIVE_FLOAT, length, *work, NULL, H5P_DEFAULT) < 0)
        return damaged(acquisition);
    out->at = *work;
    return 0;
}

static int lengths_check(const struct scan_readout *r, const struct samples *traj, const struct samples *data)
{
    size_t wanted_traj = (size_t)r->samples * r->traj_dims, wanted_data = 2 * (size_t)r->samples * r->coils;
    if (traj->count != wanted_traj)
        return err_set_acquisition(
            ERR_MALFORMED_FILE, r->acquisition,
            "Acquisition %u holds %llu trajectory values, but its head says %zu (%u samples x %u dimensions).",
            r->acquisition, (unsigned long long)traj->count, wanted_traj, r->samples, r->traj_dims);
    if (data->count != wanted_data)
        return err_set_acquisition(
            ERR_MALFORMED_FILE, r->acquisition,
            "Acquisition %u holds %llu data values, but its head says %zu (%u samples x %u channels x 2).",
            r->acquisition, (unsigned long long)data->count, wanted_data, r->samples, r->coils);
    return 0;
}

/* Write the samples of one readout. Converted samples must be written before the next list is converted. */
static int readout_read(struct source *s, struct scan_builder *b, const struct scan_readout *r, const uint8_t *item,
                        char *work[2])
{
    struct samples traj, data;
    int rc = list_read(s, &s->traj, item, r->acquisition, &traj, &work[0]);
    if (rc == 0)
        rc = list_read(s, &s->data, item, r->acquisition, &data, &work[1]);
    if (rc == 0)
        rc = lengths_check(r, &traj, &data);
    if (rc == 0)
        rc = scan_builder_samples(b, r, traj.at, data.at);
    if (rc == 0 && (s->traj.type >= 0 || s->data.type >= 0))
        rc = scan_builder_flush(b);
    return rc;
}

/* Note where in the file the samples of one readout are. libhdf5 aligns lists to 8 bytes, but the format does not
 * require it. */
static int readout_place(struct source *s, struct scan_readout *r, const uint8_t *item)
{
    struct samples traj, data;
    int rc = list_read(s, &s->traj, item, r->acquisition, &traj, NULL);
    if (rc == 0)
        rc = list_read(s, &s->data, item, r->acquisition, &data, NULL);
    if (rc == 0)
        rc = lengths_check(r, &traj, &data);
    if (rc != 0)
        return rc;
    const uint64_t traj_at = traj.count ? (uint64_t)((const uint8_t *)traj.at - s->h5.image) : 0;
    const uint64_t data_at = (uint64_t)((const uint8_t *)data.at - s->h5.image);
    r->traj = traj_at / sizeof(float);
    r->data = data_at / sizeof(struct c32);
    return traj_at % sizeof(float) || data_at % sizeof(struct c32) ? MUST_COPY : 0;
}

static int samples_read(struct source *s, struct scan_builder *b)
{
    const size_t batch = b->header.readouts < SAMPLES ? (size_t)b->header.readouts : SAMPLES;
    struct scan_readout *readouts = malloc(batch * sizeof *readouts);
    char *work[2] = {NULL, NULL};
    const uint8_t *at = NULL;
    uint64_t run = 0, next = 0; /* items available at `at`, and the index of the first of them */
    int rc = readouts ? 0 : err_no_memory("reading the acquisitions");
    for (uint64_t first = 0; rc == 0 && first < b->header.readouts;) {
        uint64_t left = b->header.readouts - first;
        size_t count = left < batch ? (size_t)left : batch;
        rc = scan_builder_recall(b, readouts, first, count);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            uint64_t wanted = readouts[i].acquisition, passed = wanted - next;
            if (passed < run) { /* empty ones in between may have been skipped */
                at += passed * s->items.item_bytes;
                run -= passed;
            } else {
                run = h5_items_at(&s->items, wanted, &at);
            }
            next = wanted;
            rc = !run          ? damaged(wanted)
                 : b->in_place ? readout_place(s, &readouts[i], at)
                               : readout_read(s, b, &readouts[i], at, work);
        }
        if (rc == 0 && b->in_place)
            rc = scan_builder_amend(b, readouts, first, count);
        first += count;
    }
    free(work[0]);
    free(work[1]);
    free(readouts);
    return rc;
}

/* ---- the whole ---- */

static int source_open(struct source *s, const char *group)
{
    int rc = scan_h5_group(&s->group, s->name, s->h5.file, group);
    if (rc == 0)
        rc = h5_dataset_list(&s->dataset, s->group, "data");
    if (rc != 0)
        return rc;
    hid_t stored = H5Dget_type(s->dataset);
    rc = types_create(s, stored);
    if (rc == 0)
        rc = h5_items_open(&s->items, &s->h5, s->dataset, H5Tget_size(stored));
    H5Tclose(stored);
    return rc;
}

static void source_close(struct source *s)
{
    const hid_t types[] = {s->head_stored, s->head, s->traj.type, s->data.type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] >= 0)
            H5Tclose(types[i]);
    h5_items_close(&s->items);
    if (s->dataset >= 0)
        H5Dclose(s->dataset);
    if (s->group >= 0)
        H5Gclose(s->group);
    h5_upload_close(&s->h5);
}

/* Returns MUST_COPY only if `in_place`. */
static int acquisitions_decode(struct source *s, int fd, uint64_t cap, const struct scan_wanted *wanted, bool in_place)
{
    struct scan_builder *b = malloc(sizeof *b);
    struct scan_pixels pixels;
    char *xml = NULL;
    void *memory[2] = {NULL, NULL};
    size_t xml_bytes = 0;
    int rc = b ? 0 : err_no_memory("reading the file");
    if (rc == 0)
        rc = source_open(s, wanted && *wanted->group ? wanted->group : NULL);
    if (rc == 0)
        rc = xml_read(s, &xml, &xml_bytes);
    if (rc == 0)
        rc = scan_builder_begin(b, fd, cap, s->h5.bytes, xml, xml_bytes, s->items.count);
    if (rc == 0)
        b->in_place = in_place && s->traj.type < 0 && s->data.type < 0;
    if (rc == 0)
        rc = scan_h5_pixels_read(&pixels, memory, &s->h5, s->group);
    if (rc == 0)
        rc = scan_pixels_take(b, &pixels, 0);
    if (rc == 0) {
        b->header.ignored = scan_h5_count(s->group, "waveforms");
        rc = heads_read(s, b);
    }
    if (rc == 0)
        rc = scan_pixels_write(b, &pixels);
    if (rc == 0)
        rc = samples_read(s, b);
    if (rc == 0)
        rc = scan_builder_finish(b);
    free(memory[0]);
    free(memory[1]);
    free(xml);
    free(b);
    return rc;
}

/* A file as h5_upload_open() takes it. */
struct file_image {
    const void *image;
    size_t bytes;
    int growing;
    void (*done)(void); /* see codec_formats.h; NULL: of a file that is complete */
};

static int hdf5_decode(int fd, uint64_t cap, const struct file_image *upload, const struct scan_wanted *wanted,
                       bool in_place)
{
    struct source s = {.h5 = {.file = -1, .driver = -1}, .group = -1, .dataset = -1, .head_stored = -1, .head = -1};
    s.traj.type = s.data.type = -1;
    int rc = h5_upload_open(&s.h5, upload->image, upload->bytes, upload->growing);
    if (rc == 0)
        rc = scan_h5_has_arrays(s.h5.file) ? scan_h5_arrays_decode(fd, cap, &s.h5, wanted)
                                           : acquisitions_decode(&s, fd, cap, wanted, in_place);
    if (rc == 0 && upload->done) {
        h5_upload_wait(&s.h5, upload->bytes); /* for samples that stay there */
        upload->done();
    }
    source_close(&s);
    return rc;
}

static int upload_decode(int fd, uint64_t cap, const struct file_image *upload, const struct scan_wanted *wanted)
{
    const bool in_place = wanted && wanted->in_place;
    int rc = hdf5_decode(fd, cap, upload, wanted, in_place);
    return rc == MUST_COPY ? hdf5_decode(fd, cap, upload, wanted, false) : rc;
}

int scan_hdf5_decode(int fd, uint64_t cap, const void *file, size_t bytes, const struct scan_wanted *wanted)
{
    const struct file_image upload = {file, bytes, -1, NULL};
    return upload_decode(fd, cap, &upload, wanted);
}

int scan_hdf5_follow(int fd, uint64_t cap, int file, const struct scan_wanted *wanted, void (*done)(void))
{
    uint8_t head[H5_LENGTH_HEAD];
    const bool there = pread(file, head, sizeof head, 0) == sizeof head;
    const uint64_t bytes = there ? h5_length(head, sizeof head) : 0;
    if (bytes < sizeof head || bytes > INT64_MAX)
        return err_set(ERR_UNKNOWN_FORMAT, "The beginning of the HDF5 file does not tell its length.");
    void *image = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (image == MAP_FAILED)
        return err_set(ERR_IO, "The file cannot be mapped (%s).", strerror(errno));
    const struct file_image upload = {image, bytes, file, done};
    int rc = upload_decode(fd, cap, &upload, wanted);
    munmap(image, bytes);
    return rc;
}
