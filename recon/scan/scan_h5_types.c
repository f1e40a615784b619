/* The HDF5 types of an acquisition's head: members are found by name, and only plain numbers are converted. */
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"

#include <stddef.h>
#include <stdint.h>

struct type_member {
    const char *name;
    size_t offset;
    hid_t type;
    unsigned length; /* 0: no array */
};

/* Whether a member is inside its type, and is a plain number, or `length` of them. */
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
    plain = plain && h5_is_plain(item);
    if (length && item >= 0)
        H5Tclose(item);
    H5Tclose(type);
    return plain;
}

/* A compound of these members, if all of them are in `stored` (-1: not checked). */
static int compound_create(hid_t *out, size_t size, const struct type_member *members, size_t count, hid_t stored,
                           const char *what)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, size);
    for (size_t i = 0; i < count; i++) {
        hsize_t length = members[i].length;
        if (stored >= 0 && H5Tget_member_index(stored, members[i].name) < 0) {
            H5Tclose(type);
            return err_set(ERR_MALFORMED_FILE, "The acquisitions' %s lacks the member \"%s\", which ISMRMRD requires.",
                           what, members[i].name);
        }
        if (stored >= 0 &&
            !member_is_plain(stored, (unsigned)H5Tget_member_index(stored, members[i].name), members[i].length)) {
            H5Tclose(type);
            return err_set(ERR_MALFORMED_FILE, "The member \"%s\" of the acquisitions' %s is not as ISMRMRD requires.",
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

/* The type of the counters that `stored` has (-1: all of ISMRMRD's). */
static int idx_type_create(hid_t *out, hid_t stored)
{
#define AT(place) ((place) * sizeof(uint16_t))
    const struct type_member counters[] = {
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
    hid_t stored_idx = place < 0 ? -1 : H5Tget_member_type(stored, (unsigned)place);
    int rc = stored >= 0 && (stored_idx < 0 || H5Tget_class(stored_idx) != H5T_COMPOUND)
                 ? err_set(ERR_MALFORMED_FILE, "The acquisitions' head has no counters (idx), which ISMRMRD requires.")
                 : compound_create(out, SCAN_INDEXES * sizeof(uint16_t), counters, sizeof counters / sizeof *counters,
                                   stored_idx, "idx");
    if (stored_idx >= 0)
        H5Tclose(stored_idx);
    return rc;
}

int scan_h5_head_type(hid_t *out, hid_t stored)
{
#define AT(member) offsetof(struct scan_readout, member)
    const struct type_member members[] = {
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
    hid_t idx = -1, type = -1;
    int rc = idx_type_create(&idx, stored);
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
