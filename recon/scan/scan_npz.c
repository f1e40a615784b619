/* Reads an .npz file as written by numpy.savez and savez_compressed: a ZIP archive with one .npy file for each array.
 */
#include "recon/scan/scan_arrays.h"
#include "recon/scan/scan_build.h"
#include "recon/scan/zip.h"

#include "gridding/base/err.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deflated members are held in memory, all together, while they are read; stored members are read in place. */
#define UNPACKED_MOST (UINT64_C(640) << 20)

enum { ARRAYS = 7 };
static const struct {
    const char *name;
    size_t place; /* in struct scan_arrays */
    bool needed;
} arrays_known[ARRAYS] = {
    {"kspace", offsetof(struct scan_arrays, kspace), true},
    {"trajectory", offsetof(struct scan_arrays, trajectory), true},
    {"weights", offsetof(struct scan_arrays, weights), false},
    {"noise", offsetof(struct scan_arrays, noise), false},
    {"sensitivities", offsetof(struct scan_arrays, pixels.maps), false},
    {"fieldmap", offsetof(struct scan_arrays, pixels.field), false},
    {"times", offsetof(struct scan_arrays, times), false},
};

static const struct zip_member *member_find(const struct zip *zip, const char *name)
{
    char wanted[32];
    snprintf(wanted, sizeof wanted, "%s.npy", name);
    for (int i = 0; i < zip->members; i++)
        if (strcmp(zip->member[i].name, wanted) == 0)
            return &zip->member[i];
    return NULL;
}

/* An array is missing. The names that the archive does have usually show why. */
static int array_missing(const struct zip *zip, const char *name)
{
    char list[256] = "";
    size_t used = 0;
    for (int i = 0; i < zip->members && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", zip->member[i].name);
    return err_set(ERR_UNKNOWN_FORMAT,
                   "The ZIP archive holds %s and no %s.npy. A scan (.npz) is saved by numpy.savez(\"scan.npz\", "
                   "kspace=..., trajectory=...); any other archive is to be unpacked, and the scan in it sent.",
                   zip->members ? list : "nothing", name);
}

int scan_npz_decode(int fd, uint64_t cap, const void *file, size_t bytes, const struct scan_wanted *wanted)
{
    struct zip *zip = malloc(sizeof *zip);
    struct scan_arrays arrays = {.bytes = 0};
    void *memory[ARRAYS] = {NULL};
    uint64_t most = UNPACKED_MOST;
    int read = 0;
    int rc = zip ? zip_open(zip, file, bytes) : err_no_memory("reading the file");
    for (int i = 0; i < ARRAYS && rc == 0; i++) {
        const struct zip_member *member = member_find(zip, arrays_known[i].name);
        const uint8_t *npy = NULL;
        if (!member && arrays_known[i].needed)
            rc = array_missing(zip, arrays_known[i].name);
        if (!member || rc != 0)
            continue;
        rc = zip_read(zip, member, most, &npy, &memory[i]);
        most -= rc == 0 && memory[i] ? member->unpacked : 0;
        if (rc == 0)
            rc = scan_array_npy((struct scan_array *)((char *)&arrays + arrays_known[i].place), arrays_known[i].name,
                                npy, member->unpacked);
        arrays.bytes += member->unpacked;
        read++;
    }
    if (rc == 0) {
        arrays.ignored = (uint64_t)(zip->members - read);
        rc = scan_arrays_write(fd, cap, &arrays, wanted);
    }
    for (int i = 0; i < ARRAYS; i++)
        free(memory[i]);
    free(zip);
    return rc;
}
