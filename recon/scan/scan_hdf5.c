/* Reads an ISMRMRD HDF5 file. By libhdf5 itself, never by libismrmrd, whose readers trust the file. Members are found
 * by name, since libismrmrd (376 bytes an item), h5py (372) and native alignment (384) lay them out differently. Read
 * twice: all heads in one pass, which gives every length and place; then trajectories and data, out of the file itself
 * where they are float32 already. libhdf5 finds the scan's datasets and converts numbers; items and lists are taken
 * from the file by scan_h5_items.c, which checks every length. */
#include "recon/scan/scan_build.h"
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"

#include <libxml/parser.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    HEADS = 1024,  /* acquisitions a batch in the first pass */
    SAMPLES = 256, /* at most, in the second */
};

/* A list of numbers in each item. */
struct list {
    size_t at;         /* its reference in the item */
    hid_t type;        /* of its numbers; -1: float32, as they are wanted */
    size_t item_bytes; /* of one number */
};

/* The numbers of one list, float32. */
struct samples {
    const void *at;
    uint64_t count;
};

/* One open scan. */
struct source {
    struct scan_h5 h5;
    hid_t group, dataset;
    struct scan_h5_items items;
    hid_t head_stored, head; /* types of an item's head */
    size_t head_at, head_bytes;
    struct list traj, data;
    char name[SCAN_H5_NAME];
};

int scan_readers_init(void)
{
    /* External links and plug-in filters are files that the upload names. */
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0)
        return err_set(ERR_INTERNAL, "The library libhdf5 cannot be initialised.");
    H5Lunregister(H5L_TYPE_EXTERNAL);
    xmlInitParser();
    return 0;
}

/* ---- types ---- */

struct member {
    const char *name;
    size_t offset;
    hid_t type;
    unsigned length; /* 0: no array */
};

/* Numbers of whole bytes, laid out as IEEE 754 or two's complement are: what libhdf5 converts without looking beside
 * them. */
static bool number_is_plain(hid_t type)
{
    size_t bits = 8 * H5Tget_size(type), sign, exponent, exponent_bits, mantissa, mantissa_bits;
    H5T_class_t class = H5Tget_class(type);
    H5T_order_t order = H5Tget_order(type);
    if ((class != H5T_INTEGER && class != H5T_FLOAT) || bits == 0 || bits > 64 || H5Tget_offset(type) != 0 ||
        H5Tget_precision(type) != bits || (order != H5T_ORDER_LE && order != H5T_ORDER_BE))
        return false;
    return class == H5T_INTEGER ||
           (H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 && mantissa == 0 &&
            mantissa_bits > 0 && exponent_bits > 0 && exponent == mantissa_bits && sign == exponent + exponent_bits &&
            sign == bits - 1);
}

/* A member of a type lies within it, and is a plain number, or `length` of them. */
static bool member_is_plain(hid_t stored, unsigned place, hsize_t length)
{
    hid_t type = H5Tget_member_type(stored, place), item = type;
    hsize_t found = 0;
    size_t at = H5Tget_member_offset(stored, place), size = H5Tget_size(stored), bytes = H5Tget_size(type);
    bool plain = at <= size && bytes <= size - at;
    if (length) {
        plain = plain && H5Tget_class(type) == H5T_ARRAY && H5Tget_array_ndims(type) == 1 &&
                H5Tget_array_dims2(type, &found) == 1 && found == length;
        item = plain ? H5Tget_super(type) : -1;
        plain = plain && H5Tget_size(item) * length == bytes;
    }
    plain = plain && number_is_plain(item);
    if (length && item >= 0)
        H5Tclose(item);
    H5Tclose(type);
    return plain;
}

/* A compound of these members, where all of them are in `stored` (-1: nothing is looked at). */
static int compound_create(hid_t *out, size_t size, const struct member *members, size_t count, hid_t stored,
                           const char *what)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, size);
    for (size_t i = 0; i < count; i++) {
        hsize_t length = members[i].length;
        if (stored >= 0 && H5Tget_member_index(stored, members[i].name) < 0) {
            H5Tclose(type);
            return err_set(ERR_MALFORMED_FILE, "The acquisitions' %s lacks the member \"%s\", which ISMRMRD asks for.",
                           what, members[i].name);
        }
        if (stored >= 0 &&
            !member_is_plain(stored, (unsigned)H5Tget_member_index(stored, members[i].name), members[i].length)) {
            H5Tclose(type);
            return err_set(ERR_MALFORMED_FILE, "The member \"%s\" of the acquisitions' %s is not as ISMRMRD asks.",
                           members[i].name, what);
        }
        hid_t item = length ? H5Tarray_create2(members[i].type, 1, &length) : members[i].type;
        herr_t ok = H5Tinsert(type, members[i].name, members[i].offset, item);
        if (length)
            H5Tclose(item);
        if (ok < 0) {
            H5Tclose(type);
            return err_set(ERR_INTERNAL, "The library libhdf5 refuses the type of %s.", members[i].name);
        }
    }
    *out = type;
    return 0;
}

