/* Tells what a file is by its first bytes, whatever its name. */
#include "gridding/base/err.h"
#include "recon/scan/scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { SNIFF_BYTES = 560 };
static const char hdf5_magic[8] = "\x89HDF\r\n\x1a\n";

#define TWIX "The file looks like Siemens raw data (twix .dat): convert it with siemens_to_ismrmrd"

/* Formats told by what stands at the start, and what to say of those that are not read. First match counts. */
static const struct {
    size_t at, length;
    const char *magic, *format; /* NULL: not read */
    const char *sentence;
} magics[] = {
    {0, 8, hdf5_magic, "hdf5", NULL},
    {0, 10, "MATLAB 5.0", NULL, "The file is a MATLAB file (.mat)"},
    {0, 5, "yardl", NULL, "The file is an MRD version 2 (yardl) stream, and only version 1 is read"},
    {0, 3, "CDF", NULL, "The file is a NetCDF file"},
    {0, 2, "\x1f\x8b", NULL, "The file is packed by gzip: unpack it (gunzip) and send what is inside"},
    {0, 4, "PK\x03\x04", NULL, "The file is a ZIP archive: unpack it and send what is inside"},
    {0, 4,
     "\xfd"
     "7zX",
     NULL, "The file is packed by xz: unpack it and send what is inside"},
    {0, 6, "\x93NUMPY", NULL, "The file is a NumPy array, which says nothing of trajectory and geometry"},
    {0, 8, "\x89PNG\r\n\x1a\n", NULL, "The file is a PNG picture"},
    {128, 4, "DICM", NULL, "The file is a DICOM file, which holds images and no k-space"},
    {344, 3, "n+1", NULL, "The file is a NIfTI image"},
    {0, 8, "\0\0\0\0\1\0\0\0", NULL, TWIX},
    {0, 8, "\0\0\0\0\2\0\0\0", NULL, TWIX},
    {0, 2, "\x01\0", "stream", NULL},
    {0, 2, "\x02\0", "stream", NULL},
    {0, 2, "\x03\0", "stream", NULL},
};

static bool is_text(const char *head, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)head[i] < ' ' && !strchr("\t\r\n\f", head[i])) || head[i] == 0x7f || head[i] == '\0')
            return false;
    return true;
}

/* HDF5 may begin with a block of the user's own, of 512 bytes or a power of two times that. */
static bool is_hdf5_behind(int fd, uint64_t bytes)
{
    char head[sizeof hdf5_magic];
    for (uint64_t at = 512; at + sizeof head <= bytes; at *= 2)
        if (pread(fd, head, sizeof head, (off_t)at) == (ssize_t)sizeof head &&
            memcmp(head, hdf5_magic, sizeof head) == 0)
            return true;
    return false;
}

static int unknown(const char *what)
{
    return err_set(ERR_UNKNOWN_FORMAT, "%s. An ISMRMRD scan is expected: an HDF5 file, or an MRD version 1 stream.",
                   what);
}

int scan_sniff(const char **format, int fd, uint64_t bytes)
{
    char head[SNIFF_BYTES] = "";
    ssize_t got = pread(fd, head, sizeof head, 0);
    if (got < 0)
        return err_set(ERR_IO, "The file cannot be read (%s).", strerror(errno));
    if (got == 0)
        return err_set(ERR_EMPTY_BODY, "The file is empty (0 bytes). Send the scan as the body of the request.");
    bool behind = is_hdf5_behind(fd, bytes);
    if (behind && strncmp(head, "MATLAB", 6) == 0)
        return unknown("The file is a MATLAB 7.3 file (.mat)");
    if (behind) {
        *format = "hdf5";
        return 0;
    }
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        if (magics[i].at + magics[i].length > (size_t)got ||
            memcmp(head + magics[i].at, magics[i].magic, magics[i].length) != 0)
            continue;
        if (!magics[i].format)
            return unknown(magics[i].sentence);
        *format = magics[i].format;
        return 0;
    }
    return unknown(is_text(head, (size_t)got) ? "The file is text" : "The file is of no format that is known here");
}
