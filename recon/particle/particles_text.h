/* particles_text.h: inside the decoder: lines of a text, and the fields in them. */
#ifndef MRIRECON_PARTICLES_TEXT_H
#define MRIRECON_PARTICLES_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_LINE = 1024, TEXT_FIELDS = 64 };

/* A text in memory, line by line. */
struct text {
    const char *at, *end;
    uint64_t line;           /* number of the current line, from 1 */
    char now[TEXT_LINE + 1]; /* the current line, without trailing blanks and line end; points into the text */
    size_t length;
    char *field[TEXT_FIELDS]; /* after text_split(): NUL-terminated parts of `now` */
    int fields;
};

/* The length of the byte order mark of UTF-8 that editors and spreadsheets put before a text; 0: none. */
size_t text_mark(const void *bytes, size_t length);
void text_begin(struct text *text, const void *bytes, size_t length);
/* Go to the next line; returns 1, or 0 at the end. Fails with ERR_MALFORMED_FILE (a line too long, or bytes that are
 * not text). */
int text_next(struct text *text);
/* Split the line at blanks or, if `separator` is not a blank, at separators. Fails with ERR_MALFORMED_FILE (too many).
 */
int text_split(struct text *text, char separator);
/* An upper bound of the number of lines. */
uint64_t text_lines(const void *bytes, size_t length);

/* Parse a finite decimal number that fills `field`. */
bool text_number(const char *field, double *value);
/* Parse a number of the current line. A failure states line, column and what was expected: "Line 12, column 9 (charge):
 * \"abc\" is not a finite number." `column`: from 1. */
int text_field_number(const struct text *text, int column, const char *name, double *value);
/* The same for a whole number from 0 to 2^64 - 1, which is not rounded; `column` is one that the line has. */
int text_field_whole(const struct text *text, int column, const char *name, uint64_t *value);

#endif
