/* Reads text tables: XYZ and CSV. */
#include "recon/particle/particles_build.h"
#include "recon/particle/particles_text.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <string.h>

enum { IGNORED = -1, SYMBOL = -2 }; /* columns beside those of enum particle_column */

/* The meaning of a table's columns. */
struct text_table {
    struct particles_builder builder;
    struct text text;
    char separator;
    int columns, column[TEXT_FIELDS], axis[TEXT_FIELDS];
    bool begun;
};

static void column_add(struct text_table *t, int column, int axis)
{
    t->column[t->columns] = column;
    t->axis[t->columns++] = axis;
}

/* x, y, z, followed by the kind's own columns, as many as the line has: a vector as a whole. */
static int columns_ordered(struct text_table *t, const struct particles_wanted *wanted, int fields)
{
    for (int d = 0; d < 3; d++)
        column_add(t, PARTICLE_POSITION, d);
    for (int i = 0; i < PARTICLES_ORDER && wanted->order[i] && t->columns < fields; i++) {
        const int axes = wanted->order[i] == PARTICLE_VELOCITY ? 3 : 1;
        if (t->columns + axes > fields)
            return err_set(ERR_MALFORMED_FILE,
                           "Line %llu has %d columns; x, y, z and, after them, three of velocities are expected. Name "
                           "other columns in a header line of a CSV file (x,y,z,mass).",
                           (unsigned long long)t->text.line, t->text.fields);
        for (int d = 0; d < axes; d++)
            column_add(t, wanted->order[i], d);
    }
    while (t->columns < fields)
        column_add(t, IGNORED, 0);
    return 0;
}

/* Which axes of a vector are there, as bits. */
static int axes_there(const struct text_table *t, enum particle_column column)
{
    int axes = 0;
    for (int i = 0; i < t->columns; i++)
        if (t->column[i] == (int)column)
            axes |= 1 << t->axis[i];
    return axes;
}

static unsigned columns_there(struct text_table *t)
{
    unsigned there = 0;
    for (int i = 0; i < t->columns; i++) {
        if (t->column[i] == SYMBOL)
            there |= 1U << PARTICLE_ELEMENT;
        else if (t->column[i] != IGNORED)
            there |= 1U << t->column[i];
        t->builder.header.ignored += t->column[i] == IGNORED;
    }
    return there;
}

/* A header line may name only some of vx, vy, vz, of which the others would be taken for 0: a kind that reads
 * velocities refuses that, others ignore the columns. */
static int velocities_check(struct text_table *t, const struct particles_wanted *wanted)
{
    const int velocities = axes_there(t, PARTICLE_VELOCITY);
    if (velocities == 0 || velocities == 7)
        return 0;
    if (!particles_are_read(wanted, PARTICLE_VELOCITY)) {
        for (int i = 0; i < t->columns; i++)
            if (t->column[i] == PARTICLE_VELOCITY)
                t->column[i] = IGNORED;
        return 0;
    }
    static const char *const missing[] = {"",      "vy and vz are", "vx and vz are", "vz is", "vx and vy are",
                                          "vy is", "vx is"};
    return err_set(ERR_MALFORMED_FILE,
                   "Line %llu names columns of velocities, but %s not among them. Name all of vx, vy and vz, or none.",
                   (unsigned long long)t->text.line, missing[velocities]);
}

/* Lay out the memory, once the columns are known. */
static int table_begin(struct text_table *t, int memory, uint64_t most_bytes, const void *file, size_t bytes,
                       const struct particles_wanted *wanted)
{
    if (axes_there(t, PARTICLE_POSITION) != 7)
        return err_set(ERR_MALFORMED_FILE, "Line %llu names the columns, but x, y and z are not among them.",
                       (unsigned long long)t->text.line);
    int rc = velocities_check(t, wanted);
    const unsigned there = columns_there(t);
    const uint64_t ignored = t->builder.header.ignored;
    if (rc == 0)
        rc = particles_needed(wanted, there,
                              "Add it as a column after x, y, z, or name the columns in a header line (x,y,z,charge).");
    if (rc == 0)
        rc = particles_builder_begin(&t->builder, memory, most_bytes, there, text_lines(file, bytes));
    t->builder.header.ignored = ignored;
    t->begun = rc == 0;
    return rc;
}

