/* Reads GADGET snapshots in HDF5 (V. Springel, User guide for GADGET-2, section 6.3; as Arepo, GIZMO, SWIFT and
 * MP-Gadget's relatives write them): /Header with attributes, /PartType0 to 5 with Coordinates, Velocities, ParticleIDs
 * and Masses. */
#include "recon/particle/particles_build.h"
#include "recon/scan/scan_h5.h"

#include "gridding/base/err.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES = 6, BATCH = 4096, PATH = 32 };

enum { COORDINATES, VELOCITIES, MASSES, IDS, SETS };
static const struct {
    const char *name;
    int items;
} sets[SETS] = {{"Coordinates", 3}, {"Velocities", 3}, {"Masses", 1}, {"ParticleIDs", 1}};

struct group {
    hid_t group, set[SETS]; /* -1: none */
    uint64_t count;
};

struct snapshot_h5 {
    hid_t file;
    struct group type[TYPES];
    uint64_t count[TYPES], all;
    double mass[TYPES], time, redshift, box[3];
};

/* ---- the header ---- */

/* Read up to `most` numbers of an attribute. Returns how many; 0: it is missing or not numeric. */
static int attribute_read(hid_t group, const char *name, double *to, int most)
{
    hid_t attribute = H5Aexists(group, name) > 0 ? H5Aopen(group, name, H5P_DEFAULT) : -1;
    hid_t type = attribute < 0 ? -1 : H5Aget_type(attribute), space = attribute < 0 ? -1 : H5Aget_space(attribute);
    hssize_t count = space < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    double value[TYPES];
    if (count < 1 || count > most || !scan_h5_is_plain(type) || H5Aread(attribute, H5T_NATIVE_DOUBLE, value) < 0)
        count = 0;
    memcpy(to, value, (size_t)count * sizeof *to);
    if (space >= 0)
        H5Sclose(space);
    if (type >= 0)
        H5Tclose(type);
    if (attribute >= 0)
        H5Aclose(attribute);
    return (int)count;
}

/* Open a group, by a hard link only; -1: missing. */
static hid_t group_open(hid_t file, const char *name)
{
    H5L_info_t link;
    H5O_info_t object;
    if (H5Lexists(file, name, H5P_DEFAULT) <= 0 || H5Lget_info(file, name, &link, H5P_DEFAULT) < 0 ||
        link.type != H5L_TYPE_HARD || H5Oget_info_by_name(file, name, &object, H5P_DEFAULT) < 0 ||
        object.type != H5O_TYPE_GROUP)
        return -1;
    return H5Gopen2(file, name, H5P_DEFAULT);
}

static int header_read(struct snapshot_h5 *s)
{
    hid_t header = group_open(s->file, "Header");
    double files = 1;
    if (header < 0)
        return err_set(ERR_UNKNOWN_FORMAT, "The HDF5 file is not a GADGET snapshot: it has no group Header.");
    attribute_read(header, "MassTable", s->mass, TYPES);
    attribute_read(header, "Time", &s->time, 1);
    attribute_read(header, "Redshift", &s->redshift, 1);
    attribute_read(header, "NumFilesPerSnapshot", &files, 1);
    if (attribute_read(header, "BoxSize", s->box, 3) == 1)
        s->box[1] = s->box[2] = s->box[0];
    H5Gclose(header);
    if (files > 1)
        return err_set(ERR_MALFORMED_FILE, "The snapshot is split into %.0f files. Join them and send the result.",
                       files);
    for (int t = 0; t < TYPES; t++)
        if (!(s->mass[t] >= 0 && s->mass[t] < INFINITY))
            return err_set(ERR_MALFORMED_FILE, "Header: the mass of bodies of type %d is %g.", t, s->mass[t]);
    bool numbers = isfinite(s->time) && isfinite(s->redshift);
    for (int d = 0; d < 3; d++)
        numbers = numbers && s->box[d] >= 0 && s->box[d] < INFINITY;
    return numbers ? 0
                   : err_set(ERR_MALFORMED_FILE, "Header: Time %g, Redshift %g and BoxSize %g must be finite numbers.",
                             s->time, s->redshift, s->box[0]);
}

