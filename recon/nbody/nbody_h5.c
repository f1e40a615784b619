/* Bodies as HDF5 in the layout of GADGET snapshots (V. Springel, MNRAS 364, 1105, 2005), so that programs for GADGET
 * files, including this one, read them: /Header with its attributes, /PartTypeN with Coordinates, Velocities, Masses,
 * ParticleIDs, and Acceleration and Potential, as GADGET names them. */
#include "recon/nbody/nbody.h"

#include "gridding/base/err.h"
#include "recon/image/image_h5_fd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct quiet {
    H5E_auto2_t print;
    void *context;
};

static struct quiet quiet_begin(void)
{
    struct quiet quiet = {0};
    H5open();
    H5Eget_auto2(H5E_DEFAULT, &quiet.print, &quiet.context);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return quiet;
}

static void quiet_end(const struct quiet *quiet)
{
    H5Eset_auto2(H5E_DEFAULT, quiet->print, quiet->context);
}

/* ---- writing ---- */

static bool attribute_put(hid_t group, const char *name, hid_t type, hsize_t count, const void *value)
{
    hid_t space = count > 1 ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool put = attribute >= 0 && H5Awrite(attribute, type, value) >= 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    H5Sclose(space);
    return put;
}

static bool header_put(hid_t file, const struct nbody_outcome *o)
{
    hid_t group = H5Gcreate2(file, "Header", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    uint32_t low[NBODY_TYPES], high[NBODY_TYPES];
    const double none[NBODY_TYPES] = {0};
    const int32_t one = 1, zero = 0;
    if (group < 0)
        return false;
    for (int t = 0; t < NBODY_TYPES; t++) {
        low[t] = (uint32_t)o->types[t];
        high[t] = (uint32_t)((uint64_t)o->types[t] >> 32);
    }
    bool put = attribute_put(group, "NumPart_ThisFile", H5T_NATIVE_UINT32, NBODY_TYPES, low) &&
               attribute_put(group, "NumPart_Total", H5T_NATIVE_UINT32, NBODY_TYPES, low) &&
               attribute_put(group, "NumPart_Total_HighWord", H5T_NATIVE_UINT32, NBODY_TYPES, high) &&
               attribute_put(group, "MassTable", H5T_NATIVE_DOUBLE, NBODY_TYPES, none) &&
               attribute_put(group, "Time", H5T_NATIVE_DOUBLE, 1, &o->time) &&
               attribute_put(group, "Redshift", H5T_NATIVE_DOUBLE, 1, none) &&
               attribute_put(group, "BoxSize", H5T_NATIVE_DOUBLE, 1, &o->box) &&
               attribute_put(group, "NumFilesPerSnapshot", H5T_NATIVE_INT32, 1, &one) &&
               attribute_put(group, "Flag_DoublePrecision", H5T_NATIVE_INT32, 1, &one) &&
               attribute_put(group, "Flag_Sfr", H5T_NATIVE_INT32, 1, &zero);
    return H5Gclose(group) >= 0 && put;
}

static bool dataset_put(hid_t group, const char *name, hid_t type, size_t rows, int columns, const void *from)
{
    const hsize_t size[2] = {rows, (hsize_t)columns};
    hid_t space = H5Screate_simple(columns > 1 ? 2 : 1, size, NULL);
    hid_t data = H5Dcreate2(group, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool put = data >= 0 && H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, from) >= 0;
    put = (data < 0 || H5Dclose(data) >= 0) && put;
    H5Sclose(space);
    return put;
}

static bool type_put(hid_t file, const struct nbody_outcome *o, int type, size_t first)
{
    const struct nbody_bodies *b = &o->bodies;
    char name[16];
    snprintf(name, sizeof name, "PartType%d", type);
    hid_t group = H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    const size_t n = o->types[type];
    bool put = group >= 0 && dataset_put(group, "Coordinates", H5T_NATIVE_DOUBLE, n, 3, b->at + first) &&
               dataset_put(group, "Velocities", H5T_NATIVE_DOUBLE, n, 3, b->velocity + first) &&
               dataset_put(group, "Masses", H5T_NATIVE_DOUBLE, n, 1, b->mass + first) &&
               dataset_put(group, "ParticleIDs", H5T_NATIVE_UINT64, n, 1, o->id + first) &&
               dataset_put(group, "Acceleration", H5T_NATIVE_DOUBLE, n, 3, b->acceleration + first) &&
               dataset_put(group, "Potential", H5T_NATIVE_DOUBLE, n, 1, b->potential + first);
    return (group < 0 || H5Gclose(group) >= 0) && put;
}

static hid_t file_open(struct h5_fd **io, hid_t *driver, bool create)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    *driver = h5_fd_register();
    if (*driver >= 0 && H5Pset_driver(list, *driver, io) >= 0)
        file = create ? H5Fcreate("bodies.h5", H5F_ACC_TRUNC, H5P_DEFAULT, list)
                      : H5Fopen("bodies.h5", H5F_ACC_RDONLY, list);
    H5Pclose(list);
    return file;
}