static const char *column_name(const struct text_table *t, int i)
{
    static const char *const axes[] = {"x", "y", "z"};
    return t->column[i] == PARTICLE_POSITION ? axes[t->axis[i]]
                                             : particle_column_name((enum particle_column)t->column[i]);
}

/* Add the current line, already split, as a row. */
static int row_add(struct text_table *t)
{
    struct particle row = {.element = 0};
    int rc = 0;
    if (t->text.fields != t->columns)
        return err_set(ERR_MALFORMED_FILE, "Line %llu has %d column%s; %d are expected, as in the first.",
                       (unsigned long long)t->text.line, t->text.fields, t->text.fields == 1 ? "" : "s", t->columns);
    for (int i = 0; i < t->columns && rc == 0; i++) {
        double value = 0;
        const char *field = t->text.field[i];
        const bool named = t->column[i] == SYMBOL || t->column[i] == PARTICLE_ELEMENT;
        if (t->column[i] == IGNORED)
            continue;
        if (named && !text_number(field, &value))
            row.element = (uint8_t)particle_element(field, strlen(field));
        else if (t->column[i] == PARTICLE_ID)
            rc = text_field_whole(&t->text, i + 1, column_name(t, i), &row.id);
        else if (!named)
            rc = text_field_number(&t->text, i + 1, column_name(t, i), &value);
        if (rc == 0 && !(named && row.element))
            particles_row_set(&row, named ? PARTICLE_ELEMENT : (enum particle_column)t->column[i], t->axis[i], value);
    }
    if (rc == 0)
        rc = particles_row_check(&row, t->builder.columns, "Line", t->text.line);
    return rc == 0 ? particles_builder_add(&t->builder, &row) : rc;
}

static int table_end(struct text_table *t, int rc)
{
    if (rc == 0 && !t->begun)
        rc = err_set(ERR_MALFORMED_FILE, "The file holds no points.");
    if (rc == 0)
        rc = particles_builder_end(&t->builder);
    if (t->begun)
        particles_builder_free(&t->builder);
    return rc;
}

/* ---- XYZ ---- */

static bool is_count(const struct text *text)
{
    return text->fields == 1 && text->field[0][strspn(text->field[0], "0123456789")] == '\0' &&
           strlen(text->field[0]) <= 10;
}

/* Read from the first point's line whether a symbol comes first. */
static int xyz_begin(struct text_table *t, int memory, uint64_t most_bytes, const void *file, size_t bytes,
                     const struct particles_wanted *wanted)
{
    double number;
    const bool symbol = !text_number(t->text.field[0], &number);
    if (symbol)
        column_add(t, SYMBOL, 0);
    if (t->text.fields - symbol < 3)
        return err_set(ERR_MALFORMED_FILE, "Line %llu has %d columns; an optional symbol, x, y and z are expected.",
                       (unsigned long long)t->text.line, t->text.fields);
    int rc = columns_ordered(t, wanted, t->text.fields);
    return rc == 0 ? table_begin(t, memory, most_bytes, file, bytes, wanted) : rc;
}

/* The two lines before a frame: its number of points, and a comment. `left`: missing points of the previous frame. */
static int xyz_frame(struct text_table *t, uint64_t *left)
{
    unsigned long long count = 0;
    if (*left)
        return err_set(ERR_MALFORMED_FILE, "Line %llu begins a frame, but %llu points of the previous one are missing.",
                       (unsigned long long)t->text.line, (unsigned long long)*left);
    sscanf(t->text.field[0], "%llu", &count);
    *left = count;
    int rc = t->begun ? particles_builder_frame(&t->builder) : 0;
    int more = rc == 0 ? text_next(&t->text) : rc;
    if (more == 0)
        return err_set(ERR_MALFORMED_FILE, "The file ends after line %llu, which announces %llu points.",
                       (unsigned long long)t->text.line, count);
    return more > 0 ? 0 : more;
}

