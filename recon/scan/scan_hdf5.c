/* Reads an ISMRMRD HDF5 file. By libhdf5 itself, never by libismrmrd, whose readers trust the file. Members are found
 * by name, since libismrmrd (376 bytes an item), h5py (372) and native alignment (384) lay them out differently. Read
 * twice: all heads in one pass, which gives every length and place; then trajectories and data in batches that stay in
 * the processor's cache. */
#include "recon/scan/scan_build.h"
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"

#include <libxml/parser.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    HEADS = 1024,          /* acquisitions a batch in the first pass */
    SAMPLES = 256,         /* at most, in the second */
    BATCH_BYTES = 2 << 20, /* of samples; fewer acquisitions where they are long */
    SLACK = 64,            /* what the arena loses to rounding for an acquisition */
};

/* One open scan. */
struct source {
    hid_t file, group, dataset, space, type_heads, type_samples, transfer;
    uint64_t acquisitions;
    struct scan_h5_arena arena;
    char name[SCAN_H5_NAME];
};

/* What libhdf5 fills in of the second pass. */
struct samples {
    hvl_t traj, data;
};

int scan_readers_init(void)
{
    /* External links and plug-in filters are files that the upload names. */
    if (H5open() < 0 || H5Eset_auto2(H5E_DEFAULT, NULL, NULL) < 0 || H5PLset_loading_state(0) < 0)
        return err_set(ERR_INTERNAL, "libhdf5 cannot be initialised.");
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

/* A compound of these members, where all of them are in `stored` (of which only the names are looked at; -1: nothing
 * is). */
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
        hid_t item = length ? H5Tarray_create2(members[i].type, 1, &length) : members[i].type;
        herr_t ok = H5Tinsert(type, members[i].name, members[i].offset, item);
        if (length)
            H5Tclose(item);
        if (ok < 0) {
            H5Tclose(type);
            return err_set(ERR_INTERNAL, "libhdf5 refuses the type of %s.", members[i].name);
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
        rc = err_set(ERR_INTERNAL, "libhdf5 refuses the type of idx.");
    H5Tclose(idx);
    if (rc == 0)
        *out = type;
    else if (type >= 0)
        H5Tclose(type);
    return rc;
}

/* Member `name` of the items is a list of numbers of any width. */
static int list_check(hid_t stored, const char *name)
{
    hid_t list = H5Tget_member_type(stored, (unsigned)H5Tget_member_index(stored, name)), item = -1;
    H5T_class_t class = H5Tget_class(list);
    if (class == H5T_VLEN)
        item = H5Tget_super(list);
    H5T_class_t number = item < 0 ? H5T_NO_CLASS : H5Tget_class(item);
    H5Tclose(item);
    H5Tclose(list);
    if (class != H5T_VLEN || (number != H5T_FLOAT && number != H5T_INTEGER))
        return err_set(ERR_MALFORMED_FILE,
                       "The acquisitions' \"%s\" is %s; ISMRMRD asks for a variable-length list of float32.", name,
                       class != H5T_VLEN ? "no variable-length list" : "a list of something other than numbers");
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
    int rc = list_check(stored, "traj");
    if (rc == 0)
        rc = list_check(stored, "data");
    if (rc != 0)
        return rc;
    hid_t stored_head = H5Tget_member_type(stored, (unsigned)H5Tget_member_index(stored, "head")), head = -1;
    if (H5Tget_class(stored_head) != H5T_COMPOUND)
        rc = err_set(ERR_MALFORMED_FILE, "The acquisitions' \"head\" has no members, which ISMRMRD asks for.");
    if (rc == 0)
        rc = head_type_create(&head, stored_head);
    H5Tclose(stored_head);
    if (rc != 0)
        return rc;
    s->type_heads = H5Tcreate(H5T_COMPOUND, sizeof(struct scan_readout));
    s->type_samples = H5Tcreate(H5T_COMPOUND, sizeof(struct samples));
    hid_t list = H5Tvlen_create(H5T_NATIVE_FLOAT);
    if (H5Tinsert(s->type_heads, "head", 0, head) < 0 ||
        H5Tinsert(s->type_samples, "traj", offsetof(struct samples, traj), list) < 0 ||
        H5Tinsert(s->type_samples, "data", offsetof(struct samples, data), list) < 0)
        rc = err_set(ERR_INTERNAL, "libhdf5 refuses the type of an acquisition.");
    H5Tclose(list);
    H5Tclose(head);
    return rc;
}

/* ---- the header ---- */

static int xml_text(const struct source *s, hid_t dataset, hid_t type, char **out, size_t *bytes)
{
    bool variable = H5Tis_variable_str(type) > 0;
    size_t fixed = variable ? 0 : H5Tget_size(type);
    if (fixed > SCAN_MAX_XML)
        return err_set(ERR_LIMIT, "The ISMRMRD header (xml) takes %zu bytes; at most %d are read.", fixed,
                       SCAN_MAX_XML);
    struct scan_h5_arena arena = {.size = SCAN_MAX_XML};
    char *text = NULL, *copy = NULL;
    arena.base = calloc(1, variable ? arena.size : fixed + 1);
    hid_t transfer = scan_h5_transfer(&arena, H5Tget_size(type));
    int rc = 0;
    if (!arena.base || transfer < 0)
        rc = err_set(ERR_NO_MEMORY, "There is no memory to read the ISMRMRD header.");
    else if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, transfer, variable ? (void *)&text : arena.base) < 0)
        rc = arena.full ? err_set(ERR_LIMIT, "The ISMRMRD header (xml) is longer than the %d bytes that are read.",
                                  SCAN_MAX_XML)
                        : err_set(ERR_MALFORMED_FILE,
                                  "The ISMRMRD header (xml) in group \"%s\" cannot be read: the file is "
                                  "damaged.",
                                  s->name);
    if (rc == 0 && !variable)
        text = arena.base;
    if (rc == 0 && !text)
        rc = err_set(ERR_HEADER_INVALID, "The file's ISMRMRD header (xml) is empty.");
    if (rc == 0) {
        *bytes = strnlen(text, (size_t)(arena.base + (variable ? arena.size : fixed) - text));
        copy = malloc(*bytes + 1);
        if (!copy)
            rc = err_set(ERR_NO_MEMORY, "There is no memory to read the ISMRMRD header.");
        else
            memcpy(copy, text, *bytes);
    }
    H5Pclose(transfer);
    free(arena.base);
    if (rc == 0)
        *out = copy;
    return rc;
}

