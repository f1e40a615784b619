/* The warm-up of a decoder: a scan of one sample, made in memory and decoded. */
#include "recon/scan/scan_build.h"
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char warm_up_xml[] =
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
static int warm_up_scan(void **image, size_t *bytes)
{
    struct acquisition {
        struct scan_readout head;
        hvl_t traj, data;
    } item = {.head = {.samples = 1, .coils = 1, .traj_dims = 2}};
    float traj[2] = {0}, data[2] = {0};
    const char *xml = warm_up_xml;
    item.traj = (hvl_t){2, traj};
    item.data = (hvl_t){2, data};
    hid_t head = -1, list = H5Tvlen_create(H5T_NATIVE_FLOAT), type = H5Tcreate(H5T_COMPOUND, sizeof item);
    int rc = scan_h5_head_type(&head, -1);
    if (rc != 0)
        return rc;
    H5Tinsert(type, "head", offsetof(struct acquisition, head), head);
    H5Tinsert(type, "traj", offsetof(struct acquisition, traj), list);
    H5Tinsert(type, "data", offsetof(struct acquisition, data), list);
    hid_t text = H5Tcopy(H5T_C_S1), plist = H5Pcreate(H5P_FILE_ACCESS);
    H5Tset_size(text, H5T_VARIABLE);
    H5Pset_fapl_core(plist, 1 << 16, 0);
    hid_t file = H5Fcreate("warm-up", H5F_ACC_TRUNC, H5P_DEFAULT, plist);
    hid_t group = file < 0 ? -1 : H5Gcreate2(file, "dataset", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool written = group >= 0 && one_write(group, "xml", text, &xml) >= 0 &&
                   one_write(group, "data", type, &item) >= 0 && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
    ssize_t size = written ? H5Fget_file_image(file, NULL, 0) : -1;
    *image = size > 0 ? malloc((size_t)size) : NULL;
    if (!*image || H5Fget_file_image(file, *image, (size_t)size) != size)
        rc = err_set(ERR_INTERNAL, "The decoder cannot make its warm-up scan.");
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

int scan_hdf5_warm_up(void)
{
    void *image = NULL;
    size_t bytes = 0;
    int memory = memfd_create("warm-up", MFD_CLOEXEC);
    int rc = memory < 0 ? err_no_memory("the warm-up scan") : warm_up_scan(&image, &bytes);
    if (rc == 0)
        rc = scan_hdf5_decode(memory, UINT64_C(1) << 20, image, bytes, NULL);
    if (rc != 0)
        err_prefix("A decoder's warm-up failed: ");
    if (memory >= 0)
        close(memory);
    free(image);
    H5garbage_collect(); /* the memory that libhdf5 keeps is more than what an upload takes */
    return rc;
}
