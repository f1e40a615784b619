/* Reads GADGET snapshots in HDF5 (V. Springel, User guide for GADGET-2, section 6.3; as Arepo, GIZMO, SWIFT and
 * MP-Gadget's relatives write them): /Header with attributes, /PartType0 to 5 with Coordinates, Velocities, ParticleIDs
 * and Masses. */
#include "recon/h5/h5_upload.h"
#include "recon/particle/particles_build.h"

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

struct set {
    hid_t dataset, stored; /* -1: none */
    struct h5_items items;
};

struct group {
    hid_t group; /* -1: none */
    struct set set[SETS];
    uint64_t count;
};

struct snapshot_h5 {
    struct h5_upload h5;
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
    if (count < 1 || count > most || !h5_is_plain(type) || H5Aread(attribute, H5T_NATIVE_DOUBLE, value) < 0)
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
    hid_t header = group_open(s->h5.file, "Header");
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

static int set_open(struct h5_upload *h5, struct group *g, int set, int type)
{
    char path[PATH];
    hsize_t size[2] = {0, 1};
    struct set *s = &g->set[set];
    snprintf(path, sizeof path, "PartType%d/%s", type, sets[set].name);
    if (H5Lexists(g->group, sets[set].name, H5P_DEFAULT) <= 0)
        return 0;
    int rc = h5_dataset_any(&s->dataset, g->group, sets[set].name);
    if (rc != 0)
        return rc;
    s->stored = H5Dget_type(s->dataset);
    hid_t space = H5Dget_space(s->dataset);
    const int axes = H5Sget_simple_extent_ndims(space);
    bool fits = h5_is_plain(s->stored) && axes >= 1 && axes <= 2 && H5Sget_simple_extent_dims(space, size, NULL) >= 0 &&
                size[1] == (hsize_t)sets[set].items;
    H5Sclose(space);
    if (!fits)
        return err_set(ERR_MALFORMED_FILE, "%s does not have %d numbers for each body.", path, sets[set].items);
    if (set != COORDINATES && size[0] != g->count)
        return err_set(ERR_MALFORMED_FILE, "%s has %llu rows, and Coordinates has %llu.", path,
                       (unsigned long long)size[0], (unsigned long long)g->count);
    g->count = size[0];
    return h5_items_open(&s->items, h5, s->dataset, H5Tget_size(s->stored));
}

static int type_open(struct snapshot_h5 *s, int type, unsigned *columns)
{
    static const unsigned of[SETS] = {1U << PARTICLE_POSITION, 1U << PARTICLE_VELOCITY, 1U << PARTICLE_MASS,
                                      1U << PARTICLE_ID};
    struct group *g = &s->type[type];
    char name[PATH];
    int rc = 0;
    snprintf(name, sizeof name, "PartType%d", type);
    g->group = group_open(s->h5.file, name);
    if (g->group < 0)
        return 0;
    for (int set = 0; set < SETS && rc == 0; set++)
        rc = set_open(&s->h5, g, set, type);
    if (rc == 0 && g->set[COORDINATES].dataset < 0)
        rc = err_set(ERR_MALFORMED_FILE, "%s has no Coordinates.", name);
    if (rc == 0 && g->count && g->set[MASSES].dataset < 0 && s->mass[type] == 0)
        rc = err_set(ERR_MALFORMED_FILE, "%s has no Masses, and the Header's MassTable has no mass for it.", name);
    for (int set = 0; set < SETS; set++)
        *columns |= g->set[set].dataset >= 0 ? of[set] : 0;
    s->count[type] = g->count;
    s->all += g->count;
    return rc;
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
        if (g->set[VELOCITIES].dataset >= 0)
            memcpy(row.velocity, batch->value[VELOCITIES] + 3 * i, sizeof row.velocity);
        if (g->set[MASSES].dataset >= 0)
            row.mass = batch->value[MASSES][i];
        if (g->set[IDS].dataset >= 0)
            row.id = batch->id[i];
        rc = particles_row_check(&row, b->columns, "Body", before + i + 1);
        if (rc == 0)
            rc = particles_builder_add(b, &row);
    }
    return rc;
}

/* `count` rows of a dataset from `first` on. */
static bool rows_read(struct set *s, int set, uint64_t first, uint64_t count, struct gadget_batch *batch)
{
    const struct h5_numbers numbers = {.stored = s->stored, .count = 1};
    return set == IDS
               ? h5_items_convert(&s->items, &numbers, first, count, H5T_NATIVE_UINT64, sizeof(uint64_t), batch->id)
               : h5_items_convert(&s->items, &numbers, first, count, H5T_NATIVE_DOUBLE, sizeof(double),
                                  batch->value[set]);
}

static int type_write(struct snapshot_h5 *s, int type, uint64_t before, struct gadget_batch *batch,
                      struct particles_builder *b)
{
    struct group *g = &s->type[type];
    int rc = 0;
    for (uint64_t first = 0; first < g->count && rc == 0; first += BATCH) {
        const uint64_t count = g->count - first < BATCH ? g->count - first : BATCH;
        for (int set = 0; set < SETS && rc == 0; set++)
            if (g->set[set].dataset >= 0 && !rows_read(&g->set[set], set, first, count, batch))
                rc = err_set(ERR_MALFORMED_FILE, "PartType%d/%s cannot be read from row %llu on: the file is damaged.",
                             type, sets[set].name, (unsigned long long)first);
        if (rc == 0)
            rc = batch_add(s, type, batch, before + first, count, b);
    }
    return rc;
}

static int snapshot_write(struct snapshot_h5 *s, int memory, uint64_t most_bytes, unsigned columns)
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

static void snapshot_close(struct snapshot_h5 *s)
{
    for (int t = 0; t < TYPES; t++) {
        for (struct set *set = s->type[t].set; set < s->type[t].set + SETS; set++) {
            h5_items_close(&set->items);
            if (set->stored >= 0)
                H5Tclose(set->stored);
            if (set->dataset >= 0)
                H5Dclose(set->dataset);
        }
        if (s->type[t].group >= 0)
            H5Gclose(s->type[t].group);
    }
    h5_upload_close(&s->h5);
}

int particles_gadget_h5_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *of)
{
    struct snapshot_h5 s = {.all = 0};
    unsigned columns = 1U << PARTICLE_POSITION | 1U << PARTICLE_MASS;
    for (int t = 0; t < TYPES; t++) {
        s.type[t].group = -1;
        for (int set = 0; set < SETS; set++)
            s.type[t].set[set].dataset = s.type[t].set[set].stored = -1;
    }
    int rc = h5_upload_open(&s.h5, file, bytes, -1);
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
    snapshot_close(&s);
    return rc;
}