static int xml_read(const struct source *s, char **out, size_t *bytes)
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

/* Read items [first, first + count) as `type`. */
static herr_t items_read(const struct source *s, hid_t type, uint64_t first, size_t count, void *to)
{
    hsize_t start = first, length = count;
    hid_t memory = H5Screate_simple(1, &length, NULL);
    herr_t ok = memory < 0 ? -1 : 0;
    if (ok >= 0 && H5Sget_simple_extent_ndims(s->space) == 1)
        ok = H5Sselect_hyperslab(s->space, H5S_SELECT_SET, &start, NULL, &length, NULL);
    if (ok >= 0)
        ok = H5Dread(s->dataset, type, memory, s->space, s->transfer, to);
    H5Sclose(memory);
    return ok;
}

static int damaged(uint64_t first, size_t count)
{
    return err_set_acquisition(
        ERR_MALFORMED_FILE, (int64_t)first,
        "Acquisition %llu%s cannot be read: the file is damaged there, or its types are not those of "
        "ISMRMRD.",
        (unsigned long long)first, count > 1 ? " or one of those that follow" : "");
}

static int heads_read(const struct source *s, struct scan_builder *b)
{
    struct scan_readout *heads = calloc(HEADS, sizeof *heads);
    if (!heads)
        return err_set(ERR_NO_MEMORY, "There is no memory to read the acquisitions' heads.");
    int rc = 0;
    for (uint64_t first = 0; first < s->acquisitions && rc == 0; first += HEADS) {
        size_t count = s->acquisitions - first < HEADS ? (size_t)(s->acquisitions - first) : HEADS;
        if (items_read(s, s->type_heads, first, count, heads) < 0)
            rc = damaged(first, count);
        for (size_t i = 0; i < count; i++)
            heads[i].acquisition = (uint32_t)(first + i);
        if (rc == 0)
            rc = scan_builder_readouts(b, heads, count);
    }
    free(heads);
    return rc == 0 ? scan_builder_layout(b) : rc;
}

