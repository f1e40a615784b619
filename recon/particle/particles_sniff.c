/* Recognises the format of a particle file by its first bytes, whatever its name. */
#include "recon/particle/particles.h"
#include "recon/particle/particles_text.h"

#include "gridding/base/err.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SNIFF_BYTES = 1 << 18, LINE = 160 };

const struct kind_input particles_inputs[] = {
    {"pqr", "PQR: positions, charges and radii", ".pqr", "chemical/x-pqr"},
    {"pdb", "PDB, with charges in a column (parameter charges)", ".pdb", "chemical/x-pdb"},
    {"xyz", "XYZ, one line per point: optional symbol, x, y, z, charge, radius", ".xyz", "chemical/x-xyz"},
    {"csv", "CSV, with or without a header line (x,y,z,charge,radius)", ".csv", "text/csv"},
    {"npy", "NumPy array [points][columns] or [frames][points][columns]", ".npy", "application/x-npy"},
    {"npz", "NumPy arrays position, charge, radius, box", ".npz", "application/x-npz"},
    {.name = NULL},
};

/* The first bytes of a file. */
struct head {
    const char *bytes;
    size_t length;
    uint64_t file_bytes;
};

static bool is_npy(const struct head *head)
{
    return head->length >= 6 && memcmp(head->bytes, "\x93NUMPY", 6) == 0;
}

static bool is_npz(const struct head *head)
{
    return head->length >= 4 && memcmp(head->bytes, "PK\x03\x04", 4) == 0;
}

static bool is_hdf5(const struct head *head)
{
    return head->length >= 8 && memcmp(head->bytes, "\x89HDF\r\n\x1a\n", 8) == 0;
}

/* The Fortran record length of a header of 256 bytes, or of the name before it, in either byte order. */
static bool is_gadget(const struct head *head)
{
    const unsigned char *at = (const unsigned char *)head->bytes;
    static const unsigned char lengths[][4] = {{0, 1, 0, 0}, {0, 0, 1, 0}, {8, 0, 0, 0}, {0, 0, 0, 8}};
    for (int i = 0; i < 4 && head->length >= 8; i++)
        if (memcmp(at, lengths[i], 4) == 0)
            return i < 2 || memcmp(at + 4, "HEAD", 4) == 0;
    return false;
}

static bool is_text(const struct head *head)
{
    for (size_t i = 0; i < head->length; i++)
        if (((unsigned char)head->bytes[i] < ' ' && !memchr("\t\r\n\f", head->bytes[i], 4)) || head->bytes[i] == 0x7f)
            return false;
    return true;
}

/* The next line of the head, at most LINE - 1 bytes of it; false: none is left. */
static bool line_next(const struct head *head, size_t *at, char line[LINE])
{
    if (*at >= head->length)
        return false;
    const char *from = head->bytes + *at, *to = memchr(from, '\n', head->length - *at);
    size_t length = to ? (size_t)(to - from) : head->length - *at;
    *at += length + 1;
    length = length < LINE ? length : LINE - 1;
    memcpy(line, from, length);
    while (length && strchr(" \t\r", line[length - 1]) && line[length - 1])
        length--;
    line[length] = '\0';
    return true;
}

static bool is_atom(const char *line)
{
    return strncmp(line, "ATOM", 4) == 0 || strncmp(line, "HETATM", 6) == 0;
}

/* Whether the six characters from `at` on are a number with two decimals, as PDB's occupancy and temperature factor. */
static bool is_two_decimals(const char *at)
{
    size_t i = strspn(at, " ");
    i += at[i] == '-' || at[i] == '+';
    i += strspn(at + i, "0123456789");
    return i == 3 && at[3] == '.' && isdigit((unsigned char)at[4]) && isdigit((unsigned char)at[5]);
}

/* The first line of an atom in PDB and PQR files. */
static bool atom_find(const struct head *head, char line[LINE])
{
    size_t at = 0;
    while (line_next(head, &at, line))
        if (is_atom(line))
            return true;
    return false;
}

/* Recognise PDB's columns by their decimal points; in PQR the last fields are charge and radius, with other decimals.
 */
