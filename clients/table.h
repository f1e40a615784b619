/* table.h: rows of text in columns that are as wide as what stands in them. Of one thread. */
#ifndef MRIRECON_TABLE_H
#define MRIRECON_TABLE_H

#include <stdint.h>
#include <stdio.h>

enum { TABLE_COLUMNS = 12 };

struct table {
    int columns;
    unsigned right; /* bits of the columns that are aligned to the right */
    char **cell;    /* [rows][columns] */
    size_t rows;
};

/* Add a row of table->columns texts, which are copied. Fails with ERR_NO_MEMORY. */
int table_add(struct table *table, const char *const *cells);
/* Print all rows; the last column is not filled up, and what would be blank at a line's end is left out. */
void table_print(const struct table *table, FILE *file);
void table_clear(struct table *table);

/* The columns of a terminal that a text in UTF-8 takes: one for each character. */
int text_columns(const char *text);

enum { SIZE_TEXT = 24 };
/* "87.3 kB", "512 B". */
const char *size_text(char text[SIZE_TEXT], int64_t bytes);

#endif