int nbody_h5_write(const struct nbody_outcome *o, int fd)
{
    const struct quiet quiet = quiet_begin();
    struct h5_fd io = {.fd = fd}, *handed = &io;
    hid_t driver, file = file_open(&handed, &driver, true);
    bool written = file >= 0 && header_put(file, o);
    for (size_t t = 0, first = 0; t < NBODY_TYPES && written; first += o->types[t++])
        written = o->types[t] == 0 || type_put(file, o, (int)t, first);
    written = (file < 0 || H5Fclose(file) >= 0) && written;
    if (driver >= 0)
        H5FDunregister(driver);
    quiet_end(&quiet);
    if (io.error)
        return result_put_failed(io.error, "The bodies");
    return written ? 0 : err_set(ERR_IO, "HDF5 could not write the bodies.");
}

/* ---- reading back ---- */

static int malformed(const char *what)
{
    return err_set(ERR_MALFORMED_FILE, "The file was not written by kind nbody: %s.", what);
}

/* Number of rows of a dataset; -1: it is missing or has another shape. */
static hssize_t rows_of(hid_t group, const char *name, int columns)
{
    hid_t data = H5Dopen2(group, name, H5P_DEFAULT), space = data < 0 ? -1 : H5Dget_space(data);
    hsize_t size[2] = {0, 1};
    hssize_t rows = -1;
    if (space >= 0 && H5Sget_simple_extent_ndims(space) == (columns > 1 ? 2 : 1) &&
        H5Sget_simple_extent_dims(space, size, NULL) >= 0 && size[1] == (hsize_t)columns && size[0] < INT64_MAX / 1024)
        rows = (hssize_t)size[0];
    if (space >= 0)
        H5Sclose(space);
    if (data >= 0)
        H5Dclose(data);
    return rows;
}

/* The columns of the table, in this order. */
static const struct {
    const char *name;
    int columns;
} parts[] = {{"Coordinates", 3}, {"Velocities", 3}, {"Masses", 1}, {"Acceleration", 3}, {"Potential", 1}};

static int group_read(hid_t group, double *table, size_t rows)
{
    int at = 0, rc = 0;
    double *column = malloc((rows + 1) * 3 * sizeof *column);
    if (!column)
        return err_no_memory("%zu bodies", rows);
    for (size_t p = 0; p < sizeof parts / sizeof *parts && rc == 0; at += parts[p++].columns) {
        const int columns = parts[p].columns;
        if (rows_of(group, parts[p].name, columns) != (hssize_t)rows) {
            rc = malformed(parts[p].name);
            break;
        }
        hid_t data = H5Dopen2(group, parts[p].name, H5P_DEFAULT);
        if (H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, column) < 0)
            rc = malformed(parts[p].name);
        H5Dclose(data);
        for (size_t i = 0; i < rows && rc == 0; i++)
            memcpy(table + i * BODIES_COLUMNS + at, column + i * (size_t)columns, (size_t)columns * sizeof *table);
    }
    free(column);
    return rc;
}

static int types_read(hid_t file, double **table, size_t *rows)
{
    size_t count[NBODY_TYPES] = {0}, all = 0, bytes;
    char name[16];
    int rc = 0;
    for (int t = 0; t < NBODY_TYPES; t++) {
        snprintf(name, sizeof name, "PartType%d", t);
        hid_t group = H5Lexists(file, name, H5P_DEFAULT) > 0 ? H5Gopen2(file, name, H5P_DEFAULT) : -1;
        if (group < 0)
            continue;
        const hssize_t here = rows_of(group, "Coordinates", 3);
        H5Gclose(group);
        if (here < 0)
            return malformed("Coordinates");
        count[t] = (size_t)here;
        all += count[t];
    }
    if (!size_mul(all + 1, BODIES_COLUMNS * sizeof **table, &bytes))
        return malformed("their number");
    double *made = malloc(bytes);
    if (!made)
        return err_no_memory_bytes(bytes, "%zu bodies", all);
    for (size_t t = 0, first = 0; t < NBODY_TYPES && rc == 0; first += count[t++]) {
        if (count[t] == 0)
            continue;
        snprintf(name, sizeof name, "PartType%zu", t);
        hid_t group = H5Gopen2(file, name, H5P_DEFAULT);
        rc = group_read(group, made + first * BODIES_COLUMNS, count[t]);
        H5Gclose(group);
    }
    if (rc != 0) {
        free(made);
        return rc;
    }
    *table = made;
    *rows = all;
    return 0;
}

int nbody_h5_read(int fd, double **table, size_t *rows)
{
    const struct quiet quiet = quiet_begin();
    struct h5_fd io = {.fd = fd}, *handed = &io;
    hid_t driver, file = file_open(&handed, &driver, false);
    int rc = file < 0 ? malformed("it is no HDF5") : types_read(file, table, rows);
    if (file >= 0)
        H5Fclose(file);
    if (driver >= 0)
        H5FDunregister(driver);
    quiet_end(&quiet);
    return rc;
}