static bool is_pdb_atom(const char *line)
{
    enum { X = 30, OCCUPANCY = 54, BFACTOR = 60, BEHIND = 66 };
    const size_t length = strlen(line);
    if (length < OCCUPANCY || line[X + 4] != '.' || line[X + 12] != '.' || line[X + 20] != '.')
        return false;
    if (length == OCCUPANCY)
        return true;
    return length >= BEHIND && is_two_decimals(line + OCCUPANCY) && is_two_decimals(line + BFACTOR) &&
           (length == BEHIND || line[BEHIND] == ' ');
}

static bool is_pdb(const struct head *head)
{
    char line[LINE];
    return is_text(head) && atom_find(head, line) && is_pdb_atom(line);
}

static bool is_pqr(const struct head *head)
{
    char line[LINE];
    return is_text(head) && atom_find(head, line);
}

/* The first line that is neither empty nor a comment. */
static bool first_line(const struct head *head, char line[LINE])
{
    size_t at = 0;
    while (line_next(head, &at, line))
        if (line[strspn(line, " \t")] && line[strspn(line, " \t")] != '#')
            return true;
    return false;
}

static bool is_csv(const struct head *head)
{
    char line[LINE];
    return is_text(head) && first_line(head, line) && (strchr(line, ',') || strchr(line, ';'));
}

/* A line with only a number of points, or at least three numbers after at most one word. */
static bool is_xyz(const struct head *head)
{
    char line[LINE], *rest = NULL;
    int words = 0, numbers = 0;
    if (!is_text(head) || !first_line(head, line))
        return false;
    for (char *word = strtok_r(line, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest)) {
        char *end = NULL;
        strtod(word, &end);
        const bool number = !*end;
        words++;
        numbers += number;
        if (!number && words > 1)
            break;
    }
    return (words == 1 && numbers == 1) || numbers >= 3;
}

/* The first format that matches is taken. */
static const struct {
    const char *format;
    bool (*is)(const struct head *head);
} formats[] = {
    {"npy", is_npy}, {"npz", is_npz}, {"hdf5", is_hdf5}, {"gadget", is_gadget},
    {"pdb", is_pdb}, {"pqr", is_pqr}, {"csv", is_csv},   {"xyz", is_xyz},
};

static int unknown(const char *format, const struct kind_input *inputs)
{
    char list[256] = "";
    size_t used = 0;
    for (; inputs->name && used < sizeof list; inputs++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", inputs->name);
    return err_set(ERR_UNKNOWN_FORMAT, "The file %s%s. Particles are expected, in one of these formats: %s.",
                   format ? "is of format " : "is of no known format", format ? format : "", list);
}

int particles_sniff(const char **format, int fd, uint64_t bytes, const struct kind_input *inputs)
{
    char *memory = malloc(SNIFF_BYTES);
    if (!memory)
        return err_no_memory("the first bytes of the file");
    const ssize_t got = pread(fd, memory, SNIFF_BYTES, 0);
    const size_t mark = got > 0 ? text_mark(memory, (size_t)got) : 0;
    const struct head head = {memory + mark, got > 0 ? (size_t)got - mark : 0, bytes};
    const char *found = NULL;
    int rc = 0;
    if (got < 0)
        rc = err_set(ERR_IO, "The file cannot be read (%s).", strerror(errno));
    else if (got == 0)
        rc = err_set(ERR_EMPTY_BODY, "The file is empty (0 bytes). Send the particles as the body of the request.");
    for (size_t i = 0; rc == 0 && !found && i < sizeof formats / sizeof *formats; i++)
        if (formats[i].is(&head))
            found = formats[i].format;
    free(memory);
    if (rc != 0)
        return rc;
    for (const struct kind_input *input = inputs; found && input->name; input++)
        if (strcmp(input->name, found) == 0) {
            *format = input->name;
            return 0;
        }
    return unknown(found, inputs);
}

int particles_sniff_molecule(const char **format, int fd, uint64_t bytes)
{
    return particles_sniff(format, fd, bytes, particles_inputs);
}
