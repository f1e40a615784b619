/* Reads PQR and PDB: one line per atom, which begins with ATOM or HETATM. */
#include "recon/particle/particles_build.h"
#include "recon/particle/particles_text.h"

#include "gridding/base/err.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* State of both readers. */
struct atoms {
    struct particles_builder builder;
    const struct particles_wanted *wanted;
    struct text text;
};

static bool begins(const struct atoms *a, const char *word)
{
    return strncmp(a->text.now, word, strlen(word)) == 0;
}

/* The element, from the atom's name: for an ion, whose residue has the same name, the whole name; else the first
 * letter, as in CA, OH2, 1HB. */
static uint8_t element_of_name(const char *name, const char *residue)
{
    size_t length = 0;
    while (isdigit((unsigned char)*name))
        name++;
    while (isalpha((unsigned char)name[length]))
        length++;
    if (length == 2 && strncmp(name, residue, length) == 0 && !isalpha((unsigned char)residue[length]))
        return (uint8_t)particle_element(name, length);
    return length ? (uint8_t)particle_element(name, 1) : 0;
}

/* CRYST1 a b c alpha beta gamma; lengths of 0 or 1 mean that there is no crystal. */
static int crystal_read(struct atoms *a)
{
    static const char *const names[] = {"a", "b", "c", "alpha", "beta", "gamma"};
    struct particles_header *h = &a->builder.header;
    double value[6];
    int rc = text_split(&a->text, ' ');
    for (int i = 0; i < 6 && rc == 0; i++)
        rc = text_field_number(&a->text, i + 2, names[i], &value[i]);
    if (rc != 0)
        return rc;
    bool cell = true;
    for (int d = 0; d < 3; d++)
        cell = cell && value[d] > 1;
    h->box_skewed = cell && (value[3] != 90 || value[4] != 90 || value[5] != 90);
    for (int d = 0; d < 3; d++)
        h->box_length[d] = cell && !h->box_skewed ? value[d] : 0;
    return 0;
}

/* Lines that end a frame, define the box, or are skipped. */
static int line_other(struct atoms *a)
{
    if (begins(a, "ENDMDL") || strcmp(a->text.now, "END") == 0)
        return particles_builder_frame(&a->builder);
    return begins(a, "CRYST1") ? crystal_read(a) : 0;
}

static int atoms_read(struct atoms *a, unsigned columns, int (*atom)(struct atoms *a), int memory, uint64_t most_bytes,
                      const void *file, size_t bytes)
{
    int more = 0, rc = particles_builder_begin(&a->builder, memory, most_bytes, columns, text_lines(file, bytes));
    text_begin(&a->text, file, bytes);
    while (rc == 0 && (more = text_next(&a->text)) > 0)
        rc = begins(a, "ATOM") || begins(a, "HETATM") ? atom(a) : line_other(a);
    rc = rc == 0 ? more : rc;
    if (rc == 0)
        rc = particles_builder_end(&a->builder);
    particles_builder_free(&a->builder);
    return rc;
}

/* ---- PQR ---- */

/* ATOM serial name residue [chain] number x y z charge radius, between blanks. Serials from 100,000 on often follow
 * HETATM without a blank. */
static int pqr_atom(struct atoms *a)
{
    static const char *const names[] = {"x", "y", "z", "charge", "radius"};
    int rc = text_split(&a->text, ' ');
    if (rc != 0)
        return rc;
    const int fields = a->text.fields;
    const bool joined = isdigit((unsigned char)a->text.field[0][strcspn(a->text.field[0], "0123456789")]);
    const int least = joined ? 9 : 10;
    if (fields < least || fields > least + 1)
        return err_set(ERR_MALFORMED_FILE,
                       "Line %llu has %d columns; an atom in a PQR file needs %d or %d: ATOM, serial, name, residue, "
                       "chain (or none), number, x, y, z, charge, radius, separated by blanks.",
                       (unsigned long long)a->text.line, fields, least, least + 1);
    double value[5];
    for (int i = 0; i < 5 && rc == 0; i++)
        rc = text_field_number(&a->text, fields - 4 + i, names[i], &value[i]);
    const struct particle row = {
        .position = {value[0], value[1], value[2]},
        .charge = value[3],
        .radius = value[4],
        .element = element_of_name(a->text.field[joined ? 1 : 2], a->text.field[joined ? 2 : 3]),
    };
    if (rc == 0)
        rc = particles_row_check(&row, a->builder.columns, "Line", a->text.line);
    return rc == 0 ? particles_builder_add(&a->builder, &row) : rc;
}