/* ---- the bodies ---- */

static int set_open(struct group *g, int set, int type)
{
    char path[PATH];
    hsize_t size[2] = {0, 1};
    snprintf(path, sizeof path, "PartType%d/%s", type, sets[set].name);
    if (H5Lexists(g->group, sets[set].name, H5P_DEFAULT) <= 0)
        return 0;
    int rc = scan_h5_dataset_any(&g->set[set], g->group, sets[set].name);
    if (rc != 0)
        return rc;
    hid_t space = H5Dget_space(g->set[set]), stored = H5Dget_type(g->set[set]);
    const int axes = H5Sget_simple_extent_ndims(space);
    bool fits = scan_h5_is_plain(stored) && axes >= 1 && axes <= 2 &&
                H5Sget_simple_extent_dims(space, size, NULL) >= 0 && size[1] == (hsize_t)sets[set].items;
    H5Tclose(stored);
    H5Sclose(space);
    if (!fits)
        return err_set(ERR_MALFORMED_FILE, "%s does not have %d numbers for each body.", path, sets[set].items);
    if (set != COORDINATES && size[0] != g->count)
        return err_set(ERR_MALFORMED_FILE, "%s has %llu rows, and Coordinates has %llu.", path,
                       (unsigned long long)size[0], (unsigned long long)g->count);
    g->count = size[0];
    return 0;
}

static int type_open(struct snapshot_h5 *s, int type, unsigned *columns)
{
    static const unsigned of[SETS] = {1U << PARTICLE_POSITION, 1U << PARTICLE_VELOCITY, 1U << PARTICLE_MASS,
                                      1U << PARTICLE_ID};
    struct group *g = &s->type[type];
    char name[PATH];
    int rc = 0;
    snprintf(name, sizeof name, "PartType%d", type);
    g->group = group_open(s->file, name);
    if (g->group < 0)
        return 0;
    for (int set = 0; set < SETS && rc == 0; set++)
        rc = set_open(g, set, type);
    if (rc == 0 && g->set[COORDINATES] < 0)
        rc = err_set(ERR_MALFORMED_FILE, "%s has no Coordinates.", name);
    if (rc == 0 && g->count && g->set[MASSES] < 0 && s->mass[type] == 0)
        rc = err_set(ERR_MALFORMED_FILE, "%s has no Masses, and the Header's MassTable has no mass for it.", name);
    for (int set = 0; set < SETS; set++)
        *columns |= g->set[set] >= 0 ? of[set] : 0;
    s->count[type] = g->count;
    s->all += g->count;
    return rc;
}

/* `count` rows of a dataset from `first` on. */
static int dataset_rows_read(hid_t set, int items, hid_t type, uint64_t first, uint64_t count, void *to)
{
    const hsize_t start[2] = {first, 0}, size[2] = {count, (hsize_t)items};
    hid_t there = H5Dget_space(set);
    hid_t here = H5Screate_simple(H5Sget_simple_extent_ndims(there), size, NULL);
    bool read = H5Sselect_hyperslab(there, H5S_SELECT_SET, start, NULL, size, NULL) >= 0 &&
                H5Dread(set, type, here, there, H5P_DEFAULT, to) >= 0;
    H5Sclose(here);
    H5Sclose(there);
    return read ? 0 : -1;
}

struct gadget_batch {
    double value[MASSES + 1][3 * BATCH];
    uint64_t id[BATCH];
};

