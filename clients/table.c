#include "clients/table.h"

#include "clients/client.h"

#include <stdlib.h>
#include <string.h>

int table_add(struct table *table, const char *const *cells)
{
    size_t columns = (size_t)table->columns, used = table->rows * columns;
    char **more = realloc(table->cell, (used + columns) * sizeof *more);
    int failed = !more;
    if (more)
        table->cell = more;
    for (size_t i = 0; !failed && i < columns; i++) {
        more[used + i] = strdup(cells[i]);
        if (more[used + i])
            continue;
        while (i > 0)
            free(more[used + --i]);
        failed = 1;
    }
    table->rows += !failed;
    return failed ? err_no_memory("a table") : 0;
}

int text_columns(const char *text)
{
    int columns = 0;
    for (; *text; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

static void row_print(const struct table *table, char *const *cell, const int *width, FILE *file)
{
    int last = table->columns - 1, blank = 0;
    while (last > 0 && !*cell[last])
        last--;
    for (int i = 0; i <= last; i++) {
        int fill = width[i] - text_columns(cell[i]), right = table->right >> i & 1;
        fprintf(file, "%*s", blank + (right ? fill : 0), "");
        client_print_text(file, cell[i]);
        blank = 2 + (right ? 0 : fill);
    }
    fputc('\n', file);
}

void table_print(const struct table *table, FILE *file)
{
    int width[TABLE_COLUMNS] = {0};
    size_t columns = (size_t)table->columns;
    for (size_t i = 0; i < table->rows * columns; i++) {
        int wide = text_columns(table->cell[i]);
        if (wide > width[i % columns])
            width[i % columns] = wide;
    }
    for (size_t row = 0; row < table->rows; row++)
        row_print(table, table->cell + row * columns, width, file);
}

void table_clear(struct table *table)
{
    for (size_t i = 0; i < table->rows * (size_t)table->columns; i++)
        free(table->cell[i]);
    free(table->cell);
    table->cell = NULL;
    table->rows = 0;
}

const char *size_text(char text[SIZE_TEXT], int64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int unit = 0;
    for (; unit < 4 && (value >= 999.5 || value <= -999.5); unit++)
        value /= 1000;
    snprintf(text, SIZE_TEXT, unit ? "%.3g %s" : "%.0f %s", value, units[unit]);
    return text;
}