static size_t sample_bytes(const struct scan_readout *r)
{
    return (size_t)r->samples * (r->traj_dims * sizeof(float) + r->coils * sizeof(struct c32)) + SLACK;
}

static int lengths_check(const struct scan_readout *r, const struct samples *v)
{
    size_t traj = (size_t)r->samples * r->traj_dims, data = 2 * (size_t)r->samples * r->coils;
    if (v->traj.len != traj || (traj && !v->traj.p))
        return err_set_acquisition(
            ERR_MALFORMED_FILE, r->acquisition,
            "Acquisition %u holds %zu trajectory values, but its head asks for %zu (%u samples x %u "
            "dimensions).",
            r->acquisition, v->traj.len, traj, r->samples, r->traj_dims);
    if (v->data.len != data || !v->data.p)
        return err_set_acquisition(ERR_MALFORMED_FILE, r->acquisition,
                                   "Acquisition %u holds %zu data values, but its head asks for %zu (%u samples x %u "
                                   "channels x 2).",
                                   r->acquisition, v->data.len, data, r->samples, r->coils);
    return 0;
}

/* Read the samples of `count` readouts that follow each other in the file. */
static int batch_read(struct source *s, struct scan_builder *b, const struct scan_readout *r, size_t count,
                      struct samples *values)
{
    size_t need = 0;
    for (size_t i = 0; i < count; i++)
        need += sample_bytes(&r[i]);
    if (need > s->arena.size) {
        char *larger = realloc(s->arena.base, need);
        if (!larger)
            return err_set_bytes(ERR_NO_MEMORY, (int64_t)need, -1,
                                 "There is no memory for the %zu bytes of acquisition %u.", need, r->acquisition);
        s->arena.base = larger;
        s->arena.size = need;
    }
    s->arena.used = 0;
    s->arena.full = false;
    memset(values, 0, count * sizeof *values);
    int rc = 0;
    if (items_read(s, s->type_samples, r->acquisition, count, values) < 0) {
        /* Find which one it is. */
        if (count > 1) {
            for (size_t i = 0; i < count && rc == 0; i++)
                rc = batch_read(s, b, r + i, 1, values);
            return rc;
        }
        return s->arena.full
                   ? err_set_acquisition(ERR_MALFORMED_FILE, r->acquisition,
                                         "Acquisition %u holds more values than its head says (%u samples, %u "
                                         "channels, %u trajectory dimensions).",
                                         r->acquisition, r->samples, r->coils, r->traj_dims)
                   : damaged(r->acquisition, 1);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = lengths_check(&r[i], &values[i]);
        if (rc == 0)
            rc = scan_builder_samples(b, &r[i], values[i].traj.p, values[i].data.p);
    }
    return rc == 0 ? scan_builder_flush(b) : rc;
}

/* How many of `count` readouts are read at once: neighbours in the file, of BATCH_BYTES together. */
static size_t batch_size(const struct scan_readout *r, size_t count)
{
    size_t n = 1, bytes = sample_bytes(r);
    while (n < count && r[n].acquisition == r[0].acquisition + n && (bytes += sample_bytes(&r[n])) <= BATCH_BYTES)
        n++;
    return n;
}

static int samples_read(struct source *s, struct scan_builder *b)
{
    struct scan_readout *readouts = malloc(SAMPLES * sizeof *readouts);
    struct samples *values = malloc(SAMPLES * sizeof *values);
    int rc = 0;
    if (!readouts || !values)
        rc = err_set(ERR_NO_MEMORY, "There is no memory to read the acquisitions.");
    for (uint64_t first = 0; rc == 0 && first < b->header.readouts;) {
        uint64_t left = b->header.readouts - first;
        size_t count = left < SAMPLES ? (size_t)left : SAMPLES;
        rc = scan_builder_recall(b, readouts, first, count);
        for (size_t i = 0, n; rc == 0 && i < count; i += n) {
            n = batch_size(readouts + i, count - i);
            rc = batch_read(s, b, readouts + i, n, values);
        }
        first += count;
    }
    free(values);
    free(readouts);
    return rc;
}