static int batch_add(const struct snapshot_h5 *s, int type, const struct gadget_batch *batch, uint64_t before,
                     uint64_t count, struct particles_builder *b)
{
    const struct group *g = &s->type[type];
    int rc = 0;
    for (uint64_t i = 0; i < count && rc == 0; i++) {
        struct particle row = {.element = 0, .mass = s->mass[type]};
        memcpy(row.position, batch->value[COORDINATES] + 3 * i, sizeof row.position);
        if (g->set[VELOCITIES] >= 0)
            memcpy(row.velocity, batch->value[VELOCITIES] + 3 * i, sizeof row.velocity);
        if (g->set[MASSES] >= 0)
            row.mass = batch->value[MASSES][i];
        if (g->set[IDS] >= 0)
            row.id = batch->id[i];
        rc = particles_row_check(&row, b->columns, "Body", before + i + 1);
        if (rc == 0)
            rc = particles_builder_add(b, &row);
    }
    return rc;
}

static int type_write(const struct snapshot_h5 *s, int type, uint64_t before, struct gadget_batch *batch,
                      struct particles_builder *b)
{
    const struct group *g = &s->type[type];
    int rc = 0;
    for (uint64_t first = 0; first < g->count && rc == 0; first += BATCH) {
        const uint64_t count = g->count - first < BATCH ? g->count - first : BATCH;
        for (int set = 0; set < SETS && rc == 0; set++) {
            if (g->set[set] < 0)
                continue;
            void *to = set == IDS ? (void *)batch->id : (void *)batch->value[set];
            hid_t as = set == IDS ? H5T_NATIVE_UINT64 : H5T_NATIVE_DOUBLE;
            if (dataset_rows_read(g->set[set], sets[set].items, as, first, count, to) != 0)
                rc = err_set(ERR_MALFORMED_FILE, "PartType%d/%s cannot be read from row %llu on: the file is damaged.",
                             type, sets[set].name, (unsigned long long)first);
        }
        if (rc == 0)
            rc = batch_add(s, type, batch, before + first, count, b);
    }
    return rc;
}

static int snapshot_write(const struct snapshot_h5 *s, int memory, uint64_t most_bytes, unsigned columns)
{
    struct particles_builder b = {.fd = memory};
    struct gadget_batch *batch = malloc(sizeof *batch);
    int rc = batch ? particles_builder_begin(&b, memory, most_bytes, columns, s->all) : err_no_memory("bodies");
    if (rc == 0)
        particles_gadget_header(&b.header, s->time, s->redshift, s->box[0], s->count);
    for (int d = 0; d < 3; d++)
        b.header.box_length[d] = s->box[d];
    for (uint64_t t = 0, before = 0; t < TYPES && rc == 0; before += s->count[t++])
        rc = type_write(s, (int)t, before, batch, &b);
    if (rc == 0)
        rc = particles_builder_end(&b);
    particles_builder_free(&b);
    free(batch);
    return rc;
}

int particles_gadget_h5_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *of)
{
    struct scan_h5 h5;
    struct snapshot_h5 s = {.all = 0};
    unsigned columns = 1U << PARTICLE_POSITION | 1U << PARTICLE_MASS;
    for (int t = 0; t < TYPES; t++)
        s.type[t] = (struct group){.group = -1, .set = {-1, -1, -1, -1}};
    int rc = scan_h5_open(&h5, file, bytes);
    s.file = h5.file;
    if (rc == 0)
        rc = header_read(&s);
    for (int t = 0; t < TYPES && rc == 0; t++)
        rc = type_open(&s, t, &columns);
    if (rc == 0 && s.all == 0)
        rc = err_set(ERR_MALFORMED_FILE, "The snapshot has no bodies: none of PartType0 to PartType5 has Coordinates.");
    if (rc == 0)
        rc = particles_needed(of, columns, "Snapshots contain positions, velocities, IDs and masses.");
    if (rc == 0)
        rc = snapshot_write(&s, memory, most_bytes, columns);
    for (int t = 0; t < TYPES; t++) {
        for (int set = 0; set < SETS; set++)
            if (s.type[t].set[set] >= 0)
                H5Dclose(s.type[t].set[set]);
        if (s.type[t].group >= 0)
            H5Gclose(s.type[t].group);
    }
    scan_h5_close(&h5);
    return rc;
}
