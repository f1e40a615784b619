#include "clients/molecule.h"

#include "clients/random.h"
#include "gridding/base/err.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PI 3.14159265358979323846

/* The file being written. */
struct pqr {
    FILE *file;
    int64_t serial, residue;
    uint64_t random;
};

/* In [0, 1). */
static double uniform(struct pqr *p)
{
    return (double)random_next(&p->random) * 0x1p-53;
}

static void atom_put(struct pqr *p, const char *name, const char *residue, const double at[3], double charge,
                     double radius)
{
    fprintf(p->file, "ATOM %6lld %-4s %-4s %6lld    %10.4f %10.4f %10.4f %8.4f %7.4f\n", (long long)++p->serial, name,
            residue, (long long)p->residue, at[0], at[1], at[2], charge, radius);
}

/* ---- water ---- */

/* A random unit vector, and one perpendicular to it. */
static void directions_choose(struct pqr *p, double along[3], double across[3])
{
    const double z = 2 * uniform(p) - 1, turn = 2 * PI * uniform(p), roll = 2 * PI * uniform(p);
    const double s = sqrt(1 - z * z), c = cos(turn), d = sin(turn);
    const double u[3] = {-d, c, 0}, v[3] = {-z * c, -z * d, s};
    along[0] = s * c;
    along[1] = s * d;
    along[2] = z;
    for (int i = 0; i < 3; i++)
        across[i] = cos(roll) * u[i] + sin(roll) * v[i];
}

/* TIP3P (Jorgensen et al., doi:10.1063/1.445869): O-H 0.9572 A, H-O-H 104.52 degrees. */
static void water_put(struct pqr *p, const double oxygen[3])
{
    const double bond = 0.9572, half = 104.52 / 2 * PI / 180;
    double along[3], across[3], hydrogen[2][3];
    directions_choose(p, along, across);
    for (int i = 0; i < 3; i++)
        for (int h = 0; h < 2; h++)
            hydrogen[h][i] = oxygen[i] + bond * (cos(half) * along[i] + (h ? -1 : 1) * sin(half) * across[i]);
    p->residue++;
    atom_put(p, "O", "WAT", oxygen, -0.834, 1.52);
    atom_put(p, "H1", "WAT", hydrogen[0], 0.417, 1.0);
    atom_put(p, "H2", "WAT", hydrogen[1], 0.417, 1.0);
}

/* Molecules near the nodes of a cubic lattice, so that they do not overlap. */
static int water_write(struct pqr *p, int64_t atoms)
{
    const double density = 0.0334; /* molecules in a cubic angstrom at 1 g/cm^3 */
    const int64_t molecules = atoms > 3 ? (atoms + 1) / 3 : 1, side = (int64_t)ceil(cbrt((double)molecules) - 1e-9);
    const double length = cbrt((double)molecules / density), step = length / (double)side, jitter = 0.25;
    fprintf(p->file, "CRYST1 %8.3f %8.3f %8.3f  90.00  90.00  90.00 P 1           1\n", length, length, length);
    for (int64_t i = 0; i < molecules; i++) {
        const int64_t place[3] = {i % side, i / side % side, i / side / side};
        double at[3];
        for (int d = 0; d < 3; d++)
            at[d] = ((double)place[d] + 0.5 + jitter * (2 * uniform(p) - 1)) * step - length / 2;
        water_put(p, at);
    }
    return 0;
}

/* ---- a chain ---- */

/* An atom of an alanine residue, placed by distance, angle and torsion relative to three others; charges of AMBER
 * (Cornell et al., doi:10.1021/ja00124a002), whose sum is 0; radii of Bondi. */
enum { N, CA, C, O, CB, H, HA, HB1, HB2, HB3, RESIDUE };
static const struct {
    const char *name;
    double charge, radius;
} alanine[RESIDUE] = {
    [N] = {"N", -0.4157, 1.55},   [CA] = {"CA", 0.0337, 1.7},   [C] = {"C", 0.5973, 1.7},
    [O] = {"O", -0.5679, 1.52},   [CB] = {"CB", -0.1825, 1.7},  [H] = {"H", 0.2719, 1.2},
    [HA] = {"HA", 0.0823, 1.2},   [HB1] = {"HB1", 0.0603, 1.2}, [HB2] = {"HB2", 0.0603, 1.2},
    [HB3] = {"HB3", 0.0603, 1.2},
};

struct residue {
    double at[RESIDUE][3];
};

/* The point at `bond` from c, at `angle` from b (degrees), turned by `torsion` about b-c from a. */
static void place(const double a[3], const double b[3], const double c[3], double bond, double angle, double torsion,
                  double out[3])
{
    double u[3], v[3], n[3], m[3], lu = 0, ln = 0;
    const double t = angle * PI / 180, w = torsion * PI / 180;
    for (int i = 0; i < 3; i++) {
        u[i] = c[i] - b[i];
        v[i] = b[i] - a[i];
        lu += u[i] * u[i];
    }
    for (int i = 0; i < 3; i++)
        u[i] /= sqrt(lu);
    for (int i = 0; i < 3; i++) {
        n[i] = v[(i + 1) % 3] * u[(i + 2) % 3] - v[(i + 2) % 3] * u[(i + 1) % 3];
        ln += n[i] * n[i];
    }
    for (int i = 0; i < 3; i++)
        n[i] /= sqrt(ln);
    for (int i = 0; i < 3; i++)
        m[i] = n[(i + 1) % 3] * u[(i + 2) % 3] - n[(i + 2) % 3] * u[(i + 1) % 3];
    for (int i = 0; i < 3; i++)
        out[i] = c[i] + bond * (-cos(t) * u[i] + sin(t) * cos(w) * m[i] + sin(t) * sin(w) * n[i]);
}

