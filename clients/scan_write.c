#include "clients/scan_write.h"

#include "gridding/base/err.h"
#include "recon/image/image_h5_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256 }; /* acquisitions; the vlen data itself is in HDF5's heap */

struct scan_writer {
    struct h5_fd io;
    hid_t driver, file, type, data;
    size_t count, written;
    char path[512];
};

#define HEAD(member)  offsetof(ISMRMRD_AcquisitionHeader, member)
#define INDEX(member) offsetof(ISMRMRD_EncodingCounters, member)

struct compound_member {
    const char *name;
    size_t offset;
    char type;      /* H 16, I 32, L 64 bits unsigned; i 32 bits signed; f float32 */
    hsize_t repeat; /* 1: no array */
};

static const struct compound_member head_members[] = {
    {"version", HEAD(version), 'H', 1},
    {"flags", HEAD(flags), 'L', 1},
    {"measurement_uid", HEAD(measurement_uid), 'I', 1},
    {"scan_counter", HEAD(scan_counter), 'I', 1},
    {"acquisition_time_stamp", HEAD(acquisition_time_stamp), 'I', 1},
    {"physiology_time_stamp", HEAD(physiology_time_stamp), 'I', ISMRMRD_PHYS_STAMPS},
    {"number_of_samples", HEAD(number_of_samples), 'H', 1},
    {"available_channels", HEAD(available_channels), 'H', 1},
    {"active_channels", HEAD(active_channels), 'H', 1},
    {"channel_mask", HEAD(channel_mask), 'L', ISMRMRD_CHANNEL_MASKS},
    {"discard_pre", HEAD(discard_pre), 'H', 1},
    {"discard_post", HEAD(discard_post), 'H', 1},
    {"center_sample", HEAD(center_sample), 'H', 1},
    {"encoding_space_ref", HEAD(encoding_space_ref), 'H', 1},
    {"trajectory_dimensions", HEAD(trajectory_dimensions), 'H', 1},
    {"sample_time_us", HEAD(sample_time_us), 'f', 1},
    {"position", HEAD(position), 'f', 3},
    {"read_dir", HEAD(read_dir), 'f', 3},
    {"phase_dir", HEAD(phase_dir), 'f', 3},
    {"slice_dir", HEAD(slice_dir), 'f', 3},
    {"patient_table_position", HEAD(patient_table_position), 'f', 3},
    {"idx", HEAD(idx), 'x', 1},
    {"user_int", HEAD(user_int), 'i', ISMRMRD_USER_INTS},
    {"user_float", HEAD(user_float), 'f', ISMRMRD_USER_FLOATS},
};

static const struct compound_member index_members[] = {
    {"kspace_encode_step_1", INDEX(kspace_encode_step_1), 'H', 1},
    {"kspace_encode_step_2", INDEX(kspace_encode_step_2), 'H', 1},
    {"average", INDEX(average), 'H', 1},
    {"slice", INDEX(slice), 'H', 1},
    {"contrast", INDEX(contrast), 'H', 1},
    {"phase", INDEX(phase), 'H', 1},
    {"repetition", INDEX(repetition), 'H', 1},
    {"set", INDEX(set), 'H', 1},
    {"segment", INDEX(segment), 'H', 1},
    {"user", INDEX(user), 'H', ISMRMRD_USER_INTS},
};

static hid_t compound(size_t size, const struct compound_member *members, size_t count);

static hid_t member_type(const struct compound_member *member)
{
    hid_t element;
    switch (member->type) {
    case 'H':
        element = H5Tcopy(H5T_NATIVE_UINT16);
        break;
    case 'I':
        element = H5Tcopy(H5T_NATIVE_UINT32);
        break;
    case 'L':
        element = H5Tcopy(H5T_NATIVE_UINT64);
        break;
    case 'i':
        element = H5Tcopy(H5T_NATIVE_INT32);
        break;
    case 'x':
        element =
            compound(sizeof(ISMRMRD_EncodingCounters), index_members, sizeof index_members / sizeof *index_members);
        break;
    default:
        element = H5Tcopy(H5T_NATIVE_FLOAT);
        break;
    }
    if (member->repeat == 1)
        return element;
    hid_t array = H5Tarray_create2(element, 1, &member->repeat);
    H5Tclose(element);
    return array;
}

static hid_t compound(size_t size, const struct compound_member *members, size_t count)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, size);
    for (size_t i = 0; i < count; i++) {
        hid_t member = member_type(&members[i]);
        H5Tinsert(type, members[i].name, members[i].offset, member);
        H5Tclose(member);
    }
    return type;
}

static hid_t acquisition_type(void)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(struct scan_write_acquisition));
    hid_t head = compound(sizeof(ISMRMRD_AcquisitionHeader), head_members, sizeof head_members / sizeof *head_members);
    hid_t floats = H5Tvlen_create(H5T_NATIVE_FLOAT);
    H5Tinsert(type, "head", offsetof(struct scan_write_acquisition, head), head);
    H5Tinsert(type, "traj", offsetof(struct scan_write_acquisition, traj), floats);
    H5Tinsert(type, "data", offsetof(struct scan_write_acquisition, data), floats);
    H5Tclose(head);
    H5Tclose(floats);
    return type;
}

static int write_xml(hid_t group, const char *xml)
{
    hid_t string = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, (hsize_t[]){1}, NULL);
    H5Tset_size(string, H5T_VARIABLE);
    hid_t set = H5Dcreate2(group, "xml", string, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    herr_t status = set < 0 ? -1 : H5Dwrite(set, string, H5S_ALL, H5S_ALL, H5P_DEFAULT, &xml);
    if (set >= 0)
        H5Dclose(set);
    H5Sclose(space);
    H5Tclose(string);
    return status < 0 ? -1 : 0;
}