int particles_pqr_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    struct atoms a = {.wanted = wanted};
    const unsigned columns =
        1U << PARTICLE_POSITION | 1U << PARTICLE_CHARGE | 1U << PARTICLE_RADIUS | 1U << PARTICLE_ELEMENT;
    int rc = particles_needed(a.wanted, columns, "PQR files contain only positions, charges and radii.");
    return rc == 0 ? atoms_read(&a, columns, pqr_atom, memory, most_bytes, file, bytes) : rc;
}

/* ---- PDB ---- */

/* The characters `first` to `last` of the line, counted from 1, without blanks around them. */
static const char *part_of(const struct text *text, size_t first, size_t last, char part[16])
{
    size_t from = first - 1, to = last < text->length ? last : text->length;
    while (from < to && text->now[from] == ' ')
        from++;
    while (to > from && text->now[to - 1] == ' ')
        to--;
    const size_t length = to > from ? to - from : 0;
    memcpy(part, text->now + from, length);
    part[length] = '\0';
    return part;
}

static int part_number(const struct text *text, size_t first, size_t last, const char *name, double *value)
{
    char part[16];
    if (text_number(part_of(text, first, last, part), value))
        return 0;
    return err_set(ERR_MALFORMED_FILE, "Line %llu, characters %zu to %zu (%s): \"%s\" is not a finite number.",
                   (unsigned long long)text->line, first, last, name, part);
}

/* Digits and a sign, "2+" or "1-"; nothing: 0. */
static int formal_charge(const struct text *text, double *value)
{
    char part[16];
    const char *at = part_of(text, 79, 80, part);
    *value = 0;
    if (!*at)
        return 0;
    if (!at[1] || !isdigit((unsigned char)at[0]) || !strchr("+-", at[1]))
        return err_set(ERR_MALFORMED_FILE,
                       "Line %llu, characters 79 to 80 (formal charge): \"%s\" is not a digit followed by a sign.",
                       (unsigned long long)text->line, part);
    *value = (at[0] - '0') * (at[1] == '-' ? -1 : 1);
    return 0;
}

static uint8_t pdb_element(const struct text *text)
{
    char symbol[16], name[16], residue[16];
    part_of(text, 77, 78, symbol);
    const int known = *symbol ? particle_element(symbol, strlen(symbol)) : 0;
    return known ? (uint8_t)known : element_of_name(part_of(text, 13, 16, name), part_of(text, 18, 20, residue));
}

static int pdb_atom(struct atoms *a)
{
    struct particle row = {.element = pdb_element(&a->text)};
    /* Of an atom's alternative locations, the first is used. */
    const char alternative = a->text.length > 16 ? a->text.now[16] : ' ';
    if (alternative != ' ' && alternative != 'A' && alternative != '1') {
        a->builder.header.ignored++;
        return 0;
    }
    int rc = part_number(&a->text, 31, 38, "x", &row.position[0]);
    if (rc == 0)
        rc = part_number(&a->text, 39, 46, "y", &row.position[1]);
    if (rc == 0)
        rc = part_number(&a->text, 47, 54, "z", &row.position[2]);
    if (rc == 0 && a->wanted->charges == PARTICLES_CHARGES_OCCUPANCY)
        rc = part_number(&a->text, 55, 60, "occupancy", &row.charge);
    if (rc == 0 && a->wanted->charges == PARTICLES_CHARGES_BFACTOR)
        rc = part_number(&a->text, 61, 66, "temperature factor", &row.charge);
    if (rc == 0 && a->wanted->charges == PARTICLES_CHARGES_FORMAL)
        rc = formal_charge(&a->text, &row.charge);
    return rc == 0 ? particles_builder_add(&a->builder, &row) : rc;
}

int particles_pdb_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    struct atoms a = {.wanted = wanted};
    unsigned columns = 1U << PARTICLE_POSITION | 1U << PARTICLE_ELEMENT;
    if (a.wanted->charges != PARTICLES_CHARGES_NONE)
        columns |= 1U << PARTICLE_CHARGE;
    int rc = particles_needed(a.wanted, columns,
                              "PDB files have no partial charges and no radii: convert the file with pdb2pqr, or "
                              "select the column that contains the charges with charges=occupancy, bfactor or formal.");
    return rc == 0 ? atoms_read(&a, columns, pdb_atom, memory, most_bytes, file, bytes) : rc;
}
