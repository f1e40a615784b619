/* Tables of numbers as files: .npy (format 1.0) and CSV; and what the codec derives from the native files. */
#include "recon/nbody/nbody.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Magic, version 1.0, length of what follows; the dictionary, padded with spaces to this size. */
enum { PREFIX = 10, HEAD = 128 };

const char *const nbody_record_names[SERIES_COLUMNS] = {"step", "time", "kinetic", "potential", "energy", "px",
                                                        "py",   "pz",   "lx",      "ly",        "lz"};

int nbody_npy_head(int fd, size_t rows, size_t columns)
{
    char head[HEAD], text[HEAD - PREFIX];
    int used =
        snprintf(text, sizeof text, "{'descr': '<f8', 'fortran_order': False, 'shape': (%zu, %zu), }", rows, columns);
    memset(head, ' ', HEAD);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", PREFIX);
    memcpy(head + PREFIX, text, (size_t)used);
    head[HEAD - 1] = '\n';
    return nbody_put(fd, head, sizeof head);
}

int nbody_csv_write(int fd, const struct nbody_record *records, size_t count)
{
    char line[SERIES_COLUMNS * 32];
    size_t used = 0;
    for (int c = 0; c < SERIES_COLUMNS; c++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s", c ? "," : "", nbody_record_names[c]);
    line[used++] = '\n';
    int rc = nbody_put(fd, line, used);
    for (size_t i = 0; i < count && rc == 0; i++) {
        double row[SERIES_COLUMNS];
        memcpy(row, &records[i], sizeof row);
        used = 0;
        for (int c = 0; c < SERIES_COLUMNS; c++)
            used += (size_t)snprintf(line + used, sizeof line - used, "%s%.17g", c ? "," : "", row[c]);
        line[used++] = '\n';
        rc = nbody_put(fd, line, used);
    }
    return rc;
}

int bodies_convert(int in, int format, int out)
{
    double *table = NULL;
    size_t rows = 0;
    int rc = format == BODIES_NPY ? nbody_h5_read(in, &table, &rows)
                                  : err_set(ERR_NOT_ACCEPTABLE, "Bodies cannot be converted to this format.");
    if (rc == 0)
        rc = nbody_npy_head(out, rows, BODIES_COLUMNS);
    if (rc == 0)
        rc = nbody_put(out, table, rows * BODIES_COLUMNS * sizeof *table);
    free(table);
    return rc;
}

int series_convert(int in, int format, int out)
{
    const off_t end = lseek(in, 0, SEEK_END);
    const size_t bytes = end < HEAD ? 0 : (size_t)(end - HEAD), count = bytes / sizeof(struct nbody_record);
    struct nbody_record *records = malloc(bytes + 1);
    if (!records)
        return err_no_memory_bytes(bytes, "a series");
    int rc = format == SERIES_CSV ? 0 : err_set(ERR_NOT_ACCEPTABLE, "A series cannot be converted to this format.");
    if (rc == 0 && (count == 0 || pread(in, records, bytes, HEAD) != (ssize_t)bytes))
        rc = err_set(ERR_MALFORMED_FILE, "The file is not a series written by kind nbody.");
    if (rc == 0)
        rc = nbody_csv_write(out, records, count);
    free(records);
    return rc;
}