/* ---- the whole ---- */

static int source_open(struct source *s, const void *file, size_t bytes, const char *group)
{
    int rc = scan_h5_open(&s->file, file, bytes);
    if (rc == 0)
        rc = scan_h5_group(&s->group, s->name, s->file, group);
    if (rc == 0)
        rc = scan_h5_dataset(&s->dataset, s->group, "data");
    if (rc != 0)
        return rc;
    hid_t stored = H5Dget_type(s->dataset);
    size_t item_bytes = H5Tget_size(stored);
    rc = types_create(s, stored);
    H5Tclose(stored);
    if (rc != 0)
        return rc;
    s->space = H5Dget_space(s->dataset);
    hssize_t items = H5Sget_simple_extent_npoints(s->space);
    s->transfer = scan_h5_transfer(&s->arena, item_bytes);
    if (items < 0 || s->transfer < 0)
        return err_set(ERR_MALFORMED_FILE, "The length of the list of acquisitions cannot be read.");
    s->acquisitions = (uint64_t)items;
    return 0;
}

static void source_close(struct source *s)
{
    const hid_t types[] = {s->type_heads, s->type_samples};
    for (int i = 0; i < 2; i++)
        if (types[i] >= 0)
            H5Tclose(types[i]);
    if (s->space >= 0)
        H5Sclose(s->space);
    if (s->dataset >= 0)
        H5Dclose(s->dataset);
    if (s->transfer >= 0)
        H5Pclose(s->transfer);
    if (s->group >= 0)
        H5Gclose(s->group);
    if (s->file >= 0)
        H5Fclose(s->file);
    free(s->arena.base);
}

int scan_hdf5_decode(int fd, uint64_t cap, const void *file, size_t bytes, const char *group)
{
    struct source s = {-1, -1, -1, -1, -1, -1, -1, 0, {0}, ""};
    struct scan_builder *b = malloc(sizeof *b);
    char *xml = NULL;
    size_t xml_bytes = 0;
    int rc = b ? 0 : err_set(ERR_NO_MEMORY, "There is no memory to read the file.");
    if (rc == 0)
        rc = source_open(&s, file, bytes, group);
    if (rc == 0)
        rc = xml_read(&s, &xml, &xml_bytes);
    if (rc == 0)
        rc = scan_builder_begin(b, fd, cap, bytes, xml, xml_bytes, s.acquisitions);
    if (rc == 0) {
        b->header.ignored = scan_h5_count(s.group, "waveforms");
        rc = heads_read(&s, b);
    }
    if (rc == 0)
        rc = samples_read(&s, b);
    if (rc == 0)
        rc = scan_builder_finish(b);
    free(xml);
    source_close(&s);
    free(b);
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
        struct samples samples;
    } item = {.head = {.samples = 1, .coils = 1, .traj_dims = 2}};
    float traj[2] = {0}, data[2] = {0};
    const char *xml = rehearsal_xml;
    item.samples.traj = (hvl_t){2, traj};
    item.samples.data = (hvl_t){2, data};
    hid_t head = -1, list = H5Tvlen_create(H5T_NATIVE_FLOAT), type = H5Tcreate(H5T_COMPOUND, sizeof item);
    int rc = head_type_create(&head, -1);
    if (rc != 0)
        return rc;
    H5Tinsert(type, "head", offsetof(struct acquisition, head), head);
    H5Tinsert(type, "traj", offsetof(struct acquisition, samples.traj), list);
    H5Tinsert(type, "data", offsetof(struct acquisition, samples.data), list);
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
    int rc = memory < 0 ? err_set(ERR_NO_MEMORY, "There is no memory to rehearse in.") : rehearsal_make(&image, &bytes);
    if (rc == 0)
        rc = scan_hdf5_decode(memory, UINT64_C(1) << 20, image, bytes, NULL);
    if (rc != 0)
        err_prefix("A decoder's rehearsal failed: ");
    if (memory >= 0)
        close(memory);
    free(image);
    return rc;
}
