/* Recognises a file by its first bytes, whatever its name. */
#include "gridding/base/err.h"
#include "recon/scan/scan.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { SNIFF_BYTES = 560 };
static const char hdf5_magic[8] = "\x89HDF\r\n\x1a\n";

#define GE_RAW      "The file is GE raw data (P-file): convert it with ge_to_ismrmrd"
#define PHILIPS     "convert .lab, .raw and .sin together with philips_to_ismrmrd"
#define UNPACK(how) "The file is packed by " how " and send what is inside"

#define AS_IT_IS \
    ", as curl -d or a copy as text does: send it as it is (curl --data-binary @scan.h5, or -X POST -T scan.h5)"

/* Formats recognised by their first bytes, with a sentence for those that are not supported. The first match counts. */
static const struct magic {
    size_t at, length;
    const char *magic, *format; /* NULL: not supported */
    const char *sentence;
} magics[] = {
    {0, 5, "\x89HDF\x1a", NULL, "The file was an HDF5 file until its line ends were taken out" AS_IT_IS},
    {0, 7, "\x89HDF\n\x1a\n", NULL, "The file was an HDF5 file until its line ends were changed" AS_IT_IS},
    {0, 10, "MATLAB 5.0", NULL, "The file is a MATLAB file (.mat): save its k-space and trajectory as .npz"},
    {0, 5, "yardl", NULL, "The file is an MRD version 2 (yardl) stream, and only version 1 is read"},
    {0, 3, "CDF", NULL, "The file is a NetCDF file"},
    {0, 2, "\x1f\x8b", NULL, UNPACK("gzip: unpack it (gunzip)")},
    {0, 4, "PK\x03\x04", "npz", NULL},
    {0, 4, "PK\x05\x06", NULL, "The file is an empty ZIP archive"},
    {0, 4,
     "\xfd"
     "7zX",
     NULL, UNPACK("xz: unpack it (unxz)")},
    {0, 3, "BZh", NULL, UNPACK("bzip2: unpack it (bunzip2)")},
    {0, 4, "\x28\xb5\x2f\xfd", NULL, UNPACK("zstd: unpack it (unzstd)")},
    {257, 5, "ustar", NULL, "The file is a tar archive: unpack it (tar -x) and send the scan that is inside"},
    {0, 6, "\x93NUMPY", NULL,
     "The file is one NumPy array (.npy): save k-space and trajectory together, numpy.savez(\"scan.npz\", kspace=..., "
     "trajectory=...)"},
    {0, 8, "\x89PNG\r\n\x1a\n", NULL, "The file is a PNG picture"},
    {128, 4, "DICM", NULL, "The file is a DICOM file, which holds images and no k-space"},
    {344, 3, "n+1", NULL, "The file is a NIfTI image, which holds no k-space"},
    {344, 3, "ni1", NULL, "The file is the header of a NIfTI image, which holds no k-space"},
    {4, 3, "n+2", NULL, "The file is a NIfTI image, which holds no k-space"},
    {34, 10, "GE_MED_NMR", NULL, GE_RAW}, /* up to revision 25 of the header, and from 26 on */
    {34, 10, "INVALIDNMR", NULL, GE_RAW},
    {110, 10, "GE_MED_NMR", NULL, GE_RAW},
    {110, 10, "INVALIDNMR", NULL, GE_RAW},
    {0, 2, "\x01\0", "stream", NULL},
    {0, 2, "\x02\0", "stream", NULL},
    {0, 2, "\x03\0", "stream", NULL},
};

/* The same for text, in whose first bytes these words may be anywhere. */
static const struct {
    const char *words, *sentence;
} texts[] = {
    {"# === START OF DATA VECTOR INDEX", "The file is the list (.list) of Philips raw data: " PHILIPS},
    {"Gyroscan SW release", "The file is the list (.list) of Philips raw data: " PHILIPS},
    {"# === DATA DESCRIPTION FILE", "The file describes Philips images (.par), which hold no k-space"},
    {" 00 00: ", "The file looks like the parameters (.sin) of Philips raw data: " PHILIPS},
    {"##TITLE=Parameter List",
     "The file holds parameters of a Bruker scan: convert the scan's folder with bruker_to_ismrmrd"},
    {"# Dimensions",
     "The file is the header of a BART array (.hdr): make one scan of the array and its trajectory, mrirecon pack "
     "scan.npz kspace=ksp.cfl trajectory=traj.cfl"},
};

