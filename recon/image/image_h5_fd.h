/* image_h5_fd.h: HDF5 on a file descriptor. HDF5's own drivers open files by name; a result's directory is handed over
 * as a descriptor, and a full disk must be told from other failures. */
#ifndef MRIRECON_IMAGE_H5_FD_H
#define MRIRECON_IMAGE_H5_FD_H

#include <hdf5.h>

/* The driver's input and output. Belongs to the caller, who keeps it until the file is closed. */
struct h5_fd {
    int fd;    /* opened for reading or writing, as needed */
    int error; /* errno of the first failed read or write, or 0 */
};

/* A new driver. Give it to H5Pset_driver(plist, driver, &pointer_to_h5_fd), and H5FDunregister() it when done. */
hid_t h5_fd_register(void);

#endif