static hid_t create_data(hid_t group, hid_t type, size_t count)
{
    hsize_t size = count, most = H5S_UNLIMITED, chunk = count < CHUNK ? (count > 0 ? count : 1) : CHUNK;
    hid_t space = H5Screate_simple(1, &size, &most), properties = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(properties, 1, &chunk);
    hid_t set = H5Dcreate2(group, "data", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
    H5Pclose(properties);
    H5Sclose(space);
    return set;
}

static int write_failed(const struct scan_writer *writer)
{
    return err_set(ERR_IO, "The scan file %s cannot be written: %s.", writer->path,
                   writer->io.error ? strerror(writer->io.error) : "HDF5 failed");
}

static int close_all(struct scan_writer *writer)
{
    herr_t status = 0;
    if (writer->data >= 0)
        status |= H5Dclose(writer->data);
    if (writer->type >= 0)
        H5Tclose(writer->type);
    if (writer->file >= 0)
        status |= H5Fclose(writer->file);
    if (writer->driver >= 0)
        H5FDunregister(writer->driver);
    if (writer->io.fd >= 0 && close(writer->io.fd) != 0 && !writer->io.error)
        writer->io.error = errno;
    return status < 0 || writer->io.error ? -1 : 0;
}

/* Create the file, on a descriptor of our own: HDF5's own driver lets a file that cannot be written to its end crash
 * the process when it is closed. */
static void file_create(struct scan_writer *writer)
{
    struct h5_fd *io = &writer->io;
    io->fd = open(writer->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (io->fd < 0)
        io->error = errno;
    const hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    writer->driver = io->fd < 0 ? -1 : h5_fd_register();
    if (writer->driver >= 0 && H5Pset_driver(list, writer->driver, &io) >= 0)
        writer->file = H5Fcreate(writer->path, H5F_ACC_TRUNC, H5P_DEFAULT, list);
    H5Pclose(list);
}

int scan_writer_create(struct scan_writer **out, const char *path, const char *xml, size_t count)
{
    struct scan_writer *writer = malloc(sizeof *writer);
    if (!writer)
        return err_no_memory("writing %s", path);
    *writer = (struct scan_writer){.file = -1, .type = -1, .data = -1, .driver = -1, .io.fd = -1, .count = count};
    snprintf(writer->path, sizeof writer->path, "%s", path);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    file_create(writer);
    hid_t group = writer->file < 0 ? -1 : H5Gcreate2(writer->file, "dataset", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (group >= 0 && write_xml(group, xml) == 0) {
        writer->type = acquisition_type();
        writer->data = create_data(group, writer->type, count);
    }
    if (group >= 0)
        H5Gclose(group);
    if (writer->data < 0) {
        int rc = write_failed(writer);
        if (writer->io.fd >= 0)
            unlink(path);
        close_all(writer);
        free(writer);
        return rc;
    }
    *out = writer;
    return 0;
}

int scan_writer_append(struct scan_writer *writer, size_t count, const struct scan_write_acquisition *acquisitions)
{
    hsize_t first = writer->written, size = count;
    if (count > writer->count - writer->written)
        return err_set(ERR_INTERNAL, "More acquisitions for %s than it was made for (%zu).", writer->path,
                       writer->count);
    hid_t memory = H5Screate_simple(1, &size, NULL), space = H5Dget_space(writer->data);
    herr_t status = H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &size, NULL);
    if (status >= 0)
        status = H5Dwrite(writer->data, writer->type, memory, space, H5P_DEFAULT, acquisitions);
    H5Sclose(memory);
    H5Sclose(space);
    if (status < 0 || writer->io.error)
        return write_failed(writer);
    writer->written += count;
    return 0;
}

static int array_write(struct scan_writer *writer, const char *name, hid_t type, int axes, const hsize_t *size,
                       const void *values)
{
    hid_t group = H5Gopen2(writer->file, "dataset", H5P_DEFAULT), space = H5Screate_simple(axes, size, NULL);
    hid_t set = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    herr_t status = set < 0 ? -1 : H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    if (set >= 0)
        H5Dclose(set);
    H5Sclose(space);
    H5Gclose(group);
    return status < 0 || writer->io.error ? write_failed(writer) : 0;
}

int scan_writer_array(struct scan_writer *writer, const char *name, int axes, const hsize_t *size, const float *values)
{
    return array_write(writer, name, H5T_NATIVE_FLOAT, axes, size, values);
}

int scan_writer_complex_array(struct scan_writer *writer, const char *name, int axes, const hsize_t *size,
                              const struct c32 *values)
{
    hid_t pair = H5Tcreate(H5T_COMPOUND, sizeof *values);
    H5Tinsert(pair, "real", offsetof(struct c32, re), H5T_NATIVE_FLOAT);
    H5Tinsert(pair, "imag", offsetof(struct c32, im), H5T_NATIVE_FLOAT);
    int rc = array_write(writer, name, pair, axes, size, values);
    H5Tclose(pair);
    return rc;
}

int scan_writer_finish(struct scan_writer *writer)
{
    int rc = 0;
    if (close_all(writer) != 0 || writer->written != writer->count)
        rc = write_failed(writer);
    free(writer);
    return rc;
}

int scan_writer_end(struct scan_writer *writer, const char *path, int rc)
{
    struct err failure = *err_last();
    int closed = scan_writer_finish(writer);
    if (rc != 0)
        err_restore(&failure);
    else
        rc = closed;
    if (rc != 0)
        unlink(path);
    return rc;
}