/* The backbone of a residue after another, from that one's torsion psi and its own phi. */
static void backbone_place(const struct residue *before, double psi, double phi, struct residue *r)
{
    place(before->at[N], before->at[CA], before->at[C], 1.335, 116.6, psi, r->at[N]);
    place(before->at[CA], before->at[C], r->at[N], 1.449, 121.9, 180, r->at[CA]);
    place(before->at[C], r->at[N], r->at[CA], 1.522, 110.1, phi, r->at[C]);
}

/* The atoms attached to the backbone; `next`: the following residue's backbone. */
static void sides_place(const struct residue *before, const struct residue *next, struct residue *r)
{
    place(next->at[CA], next->at[N], r->at[C], 1.229, 122.9, 0, r->at[O]);
    place(r->at[C], r->at[N], r->at[CA], 1.526, 110.1, -122.5, r->at[CB]);
    place(r->at[C], r->at[N], r->at[CA], 1.09, 109.5, 119, r->at[HA]);
    place(before->at[CA], before->at[C], r->at[N], 1.01, 119.8, 0, r->at[H]);
    for (int h = 0; h < 3; h++)
        place(r->at[N], r->at[CA], r->at[CB], 1.09, 109.5, 60 + 120 * h, r->at[HB1 + h]);
}

#define NEAR  4.2 /* angstroms between alpha carbons */
#define AHEAD 6.0 /* target distance to alpha carbons ahead */

/* The penalty of a residue's position: near others' alpha carbons, heading towards them, or outside the globule. */
static double badness(const struct residue *chain, int64_t count, const struct residue *r, double globule)
{
    double bad = 0, from_centre = 0;
    for (int d = 0; d < 3; d++)
        from_centre += r->at[C][d] * r->at[C][d];
    for (int64_t i = 0; i < count - 2; i++) {
        double here = 0, ahead = 0;
        for (int d = 0; d < 3; d++) {
            const double away = r->at[CA][d] - chain[i].at[CA][d], bond = r->at[C][d] - r->at[CA][d];
            here += away * away;
            ahead += (away + 3 * bond) * (away + 3 * bond);
        }
        bad += here < NEAR * NEAR ? 100 * (NEAR - sqrt(here)) : 0;
        bad += ahead < AHEAD * AHEAD ? 5 * (AHEAD - sqrt(ahead)) : 0;
    }
    return bad + fmax(0, sqrt(from_centre) - globule);
}

/* Helices with turns between them: the best of several choices of torsions, the first of equal ones. */
static void chain_fold(struct pqr *p, struct residue *chain, int64_t count)
{
    enum { TRIES = 100, HELIX = 9 };
    static const struct residue first = {.at = {[N] = {-1.2, 0.8, 0}, [CA] = {0, 0, 0}, [C] = {1.2, 0.9, 0.1}}};
    const double globule = 3.5 * pow((double)count, 0.38); /* 1.6 times a real one's radius of gyration */
    chain[0] = first;
    for (int64_t i = 1; i < count; i++) {
        double least = INFINITY;
        for (int t = 0; t < TRIES && least > 0; t++) {
            const bool helix = t == 0 && i % (HELIX + 3) < HELIX;
            struct residue r;
            const double psi = helix ? -45 : 360 * uniform(p);
            const double phi = helix ? -60 : -60 - 90 * uniform(p);
            backbone_place(&chain[i - 1], psi, phi, &r);
            const double bad = badness(chain, i, &r, globule);
            if (bad < least) {
                least = bad;
                chain[i] = r;
            }
        }
    }
}

static int chain_write(struct pqr *p, int64_t atoms)
{
    const int64_t residues = atoms > RESIDUE ? (atoms + RESIDUE / 2) / RESIDUE : 1;
    /* One residue before and one after, only to place the atoms of their neighbours. */
    struct residue *chain = calloc((size_t)residues + 2, sizeof *chain);
    if (!chain)
        return err_no_memory("a chain of %lld residues", (long long)residues);
    chain_fold(p, chain, residues + 2);
    for (int64_t i = 1; i <= residues; i++) {
        sides_place(&chain[i - 1], &chain[i + 1], &chain[i]);
        p->residue++;
        for (int a = 0; a < RESIDUE; a++)
            atom_put(p, alanine[a].name, "ALA", chain[i].at[a], alanine[a].charge, alanine[a].radius);
    }
    free(chain);
    return 0;
}

int molecule_write(enum molecule molecule, int64_t atoms, uint64_t seed, const char *path)
{
    enum { CHAIN_MOST = 50000 }; /* folding examines all pairs of residues */
    struct pqr p = {.random = seed};
    if (molecule == MOLECULE_CHAIN && atoms > CHAIN_MOST)
        return err_set(ERR_BAD_PARAMETER, "A chain has at most %d atoms.", CHAIN_MOST);
    p.file = fopen(path, "wbe");
    if (!p.file)
        return err_set(ERR_IO, "%s cannot be written: %s.", path, strerror(errno));
    fprintf(p.file, "REMARK mrirecon simulate: %s, seed %llu; angstroms, elementary charges\n",
            molecule == MOLECULE_WATER ? "a box of TIP3P water" : "a chain of alanine", (unsigned long long)seed);
    int rc = molecule == MOLECULE_WATER ? water_write(&p, atoms) : chain_write(&p, atoms);
    if (rc == 0 && fputs("END\n", p.file) < 0)
        rc = ERR_IO;
    const bool failed = ferror(p.file) != 0;
    if ((fclose(p.file) != 0 || failed) && rc == 0)
        rc = ERR_IO;
    if (rc == ERR_IO)
        err_set(ERR_IO, "%s cannot be written: %s.", path, strerror(errno));
    if (rc != 0)
        unlink(path);
    return rc;
}
