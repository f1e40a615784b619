/* Output of mrirecon: answers on stdout, everything else on stderr. */
#include "clients/client.h"
#include "recon/recon.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int client_failed(void)
{
    const struct err *failure = err_last();
    /* Our own cancellation (Ctrl-C), not the server's "canceled", which is only found in job documents. */
    if (failure->code == ERR_CANCELED) {
        fprintf(stderr, "mrirecon: interrupted\n");
        return CLIENT_INTERRUPTED;
    }
    fprintf(stderr, "mrirecon: %s [%s]\n", failure->text, err_name(failure->code));
    return CLIENT_FAILED;
}

int client_usage(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "mrirecon: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\nmrirecon --help shows how it is used.\n");
    va_end(values);
    return CLIENT_USAGE;
}

void client_print_json(const json_t *object)
{
    char *text = json_dumps(object, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (text)
        puts(text);
    free(text);
}

const char *client_text(const json_t *object, const char *member)
{
    const char *text = json_string_value(json_object_get(object, member));
    return text ? text : "";
}

void client_print_text(FILE *file, const char *text)
{
    for (; *text; text++)
        fputc((unsigned char)*text < 0x20 || *text == 0x7f ? ' ' : *text, file);
}

void client_print_wrapped(const char *text, int indent)
{
    size_t length;
    for (; *text; text += length + strspn(text + length, " ")) {
        length = text_line(text, (size_t)(HELP_COLUMNS - indent));
        printf("%.*s\n", (int)length, text);
        if (text[length])
            printf("%*s", indent, "");
    }
}