static uint32_t little(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t big(const unsigned char *at)
{
    return (uint32_t)at[3] | (uint32_t)at[2] << 8 | (uint32_t)at[1] << 16 | (uint32_t)at[0] << 24;
}

/* VD and later: 0 and the number of measurements. VB: the header's length, the number of its parts, and the first one's
 * name. */
static bool is_twix(const unsigned char *head, uint64_t bytes)
{
    enum { MEASUREMENTS_MOST = 64, PARTS_MOST = 32 };
    uint32_t first = little(head), second = little(head + 4);
    if (first == 0)
        return second > 0 && second <= MEASUREMENTS_MOST;
    return first < bytes && second > 0 && second <= PARTS_MOST && memcmp(head + 8, "Config", 7) == 0;
}

/* Labels of 64 bytes, whose types are 0x7f01 and others that begin in the same way. */
static bool is_philips_labels(const unsigned char *head, uint64_t bytes)
{
    return bytes >= 128 && bytes % 64 == 0 && head[15] == 0x7f && head[64 + 15] == 0x7f;
}

/* Big-endian numbers of blocks, traces and values, and three lengths that must agree with them. */
static bool is_varian(const unsigned char *head, uint64_t bytes)
{
    enum { BLOCK_HEAD = 28, BLOCK_HEADS_MOST = 9 };
    uint64_t traces = big(head + 4), values = big(head + 8), value = big(head + 12), trace = big(head + 16);
    uint64_t block = big(head + 20), heads = big(head + 28) & 0xffff;
    return bytes > 32 && big(head) > 0 && traces > 0 && values > 0 && (value == 2 || value == 4) &&
           trace == values * value && heads <= BLOCK_HEADS_MOST && block == traces * trace + heads * BLOCK_HEAD;
}

/* Recognised by numbers that agree with each other. `head` has SNIFF_BYTES, zeros after the file's end; `bytes`: the
 * file's size. */
static const struct {
    bool (*is)(const unsigned char *head, uint64_t bytes);
    const char *sentence;
} shapes[] = {
    {is_twix, "The file looks like Siemens raw data (twix .dat): convert it with siemens_to_ismrmrd"},
    {is_philips_labels, "The file looks like the labels (.lab) of Philips raw data: " PHILIPS},
    {is_varian, "The file looks like Varian or Agilent raw data (fid): write its k-space and trajectory as ISMRMRD"},
};

static bool is_text(const char *head, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char)head[i] < ' ' && !strchr("\t\r\n\f", head[i])) || head[i] == 0x7f || head[i] == '\0')
            return false;
    return true;
}

/* A single short word with a file extension: the body of a request in which curl's @ was forgotten. */
static bool is_name(const char *head, size_t bytes)
{
    enum { LONGEST = 255, ENDING = 12 };
    const char *dot = memrchr(head, '.', bytes);
    return bytes <= LONGEST && dot && is_text(head, bytes) && !memchr(head, '\n', bytes) &&
           head + bytes - dot <= ENDING && head + bytes - dot > 1 && !memchr(dot, ' ', (size_t)(head + bytes - dot));
}

/* A multipart body: parts between boundaries, the first with a header of its own. */
static bool is_form(const char *head, size_t bytes)
{
    static const char header[] = "\r\nContent-Disposition: ";
    return bytes > 2 && memcmp(head, "--", 2) == 0 && memmem(head, bytes, header, sizeof header - 1);
}

/* HDF5 may begin with a user block of 512 bytes or a power of two times that. */
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
    return err_set(ERR_UNKNOWN_FORMAT,
                   "%s. A scan is expected: ISMRMRD (an HDF5 file, or an MRD version 1 stream) or arrays (.npz).",
                   what);
}

/* Of a file that is neither supported nor recognised by its magic. */
static int unknown_text(const char *head, size_t bytes)
{
    if (!is_text(head, bytes))
        return unknown("The file's format is unknown. Philips .raw and .data, Bruker fid and BART .cfl cannot be "
                       "recognised: convert them with philips_to_ismrmrd, bruker_to_ismrmrd or a script");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (memmem(head, bytes, texts[i].words, strlen(texts[i].words)))
            return unknown(texts[i].sentence);
    return unknown("The file is text");
}

int scan_sniff(const char **format, int fd, uint64_t bytes)
{
    char head[SNIFF_BYTES] = "";
    ssize_t got = pread(fd, head, sizeof head, 0);
    if (got < 0)
        return err_set(ERR_IO, "The file cannot be read (%s).", strerror(errno));
    if (got == 0)
        return err_set(ERR_EMPTY_BODY, "The file is empty (0 bytes). Send the scan as the body of the request.");
    bool behind = memcmp(head, hdf5_magic, sizeof hdf5_magic) == 0 || is_hdf5_behind(fd, bytes);
    if (behind && strncmp(head, "MATLAB", 6) == 0)
        return unknown("The file is a MATLAB 7.3 file (.mat): write its k-space and trajectory as ISMRMRD");
    if (behind) {
        *format = "hdf5";
        return 0;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].is((const unsigned char *)head, bytes))
            return unknown(shapes[i].sentence);
    for (const struct magic *m = magics; m < magics + sizeof magics / sizeof *magics; m++) {
        if (m->at + m->length > (size_t)got || memcmp(head + m->at, m->magic, m->length) != 0)
            continue;
        if (!m->format)
            return unknown(m->sentence);
        *format = m->format;
        return 0;
    }
    if (is_form(head, (size_t)got))
        return unknown("The file is a multipart form, as curl -F sends it: the scan must be the body itself (curl "
                       "--data-binary @scan.h5, or -X POST -T scan.h5)");
    if (is_name(head, (size_t)got))
        return err_set(ERR_UNKNOWN_FORMAT,
                       "The body is the text \"%.*s\", which looks like a file name. To send the file itself, put an @ "
                       "before its name: --data-binary @scan.h5.",
                       (int)got, head);
    return unknown_text(head, (size_t)got);
}