int particles_xyz_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    struct text_table t = {.separator = ' '};
    uint64_t left = 0, frames = 0;
    int more = 0, rc = 0;
    text_begin(&t.text, file, bytes);
    while (rc == 0 && (more = text_next(&t.text)) > 0) {
        rc = text_split(&t.text, t.separator);
        if (rc != 0 || !t.text.fields || t.text.field[0][0] == '#')
            continue;
        if (is_count(&t.text)) {
            rc = xyz_frame(&t, &left);
            frames++;
            continue;
        }
        if (frames && !left)
            rc = err_set(ERR_MALFORMED_FILE, "Line %llu exceeds the number of points announced for its frame.",
                         (unsigned long long)t.text.line);
        if (rc == 0 && !t.begun)
            rc = xyz_begin(&t, memory, most_bytes, file, bytes, wanted);
        if (rc == 0)
            rc = row_add(&t);
        left -= frames > 0 && left > 0;
    }
    rc = rc == 0 ? more : rc;
    if (rc == 0 && left)
        rc = err_set(ERR_TRUNCATED, "The file ends after line %llu, but %llu points are missing.",
                     (unsigned long long)t.text.line, (unsigned long long)left);
    return table_end(&t, rc);
}

/* ---- CSV ---- */

/* A header line, or numbers in the kind's order. */
static int csv_begin(struct text_table *t, int memory, uint64_t most_bytes, const void *file, size_t bytes,
                     const struct particles_wanted *wanted, bool *names)
{
    double number;
    *names = !text_number(t->text.field[0], &number);
    for (int i = 0; *names && i < t->text.fields; i++) {
        const char *name = t->text.field[i];
        int axis = 0, column = particles_column_find(name, strlen(name), &axis);
        for (int before = 0; before < i; before++)
            if (column >= 0 && t->column[before] == column && t->axis[before] == axis)
                return err_set(ERR_MALFORMED_FILE, "Line %llu names two columns with the same meaning, %d and %d.",
                               (unsigned long long)t->text.line, before + 1, i + 1);
        column_add(t, column >= 0 && axis >= 0 ? column : IGNORED, axis);
    }
    if (!*names && t->text.fields < 3)
        return err_set(ERR_MALFORMED_FILE, "Line %llu has %d columns; x, y and z are expected.",
                       (unsigned long long)t->text.line, t->text.fields);
    int rc = *names ? 0 : columns_ordered(t, wanted, t->text.fields);
    return rc == 0 ? table_begin(t, memory, most_bytes, file, bytes, wanted) : rc;
}

/* Fields may be quoted, as in files that R writes. */
static void fields_unquote(struct text *text)
{
    for (int i = 0; i < text->fields; i++) {
        char *field = text->field[i];
        const size_t length = strlen(field);
        if (length < 2 || field[0] != '"' || field[length - 1] != '"')
            continue;
        field[length - 1] = '\0';
        text->field[i] = field + 1;
    }
}

int particles_csv_decode(int memory, uint64_t most_bytes, const void *file, size_t bytes, const void *wanted)
{
    struct text_table t = {.separator = ','};
    int more = 0, rc = 0;
    text_begin(&t.text, file, bytes);
    while (rc == 0 && (more = text_next(&t.text)) > 0) {
        bool names = false;
        const size_t blanks = strspn(t.text.now, " \t");
        if (!t.text.now[blanks] || t.text.now[blanks] == '#')
            continue;
        if (!t.begun && strchr(t.text.now, ';'))
            t.separator = ';';
        rc = text_split(&t.text, t.separator);
        fields_unquote(&t.text);
        if (rc == 0 && !t.begun)
            rc = csv_begin(&t, memory, most_bytes, file, bytes, wanted, &names);
        if (rc == 0 && !names)
            rc = row_add(&t);
    }
    return table_end(&t, rc == 0 ? more : rc);
}
