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
    uint64_t line;           /* number of the current one, from 1 */
    char now[TEXT_LINE + 1]; /* the current line, without its end and blanks before that; its bytes are the text's */
    size_t length;
    char *field[TEXT_FIELDS]; /* after text_split(): NUL-terminated parts of `now` */
    int fields;
};

void text_begin(struct text *text, const void *bytes, size_t length);
/* The next line; 1: there is one, 0: there is none. Fails with ERR_MALFORMED_FILE (too long, or bytes that are no
 * text). */
int text_next(struct text *text);
/* Part the line at blanks, or, where `separator` is not a blank, at these. Fails with ERR_MALFORMED_FILE (too many). */
int text_split(struct text *text, char separator);
/* Lines that there may be in all. */
uint64_t text_lines(const void *bytes, size_t length);

/* A finite number in decimal notation, alone in `field`. */
bool text_number(const char *field, double *value);
/* A number of the current line, or a failure that tells line, column and what was expected: "Line 12, column 9
 * (charge): \"abc\" is no finite number." `column`: from 1. */
int text_field_number(const struct text *text, int column, const char *name, double *value);

#endif
