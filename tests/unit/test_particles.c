/* Readers of particles (recon/particle/): the contents of each format, and the errors for malformed lines. */
#include "gridding/base/err.h"
#include "recon/particle/particles_build.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

enum { CAP = 1 << 20, SEALED = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW };

typedef int reader(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted);

static const struct particles_wanted charged = {.needed = 1U << PARTICLE_POSITION | 1U << PARTICLE_CHARGE,
                                                .order = {PARTICLE_CHARGE, PARTICLE_RADIUS}};

static int memory_create(void)
{
    int fd = memfd_create("particles", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    return fd;
}

/* Shrink and seal the memory file as decode_file() does, and open it. */
static int memory_open(struct particles *p, int fd)
{
    struct particles_header head;
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    assert_int_equal(ftruncate(fd, (off_t)head.total_bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, SEALED), 0);
    return particles_open(p, fd);
}

static struct particles read_bytes(reader *read, const void *bytes, size_t length,
                                   const struct particles_wanted *wanted)
{
    struct particles p = {0};
    int fd = memory_create();
    int rc = read(fd, CAP, bytes, length, wanted);
    if (rc != 0)
        print_message("%s\n", err_last()->text);
    assert_int_equal(rc, 0);
    assert_int_equal(memory_open(&p, fd), 0);
    close(fd);
    return p;
}

static struct particles read_text(reader *read, const char *text)
{
    return read_bytes(read, text, strlen(text), &charged);
}

static void refused_as(reader *read, const char *text, const struct particles_wanted *wanted, int code,
                       const char *sentence)
{
    int fd = memory_create();
    assert_int_equal(read(fd, CAP, text, strlen(text), wanted), code);
    assert_string_equal(err_last()->text, sentence);
    close(fd);
}

static void refused(reader *read, const char *text, const char *sentence)
{
    refused_as(read, text, &charged, ERR_MALFORMED_FILE, sentence);
}

/* ---- PQR ---- */

static void test_pqr(void **state)
{
    (void)state;
    struct particles p =
        read_text(particles_pqr_decode, "REMARK a comment\n"
                                        "CRYST1   30.000   31.000   32.500  90.00  90.00  90.00 P 1           1\n"
                                        "ATOM      1  OH2 TIP3     5     -16.332   -9.918   -4.096 -0.834 1.520\r\n"
                                        "HETATM100000 NA NA A     7       1.5 2.25 -3e0 1.0 0.5\n"
                                        "TER\nEND\n");
    assert_int_equal(p.frames, 1);
    assert_int_equal(p.count, 2);
    assert_true(p.position[0] == -16.332 && p.position[5] == -3 && p.charge[0] == -0.834 && p.radius[1] == 0.5);
    assert_int_equal(p.element[0], 8);
    assert_int_equal(p.element[1], 11);
    assert_true(p.header->box_length[0] == 30 && p.header->box_length[2] == 32.5 && !p.header->box_placed);
    assert_null(p.mass);
    particles_close(&p);
    /* Several frames, and CRYST1 records that state no box. */
    p = read_text(particles_pqr_decode, "CRYST1 0 0 0 90 90 90 P 1 1\nMODEL 1\nATOM 1 C A 1 0 0 0 1 1\nENDMDL\n"
                                        "MODEL 2\nATOM 1 C A 1 0 0 1 2 1\nENDMDL\nEND\n");
    assert_int_equal(p.frames, 2);
    assert_int_equal(p.count, 1);
    assert_true(p.charge[1] == 2 && p.position[5] == 1 && p.header->box_length[0] == 0 && !p.header->box_skewed);
    particles_close(&p);
    p = read_text(particles_pqr_decode, "CRYST1 10 10 10 90 90 120 P 1 1\nATOM 1 C A 1 0 0 0 1 1");
    assert_true(p.header->box_skewed == 1 && p.header->box_length[0] == 0);
    particles_close(&p);
}

static void test_pqr_refused(void **state)
{
    (void)state;
    refused(particles_pqr_decode, "REMARK\nATOM 1 C A 1 0 0 zero 1 1\n",
            "Line 2, column 8 (z): \"zero\" is not a finite number.");
    refused(particles_pqr_decode, "ATOM 1 C A 1 0 0 0 nan 1\n",
            "Line 1, column 9 (charge): \"nan\" is not a finite number.");
    refused(particles_pqr_decode, "ATOM 1 C A 1 0 0 1e999 1 1\n",
            "Line 1, column 8 (z): \"1e999\" is not a finite number.");
    refused(particles_pqr_decode, "ATOM 1 C A 1 0 0 0 1 -1\n", "Line 1: the radius is -1; it must be 0 or more.");
    refused(particles_pqr_decode, "ATOM 1 C A 1 0 0 0 1\n",
            "Line 1 has 9 columns; an atom in a PQR file needs 10 or 11: ATOM, serial, name, residue, chain (or none), "
            "number, x, y, z, charge, radius, separated by blanks.");
    refused(particles_pqr_decode, "CRYST1 10 10\nATOM 1 C A 1 0 0 0 1 1\n",
            "Line 1 ends after column 3; column 4 (c) is expected.");
    refused(particles_pqr_decode,
            "MODEL\nATOM 1 C A 1 0 0 0 1 1\nENDMDL\nATOM 1 C A 1 0 0 0 1 1\n"
            "ATOM 2 C A 1 0 0 0 1 1\n",
            "Frame 2 has 2 points and frame 1 has 1; all frames of a file must have the same number of points.");
    refused(particles_pqr_decode, "REMARK\n", "The file holds no points.");
    char line[1200];
    memset(line, 'A', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    refused(particles_pqr_decode, line, "Line 1 has 1199 characters; the limit is 1024.");
    refused(particles_pqr_decode, "ATOM 1 C A 1 0 0 0 1 1\n\x01\n", "Line 2: character 1 is 0x01, which is not text.");
    const struct particles_wanted massive = {.needed = 1U << PARTICLE_MASS};
    refused_as(particles_pqr_decode, "ATOM 1 C A 1 0 0 0 1 1\n", &massive, ERR_MALFORMED_FILE,
               "The file does not give the mass of its points, which this kind of job needs. PQR files contain only "
               "positions, charges "
               "and radii.");
}

/* ---- PDB ---- */

static const char pdb[] = "HEADER    PROTEIN\n"
                          "ATOM      1  CA AALA A   1      11.104   6.134  -6.504  0.25 -0.50           C  \n"
                          "ATOM      2  CA BALA A   1      12.104   6.134  -6.504  0.75 -0.50           C  \n"
                          "HETATM    3 CA    CA A   2       1.000   2.000   3.000  1.00  2.00          CA2+\n"
                          "ATOM      4  O   HOH A   3       1.000   2.000   4.000  1.00  0.10\n";

static void test_pdb(void **state)
{
    (void)state;
    struct particles_wanted wanted = {.charges = PARTICLES_CHARGES_BFACTOR, .needed = 1U << PARTICLE_CHARGE};
    struct particles p = read_bytes(particles_pdb_decode, pdb, strlen(pdb), &wanted);
    assert_int_equal(p.count, 3); /* the first of the alternative locations */
    assert_int_equal(p.header->ignored, 1);
    assert_true(p.position[0] == 11.104 && p.charge[0] == -0.5 && p.charge[1] == 2 && p.charge[2] == 0.1);
    assert_int_equal(p.element[0], 6);
    assert_int_equal(p.element[1], 20);
    assert_int_equal(p.element[2], 8);
    particles_close(&p);
    wanted.charges = PARTICLES_CHARGES_OCCUPANCY;
    p = read_bytes(particles_pdb_decode, pdb, strlen(pdb), &wanted);
    assert_true(p.charge[0] == 0.25 && p.charge[2] == 1);
    particles_close(&p);
    wanted.charges = PARTICLES_CHARGES_FORMAL;
    p = read_bytes(particles_pdb_decode, pdb, strlen(pdb), &wanted);
    assert_true(p.charge[0] == 0 && p.charge[1] == 2);
    particles_close(&p);
    refused(particles_pdb_decode, pdb,
            "The file does not give the charge of its points, which this kind of job needs. PDB files have no partial "
            "charges "
            "and no radii: convert the file with pdb2pqr, or select the column that contains "
            "the charges with charges=occupancy, bfactor or formal.");
    wanted.charges = PARTICLES_CHARGES_BFACTOR;
    refused_as(particles_pdb_decode, "ATOM      1  CA  ALA A   1      11.104   6.134  -6.504  0.25\n", &wanted,
               ERR_MALFORMED_FILE, "Line 1, characters 61 to 66 (temperature factor): \"\" is not a finite number.");
    refused_as(particles_pdb_decode, "ATOM      1  CA  ALA A   1      11.104   6.1b4  -6.504  0.25  1.00\n", &wanted,
               ERR_MALFORMED_FILE, "Line 1, characters 39 to 46 (y): \"6.1b4\" is not a finite number.");
}

/* ---- XYZ, CSV ---- */

static void test_xyz(void **state)
{
    (void)state;
    struct particles p = read_text(particles_xyz_decode, "# x y z q\n1 2 3 -0.5\n\n4 5 6 0.5\n");
    assert_int_equal(p.count, 2);
    assert_true(p.position[4] == 5 && p.charge[0] == -0.5 && !p.radius && !p.element);
    particles_close(&p);
    p = read_text(particles_xyz_decode,
                  "2\nwater\nO 0 0 0 -0.8 1.5\nH 1 0 0 0.4 1\n2\nlater\nO 0 0 1 -0.8 1.5\nH 1 0 1 .4 1\n");
    assert_int_equal(p.frames, 2);
    assert_int_equal(p.element[3], 1);
    assert_true(p.radius[2] == 1.5 && p.position[11] == 1);
    particles_close(&p);
    refused(particles_xyz_decode, "1 2 3\n",
            "The file does not give the charge of its points, which this kind of job needs. Add it as a column after "
            "x, y, z, or name the columns in a header line (x,y,z,charge).");
    refused(particles_xyz_decode, "1 2 3 4\n1 2 3\n", "Line 2 has 3 columns; 4 are expected, as in the first.");
    refused(particles_xyz_decode, "1\nwater\nO 0 0 0 -0.8\nH 1 0 0 0.4\n",
            "Line 4 exceeds the number of points announced for its frame.");
    refused_as(particles_xyz_decode, "3\nwater\nO 0 0 0 -0.8\n", &charged, ERR_TRUNCATED,
               "The file ends after line 3, but 2 points are missing.");
}

static void test_csv(void **state)
{
    (void)state;
    struct particles p = read_text(particles_csv_decode, "q, X ,y,z,name,element\n1,2,3,4,abc,Fe\n-1,5,6,7,,8\n");
    assert_int_equal(p.count, 2);
    assert_true(p.charge[1] == -1 && p.position[0] == 2 && p.position[5] == 7 && p.header->ignored == 1);
    assert_int_equal(p.element[0], 26);
    assert_int_equal(p.element[1], 8);
    particles_close(&p);
    p = read_text(particles_csv_decode, "1;2;3;4\n5;6;7;8\n");
    assert_true(p.count == 2 && p.charge[1] == 8);
    particles_close(&p);
    refused(particles_csv_decode, "x,y,z,q\n1,2,3,4\n1,2,,4\n", "Line 3, column 3 (z): \"\" is not a finite number.");
    refused(particles_csv_decode, "x,y,z,q,mass\n1,2,3,0,1\n1,2,4,0,-1\n",
            "Line 3: the mass is -1; it must be 0 or more.");
    refused(particles_csv_decode, "x,y,charge\n1,2,3\n",
            "Line 1 names the columns, but x, y and z are not among them.");
    refused(particles_csv_decode, "x,y,z,q,charge\n1,2,3,4,5\n",
            "Line 1 names two columns with the same meaning, 4 and 5.");
}

/* The byte order mark that spreadsheets and editors write hides no line; quotes around a field, as R writes them, are
 * no part of it. */
static void test_marks_and_quotes(void **state)
{
    (void)state;
    struct particles p = read_text(particles_csv_decode, "\xef\xbb\xbfx,y,z,q\n1,2,3,4\n");
    assert_true(p.count == 1 && p.position[0] == 1 && p.charge[0] == 4);
    particles_close(&p);
    p = read_text(particles_pqr_decode, "\xef\xbb\xbf"
                                        "ATOM 1 N NTE 1 6 7 8 0.5 1.8\nATOM 2 N NTE 1 6 7 8 0.5 1.8\n");
    assert_int_equal(p.count, 2);
    particles_close(&p);
    p = read_text(particles_csv_decode, "\"\",\"x\",\"y\",\"z\",\"q\"\n\"1\",1,\"2\",3,4\n");
    assert_true(p.count == 1 && p.position[1] == 2 && p.charge[0] == 4 && p.header->ignored == 1);
    particles_close(&p);
    refused(particles_csv_decode, "x,y,z,q\n1,2,3,\"\n", "Line 2, column 4 (charge): \"\"\" is not a finite number.");
}

/* Without names, columns behind z are whole velocities: a mass there would be taken for the first of their parts. */
static void test_parts_of_velocities(void **state)
{
    (void)state;
    static const struct particles_wanted moving = {.order = {PARTICLE_VELOCITY, PARTICLE_MASS}};
    static const char sentence[] = "Line 1 has 4 columns; x, y, z and, after them, three of velocities are expected. "
                                   "Name other columns in a header line of a CSV file (x,y,z,mass).";
    struct particles p = read_bytes(particles_xyz_decode, "1 2 3 4 5 6 7\n", 14, &moving);
    assert_true(p.velocity[2] == 6 && p.mass[0] == 7);
    particles_close(&p);
    p = read_bytes(particles_xyz_decode, "1 2 3\n", 6, &moving);
    assert_true(!p.velocity && !p.mass);
    particles_close(&p);
    refused_as(particles_xyz_decode, "1 2 3 4\n", &moving, ERR_MALFORMED_FILE, sentence);
    refused_as(particles_csv_decode, "1,2,3,4\n", &moving, ERR_MALFORMED_FILE, sentence);
    refused_as(
        particles_csv_decode, "x,y,z,vx\n1,2,3,4\n", &moving, ERR_MALFORMED_FILE,
        "Line 1 names columns of velocities, but vy and vz are not among them. Name all of vx, vy and vz, or none.");
    refused_as(particles_csv_decode, "x,y,z,vz,vx\n1,2,3,4,5\n", &moving, ERR_MALFORMED_FILE,
               "Line 1 names columns of velocities, but vy is not among them. Name all of vx, vy and vz, or none.");
    /* Kinds that do not read velocities do not mind. */
    p = read_text(particles_csv_decode, "x,y,z,vx,q\n1,2,3,4,5\n");
    assert_true(!p.velocity && p.charge[0] == 5 && p.header->ignored == 1);
    particles_close(&p);
}

/* IDs beyond 2^53 are not rounded. */
static void test_csv_ids(void **state)
{
    (void)state;
    struct particles p = read_text(particles_csv_decode,
                                   "x,y,z,q,id\n1,2,3,4,18446744073709551615\n1,2,3,4,9007199254740993\n1,2,3,4,1e3\n");
    assert_true(p.id[0] == UINT64_MAX && p.id[1] == (UINT64_C(1) << 53) + 1 && p.id[2] == 1000);
    particles_close(&p);
    static const char *const bad[] = {"-1", "1.5", "18446744073709551616", "", "one"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[96], expected[128];
        snprintf(text, sizeof text, "x,y,z,q,id\n1,2,3,4,%s\n", bad[i]);
        snprintf(expected, sizeof expected, "Line 2, column 5 (id): \"%s\" is not a whole number from 0 to 2^64 - 1.",
                 bad[i]);
        refused(particles_csv_decode, text, expected);
    }
}

/* ---- npy ---- */

/* A table of [2][5] items of `type`, each `bytes` long. */
static size_t npy_make(char file[256], const char *type, const void *items, size_t bytes)
{
    memset(file, ' ', 128);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int used = snprintf(file + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (2, 5), }", type);
    file[10 + used] = ' ';
    file[127] = '\n';
    memcpy(file + 128, items, 10 * bytes);
    return 128 + 10 * bytes;
}

static void test_npy_integers(void **state)
{
    (void)state;
    const struct particles_wanted wanted = {.order = {PARTICLE_CHARGE, PARTICLE_ID}};
    static const int8_t i1[] = {-1, 2, -128, 127, 5, 1, 1, 1, -3, 6};
    static const uint8_t u1[] = {255, 2, 128, 127, 5, 1, 1, 1, 3, 6};
    static const int16_t i2[] = {-1, 2, -32768, 127, 5, 1, 1, 1, -3, 6};
    static const int32_t big[] = {-1, 0x02000000, 0x80, 0x7f000000, 0x05000000, 0, 0, 0, 0, 0x06000000}; /* swapped */
    static const uint64_t u8[] = {1, 2, 3, 4, UINT64_MAX, 1, 1, 1, 3, (UINT64_C(1) << 53) + 1};
    static const struct {
        const char *type;
        const void *items;
        size_t bytes;
        double z;
        uint64_t id;
    } files[] = {{"|i1", i1, 1, -128, 5},
                 {"|u1", u1, 1, 128, 5},
                 {"<i2", i2, 2, -32768, 5},
                 {">i4", big, 4, -0x1p31, 5},
                 {"<u8", u8, 8, 3, UINT64_MAX}};
    char file[256];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const size_t length = npy_make(file, files[i].type, files[i].items, files[i].bytes);
        struct particles p = read_bytes(particles_npy_decode, file, length, &wanted);
        assert_true(p.position[2] == files[i].z && p.id[0] == files[i].id);
        assert_true(p.id[1] == (files[i].bytes == 8 ? u8[9] : 6));
        particles_close(&p);
    }
    static const int64_t negative[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, -5};
    static const double broken[] = {1, 2, 3, 4, 5, 1, 2, 3, 4, 5.5};
    struct particles_header head;
    for (int i = 0; i < 2; i++) {
        const size_t length = npy_make(file, i ? "<f8" : "<i8", i ? (const void *)broken : negative, 8);
        int fd = memory_create();
        assert_int_equal(particles_npy_decode(fd, CAP, file, length, &wanted), ERR_MALFORMED_FILE);
        assert_string_equal(err_last()->text, "Point 2: the id is not a whole number from 0 to 2^64 - 1.");
        assert_int_equal(pread(fd, &head, sizeof head, 0), 0);
        close(fd);
    }
}

/* ---- hostile and damaged files ---- */

static void test_open_refuses(void **state)
{
    (void)state;
    static const char text[] = "1 2 3 4\n5 6 7 8\n";
    for (int damage = 0; damage < 7; damage++) {
        struct particles p;
        struct particles_header head;
        int fd = memory_create();
        assert_int_equal(particles_xyz_decode(fd, CAP, text, strlen(text), &charged), 0);
        assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
        const double bad = NAN;
        if (damage == 0)
            assert_int_equal(pwrite(fd, &bad, sizeof bad, (off_t)head.at[PARTICLE_CHARGE]), sizeof bad);
        head.count += damage == 1 ? UINT64_C(1) << 40 : 0;
        head.at[PARTICLE_CHARGE] += damage == 2 ? 1 << 20 : damage == 3 ? 8 : 0;
        head.at[PARTICLE_POSITION] = damage == 4 ? 0 : head.at[PARTICLE_POSITION];
        head.frames = damage == 5 ? 0 : head.frames;
        head.box_length[1] = damage == 6 ? INFINITY : 0;
        assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
        assert_int_equal(memory_open(&p, fd), ERR_DECODER_DIED);
        close(fd);
    }
}

/* ---- recognising the format ---- */

static void sniffed(const char *bytes, size_t length, const char *expected)
{
    const char *format = NULL;
    int fd = memory_create();
    assert_int_equal(write(fd, bytes, length), (ssize_t)length);
    int rc = particles_sniff(&format, fd, length, particles_inputs);
    if (expected) {
        assert_int_equal(rc, 0);
        assert_string_equal(format, expected);
    } else {
        assert_int_equal(rc, length ? ERR_UNKNOWN_FORMAT : ERR_EMPTY_BODY);
    }
    close(fd);
}

static void test_sniff(void **state)
{
    (void)state;
    static const struct {
        const char *text, *format;
    } files[] = {
        {"ATOM      1  OH2 TIP3     5     -16.332   -9.918   -4.096 -0.834 1.520\n", "pqr"},
        {"ATOM      1  N   NTE     1      67.253  25.892  -0.145  0.185 1.824\n", "pqr"},
        {"ATOM 1 N NTE 1 67.253 25.892 -0.145 0.18 1.82\n", "pqr"},
        {pdb, "pdb"},
        {"REMARK\nATOM      1  N   ALA A   1      11.104   6.134  -6.504  1.00  0.00\n", "pdb"},
        {"3\nwater\nO 0 0 0\n", "xyz"},
        {"1.0 2.0 3.0 -0.5\n", "xyz"},
        {"# comment\nx,y,z,q\n", "csv"},
        {"1;2;3;4\n", "csv"},
        {"\xef\xbb\xbf"
         "3\nwater\nO 0 0 0\n",
         "xyz"},
        {"\x93NUMPY\x01", "npy"},
        {"PK\x03\x04", "npz"},
        {"hello world\n", NULL},
        {"\x89HDF\r\n\x1a\n", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        sniffed(files[i].text, strlen(files[i].text), files[i].format);
    /* If a kind does not support a format, the error lists those that it supports. */
    static const struct kind_input few[] = {{"pqr", "", "", ""}, {.name = NULL}};
    const char *format = NULL;
    int fd = memory_create();
    assert_int_equal(write(fd, "1 2 3 4\n", 8), 8);
    assert_int_equal(particles_sniff(&format, fd, 8, few), ERR_UNKNOWN_FORMAT);
    assert_string_equal(err_last()->text,
                        "The file is of format xyz. Particles are expected, in one of these formats: pqr.");
    close(fd);
}

static void test_elements(void **state)
{
    (void)state;
    assert_int_equal(particle_element("FE", 2), 26);
    assert_int_equal(particle_element("c", 1), 6);
    assert_int_equal(particle_element("Xx", 2), 0);
    for (int i = 1; i <= 118; i++)
        assert_int_equal(particle_element(particle_element_symbol(i), strlen(particle_element_symbol(i))), i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pqr),
        cmocka_unit_test(test_pqr_refused),
        cmocka_unit_test(test_pdb),
        cmocka_unit_test(test_xyz),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_csv_ids),
        cmocka_unit_test(test_sniff),
        cmocka_unit_test(test_elements),
        cmocka_unit_test(test_open_refuses),
        cmocka_unit_test(test_npy_integers),
        cmocka_unit_test(test_marks_and_quotes),
        cmocka_unit_test(test_parts_of_velocities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
