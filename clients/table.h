/* table.h: text in columns, each as wide as its widest entry. Used by one thread. */
#ifndef MRIRECON_TABLE_H
#define MRIRECON_TABLE_H

#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS = 12 };

struct table {
    int columns;
    unsigned right; /* bits of the right-aligned columns */
    char **cell;    /* [rows][columns] */
    size_t rows;
};

/* Add a row of table->columns texts, which are copied. Fails with ERR_NO_MEMORY. */
int table_add(struct table *table, const char *const *cells);
/* Print all rows; blanks at the end of a line are left out. */
void table_print(const struct table *table, FILE *file);
void table_clear(struct table *table);

/* The width of a UTF-8 text in columns of a terminal: one per character. */
int text_columns(const char *text);

enum { SIZE_TEXT = 24 };
/* "87.3 kB", "512 B". */
const char *size_text(char text[SIZE_TEXT], int64_t bytes);

#endif