/* `stored` -1: as ISMRMRD has it. */
static int head_type_create(hid_t *out, hid_t stored)
{
#define AT(member) offsetof(struct scan_readout, member)
    const struct member members[] = {
        {"flags", AT(flags), H5T_NATIVE_UINT64, 0},
        {"measurement_uid", AT(measurement_uid), H5T_NATIVE_UINT32, 0},
        {"scan_counter", AT(scan_counter), H5T_NATIVE_UINT32, 0},
        {"acquisition_time_stamp", AT(time_stamp), H5T_NATIVE_UINT32, 0},
        {"number_of_samples", AT(samples), H5T_NATIVE_UINT16, 0},
        {"active_channels", AT(coils), H5T_NATIVE_UINT16, 0},
        {"trajectory_dimensions", AT(traj_dims), H5T_NATIVE_UINT16, 0},
        {"discard_pre", AT(discard_pre), H5T_NATIVE_UINT16, 0},
        {"discard_post", AT(discard_post), H5T_NATIVE_UINT16, 0},
        {"center_sample", AT(center_sample), H5T_NATIVE_UINT16, 0},
        {"encoding_space_ref", AT(encoding), H5T_NATIVE_UINT16, 0},
        {"sample_time_us", AT(sample_time_us), H5T_NATIVE_FLOAT, 0},
        {"position", AT(position), H5T_NATIVE_FLOAT, 3},
        {"read_dir", AT(read_dir), H5T_NATIVE_FLOAT, 3},
        {"phase_dir", AT(phase_dir), H5T_NATIVE_FLOAT, 3},
        {"slice_dir", AT(slice_dir), H5T_NATIVE_FLOAT, 3},
        {"patient_table_position", AT(table_position), H5T_NATIVE_FLOAT, 3},
    };
#undef AT
#define AT(place) ((place) * sizeof(uint16_t))
    const struct member counters[] = {
        {"kspace_encode_step_1", AT(SCAN_STEP1), H5T_NATIVE_UINT16, 0},
        {"kspace_encode_step_2", AT(SCAN_STEP2), H5T_NATIVE_UINT16, 0},
        {"average", AT(SCAN_AVERAGE), H5T_NATIVE_UINT16, 0},
        {"slice", AT(SCAN_SLICE), H5T_NATIVE_UINT16, 0},
        {"contrast", AT(SCAN_CONTRAST), H5T_NATIVE_UINT16, 0},
        {"phase", AT(SCAN_PHASE), H5T_NATIVE_UINT16, 0},
        {"repetition", AT(SCAN_REPETITION), H5T_NATIVE_UINT16, 0},
        {"set", AT(SCAN_SET), H5T_NATIVE_UINT16, 0},
        {"segment", AT(SCAN_SEGMENT), H5T_NATIVE_UINT16, 0},
    };
#undef AT
    int place = stored < 0 ? -1 : H5Tget_member_index(stored, "idx");
    hid_t stored_idx = place < 0 ? -1 : H5Tget_member_type(stored, (unsigned)place), idx = -1, type = -1;
    if (stored >= 0 && (stored_idx < 0 || H5Tget_class(stored_idx) != H5T_COMPOUND)) {
        H5Tclose(stored_idx);
        return err_set(ERR_MALFORMED_FILE, "The acquisitions' head has no counters (idx), which ISMRMRD asks for.");
    }
    int rc = compound_create(&idx, SCAN_INDEXES * sizeof(uint16_t), counters, sizeof counters / sizeof *counters,
                             stored_idx, "idx");
    if (stored_idx >= 0)
        H5Tclose(stored_idx);
    if (rc != 0)
        return rc;
    rc = compound_create(&type, sizeof(struct scan_readout), members, sizeof members / sizeof *members, stored, "head");
    if (rc == 0 && H5Tinsert(type, "idx", offsetof(struct scan_readout, idx), idx) < 0)
        rc = err_set(ERR_INTERNAL, "The library libhdf5 refuses the type of idx.");
    H5Tclose(idx);
    if (rc == 0)
        *out = type;
    else if (type >= 0)
        H5Tclose(type);
    return rc;
}

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
    if (item < 0 || !number_is_plain(item) || list->at > H5Tget_size(stored) ||
        H5Tget_size(stored) - list->at < SCAN_H5_REFERENCE) {
        H5Tclose(item);
        return err_set(ERR_MALFORMED_FILE,
                       "The acquisitions' \"%s\" is %s; ISMRMRD asks for a variable-length list of float32.", name,
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
                       "\"data\" is no list of acquisitions: ISMRMRD asks for items of head, traj and "
                       "data.");
    for (int i = 0; i < 3; i++)
        if (H5Tget_member_index(stored, names[i]) < 0)
            return err_set(ERR_MALFORMED_FILE, "The acquisitions lack the member \"%s\", which ISMRMRD asks for.",
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
        return err_set(ERR_MALFORMED_FILE, "The acquisitions' \"head\" has no members, which ISMRMRD asks for.");
    if (s->head_at > H5Tget_size(stored) || s->head_bytes > H5Tget_size(stored) - s->head_at)
        return err_set(ERR_MALFORMED_FILE, "The acquisitions' \"head\" reaches beyond them: the file is damaged.");
    return head_type_create(&s->head, s->head_stored);
}

/* ---- the header ---- */

static int xml_text(struct source *s, hid_t dataset, hid_t type, char **out, size_t *bytes)
{
    bool variable = H5Tis_variable_str(type) > 0;
    size_t fixed = variable ? SCAN_H5_REFERENCE : H5Tget_size(type);
    struct scan_h5_items items;
    struct scan_h5_place text = {.bytes = fixed};
    uint64_t length;
    if (fixed > SCAN_MAX_XML)
        return err_set(ERR_LIMIT, "The ISMRMRD header (xml) takes %zu bytes; at most %d are read.", fixed,
                       SCAN_MAX_XML);
    int rc = scan_h5_items_open(&items, &s->h5, dataset, fixed);
    if (rc == 0 &&
        (scan_h5_items_at(&items, 0, &text.at) == 0 || (variable && !scan_h5_list(&s->h5, text.at, 1, &text, &length))))
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
    scan_h5_items_close(&items);
    return rc;
}

static int xml_read(struct source *s, char **out, size_t *bytes)
{
    hid_t dataset;
    int rc = scan_h5_dataset(&dataset, s->group, "xml");
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

/* Heads of `count` items from `first` on into heads[]. `work` and `beside` have room for HEADS, in the file or here. */
static int heads_convert(struct source *s, uint64_t first, size_t count, struct scan_readout *heads, char *work,
                         char *beside)
{
    const uint8_t *at = NULL;
    uint64_t run = 0;
    for (size_t i = 0; i < count; i++, run--, at += s->items.item_bytes) {
        if (!run)
            run = scan_h5_items_at(&s->items, first + i, &at);
        if (!run)
            return damaged(first + i);
        memcpy(work + i * s->head_bytes, at + s->head_at, s->head_bytes);
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
    struct scan_readout *heads = malloc(HEADS * sizeof *heads);
    char *work = calloc(HEADS, room), *beside = malloc(HEADS * sizeof *heads);
    int rc = heads && work && beside ? 0 : err_no_memory("reading the acquisitions' heads");
    for (uint64_t first = 0; first < s->items.count && rc == 0; first += HEADS) {
        size_t count = s->items.count - first < HEADS ? (size_t)(s->items.count - first) : HEADS;
        rc = heads_convert(s, first, count, heads, work, beside);
        if (rc == 0)
            rc = scan_builder_readouts(b, heads, count);
    }
    free(beside);
    free(work);
    free(heads);
    return rc == 0 ? scan_builder_layout(b) : rc;
}

/* The list of an item as float32: in the file, or converted into `work`, which grows and is the caller's. */
static int list_read(struct source *s, const struct list *list, const uint8_t *item, uint64_t acquisition,
                     struct samples *out, char **work)
{
    struct scan_h5_place place;
    uint64_t length;
    if (!scan_h5_list(&s->h5, item + list->at, list->item_bytes, &place, &length))
        return damaged(acquisition);
    out->count = length;
    out->at = place.at;
    if (list->type < 0 || length == 0)
        return 0;
    size_t number = list->item_bytes > sizeof(float) ? list->item_bytes : sizeof(float);
    free(*work);
    *work = malloc(length * number); /* the list has 2^32 numbers at most, and is as long in the file */
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
            "Acquisition %u holds %llu trajectory values, but its head asks for %zu (%u samples x %u "
            "dimensions).",
            r->acquisition, (unsigned long long)traj->count, wanted_traj, r->samples, r->traj_dims);
    if (data->count != wanted_data)
        return err_set_acquisition(ERR_MALFORMED_FILE, r->acquisition,
                                   "Acquisition %u holds %llu data values, but its head asks for %zu (%u samples x %u "
                                   "channels x 2).",
                                   r->acquisition, (unsigned long long)data->count, wanted_data, r->samples, r->coils);
    return 0;
}

/* Write the samples of one readout. What is converted has to be written before the next is. */
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

static int samples_read(struct source *s, struct scan_builder *b)
{
    struct scan_readout *readouts = malloc(SAMPLES * sizeof *readouts);
    char *work[2] = {NULL, NULL};
    const uint8_t *at = NULL;
    uint64_t run = 0, next = 0; /* items behind `at`, and the number of the first of them */
    int rc = readouts ? 0 : err_no_memory("reading the acquisitions");
    for (uint64_t first = 0; rc == 0 && first < b->header.readouts;) {
        uint64_t left = b->header.readouts - first;
        size_t count = left < SAMPLES ? (size_t)left : SAMPLES;
        rc = scan_builder_recall(b, readouts, first, count);
        for (size_t i = 0; rc == 0 && i < count; i++) {
            uint64_t wanted = readouts[i].acquisition, passed = wanted - next;
            if (passed < run) { /* some in between may have been left out */
                at += passed * s->items.item_bytes;
                run -= passed;
            } else {
                run = scan_h5_items_at(&s->items, wanted, &at);
            }
            next = wanted;
            rc = run ? readout_read(s, b, &readouts[i], at, work) : damaged(wanted);
        }
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
        rc = scan_h5_dataset(&s->dataset, s->group, "data");
    if (rc != 0)
        return rc;
    hid_t stored = H5Dget_type(s->dataset);
    rc = types_create(s, stored);
    if (rc == 0)
        rc = scan_h5_items_open(&s->items, &s->h5, s->dataset, H5Tget_size(stored));
    H5Tclose(stored);
    return rc;
}

static void source_close(struct source *s)
{
    const hid_t types[] = {s->head_stored, s->head, s->traj.type, s->data.type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i] >= 0)
            H5Tclose(types[i]);
    scan_h5_items_close(&s->items);
    if (s->dataset >= 0)
        H5Dclose(s->dataset);
    if (s->group >= 0)
        H5Gclose(s->group);
    scan_h5_close(&s->h5);
}

static int acquisitions_decode(struct source *s, int fd, uint64_t cap, const struct scan_wanted *wanted)
{
    struct scan_builder *b = malloc(sizeof *b);
    char *xml = NULL;
    size_t xml_bytes = 0;
    int rc = b ? 0 : err_no_memory("reading the file");
    if (rc == 0)
        rc = source_open(s, wanted && *wanted->group ? wanted->group : NULL);
    if (rc == 0)
        rc = xml_read(s, &xml, &xml_bytes);
    if (rc == 0)
        rc = scan_builder_begin(b, fd, cap, s->h5.bytes, xml, xml_bytes, s->items.count);
    if (rc == 0) {
        b->header.ignored = scan_h5_count(s->group, "waveforms");
        rc = heads_read(s, b);
    }
    if (rc == 0)
        rc = samples_read(s, b);
    if (rc == 0)
        rc = scan_builder_finish(b);
    free(xml);
    free(b);
    return rc;
}

int scan_hdf5_decode(int fd, uint64_t cap, const void *file, size_t bytes, const struct scan_wanted *wanted)
{
    struct source s = {.h5 = {.file = -1, .driver = -1}, .group = -1, .dataset = -1, .head_stored = -1, .head = -1};
    s.traj.type = s.data.type = -1;
    int rc = scan_h5_open(&s.h5, file, bytes);
    if (rc == 0)
        rc = scan_h5_has_arrays(s.h5.file) ? scan_h5_arrays_decode(fd, cap, s.h5.file, wanted)
                                           : acquisitions_decode(&s, fd, cap, wanted);
    source_close(&s);
    return rc;
}

/* ---- rehearsal ---- */

static const char rehearsal_xml[] =
    "<ismrmrdHeader xmlns=\"http://www.ismrm.org/ISMRMRD\"><experimentalConditions><H1resonanceFrequency_Hz>1"
    "</H1resonanceFrequency_Hz></experimentalConditions><encoding><encodedSpace><matrixSize><x>1</x><y>1</y><z>1</z>"
    "</matrixSize><fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></encodedSpace><reconSpace><matrixSize><x>1"
    "</x><y>1</y><z>1</z></matrixSize><fieldOfView_mm><x>1</x><y>1</y><z>1</z></fieldOfView_mm></reconSpace>"
    "<encodingLimits/><trajectory>other</trajectory></encoding></ismrmrdHeader>";

/* Write `value` as a list of one item. */
static herr_t one_write(hid_t group, const char *name, hid_t type, const void *value)
{
    const hsize_t one = 1;
    hid_t space = H5Screate_simple(1, &one, NULL), plist = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plist, 1, &one);
    hid_t dataset = H5Dcreate2(group, name, type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    herr_t rc = dataset < 0 ? -1 : H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value);
    if (dataset >= 0)
        H5Dclose(dataset);
    H5Pclose(plist);
    H5Sclose(space);
    return rc;
}

/* A scan of one sample, as a file in memory; *image is the caller's. */
static int rehearsal_make(void **image, size_t *bytes)
{
    struct acquisition {
        struct scan_readout head;
        hvl_t traj, data;
    } item = {.head = {.samples = 1, .coils = 1, .traj_dims = 2}};
    float traj[2] = {0}, data[2] = {0};
    const char *xml = rehearsal_xml;
    item.traj = (hvl_t){2, traj};
    item.data = (hvl_t){2, data};
    hid_t head = -1, list = H5Tvlen_create(H5T_NATIVE_FLOAT), type = H5Tcreate(H5T_COMPOUND, sizeof item);
    int rc = head_type_create(&head, -1);
    if (rc != 0)
        return rc;
    H5Tinsert(type, "head", offsetof(struct acquisition, head), head);
    H5Tinsert(type, "traj", offsetof(struct acquisition, traj), list);
    H5Tinsert(type, "data", offsetof(struct acquisition, data), list);
    hid_t text = H5Tcopy(H5T_C_S1), plist = H5Pcreate(H5P_FILE_ACCESS);
    H5Tset_size(text, H5T_VARIABLE);
    H5Pset_fapl_core(plist, 1 << 16, 0);
    hid_t file = H5Fcreate("rehearsal", H5F_ACC_TRUNC, H5P_DEFAULT, plist);
    hid_t group = file < 0 ? -1 : H5Gcreate2(file, "dataset", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool written = group >= 0 && one_write(group, "xml", text, &xml) >= 0 &&
                   one_write(group, "data", type, &item) >= 0 && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
    ssize_t size = written ? H5Fget_file_image(file, NULL, 0) : -1;
    *image = size > 0 ? malloc((size_t)size) : NULL;
    if (!*image || H5Fget_file_image(file, *image, (size_t)size) != size)
        rc = err_set(ERR_INTERNAL, "The decoder cannot make the scan that it rehearses with.");
    *bytes = (size_t)size;
    if (group >= 0)
        H5Gclose(group);
    if (file >= 0)
        H5Fclose(file);
    H5Pclose(plist);
    const hid_t types[] = {text, type, list, head};
    for (int i = 0; i < 4; i++)
        H5Tclose(types[i]);
    return rc;
}

int scan_hdf5_rehearse(void)
{
    void *image = NULL;
    size_t bytes = 0;
    int memory = memfd_create("rehearsal", MFD_CLOEXEC);
    int rc = memory < 0 ? err_no_memory("the warm-up scan") : rehearsal_make(&image, &bytes);
    if (rc == 0)
        rc = scan_hdf5_decode(memory, UINT64_C(1) << 20, image, bytes, NULL);
    if (rc != 0)
        err_prefix("A decoder's rehearsal failed: ");
    if (memory >= 0)
        close(memory);
    free(image);
    return rc;
}
