#include "recon/scan/scan_array.h"

#include "gridding/base/err.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool scan_array_order(struct scan_array *array, bool fortran, uint64_t *items)
{
    size_t count = 1;
    bool empty = false;
    for (int i = 0; i < array->axes; i++) {
        int axis = fortran ? i : array->axes - 1 - i;
        array->step[axis] = count;
        empty = empty || array->size[axis] == 0;
        if (!size_mul(count, array->size[axis] ? array->size[axis] : 1, &count))
            return false;
    }
    *items = empty ? 0 : count;
    return true;
}

const char *scan_array_shape(const struct scan_array *array, char text[176])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < array->axes; i++)
        used += (size_t)snprintf(text + used, 176 - used, "%s%llu", i ? " x " : "", (unsigned long long)array->size[i]);
    return array->axes ? text : "a single number";
}

/* ---- .npy ---- */

/* The dictionary of an .npy file: {'descr': '<c8', 'fortran_order': False, 'shape': (8, 402, 512), } */
struct literal {
    const char *at, *end;
};

static void blanks_skip(struct literal *text)
{
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\n'))
        text->at++;
}

static bool take(struct literal *text, char wanted)
{
    blanks_skip(text);
    bool there = text->at < text->end && *text->at == wanted;
    text->at += there;
    return there;
}

static bool take_word(struct literal *text, const char *word)
{
    blanks_skip(text);
    size_t length = strlen(word);
    bool there = (size_t)(text->end - text->at) >= length && memcmp(text->at, word, length) == 0;
    text->at += there ? length : 0;
    return there;
}

/* A string of at most 15 characters without escapes. */
static bool take_string(struct literal *text, char out[16])
{
    blanks_skip(text);
    char quote = text->at < text->end ? *text->at : '\0';
    if (quote != '\'' && quote != '"')
        return false;
    const char *from = ++text->at;
    const char *to = memchr(from, quote, (size_t)(text->end - from));
    if (!to || to - from > 15 || memchr(from, '\\', (size_t)(to - from)))
        return false;
    memcpy(out, from, (size_t)(to - from));
    out[to - from] = '\0';
    text->at = to + 1;
    return true;
}

static bool take_number(struct literal *text, uint64_t *out)
{
    blanks_skip(text);
    const char *from = text->at;
    uint64_t value = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text->at - '0'), &value))
            return false;
    *out = value;
    return text->at > from;
}

static bool take_shape(struct literal *text, struct scan_array *array)
{
    array->axes = 0;
    if (!take(text, '('))
        return false;
    while (!take(text, ')')) {
        if (array->axes == SCAN_ARRAY_AXES || !take_number(text, &array->size[array->axes++]))
            return false;
        if (!take(text, ','))
            return take(text, ')');
    }
    return true;
}

/* The type's letters, e.g. "<c8". */
static int type_read(struct scan_array *array, const char *type, bool integers)
{
    static const struct {
        char letters[4];
        bool complex_valued;
        enum scan_array_number number;
        size_t real_size;
    } types[] = {
        {"c8", true, SCAN_ARRAY_FLOAT, 4},     {"c16", true, SCAN_ARRAY_FLOAT, 8},
        {"f4", false, SCAN_ARRAY_FLOAT, 4},    {"f8", false, SCAN_ARRAY_FLOAT, 8},
        {"i1", false, SCAN_ARRAY_SIGNED, 1},   {"i2", false, SCAN_ARRAY_SIGNED, 2},
        {"i4", false, SCAN_ARRAY_SIGNED, 4},   {"i8", false, SCAN_ARRAY_SIGNED, 8},
        {"u1", false, SCAN_ARRAY_UNSIGNED, 1}, {"u2", false, SCAN_ARRAY_UNSIGNED, 2},
        {"u4", false, SCAN_ARRAY_UNSIGNED, 4}, {"u8", false, SCAN_ARRAY_UNSIGNED, 8},
    };
    if (type[0] && type[1] == 'O')
        return err_set(ERR_HOSTILE_FILE,
                       "The array %s contains Python objects (pickled), which are not read. Save numbers: complex64, "
                       "complex128, float32 or float64.",
                       array->name);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const bool ordered = type[0] == '<' || type[0] == '>' || (type[0] == '|' && types[i].real_size == 1);
        if (!ordered || strcmp(type + 1, types[i].letters) != 0 || (types[i].number != SCAN_ARRAY_FLOAT && !integers))
            continue;
        array->complex_valued = types[i].complex_valued;
        array->number = types[i].number;
        array->real_size = types[i].real_size;
        array->swapped = (type[0] == '>') == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
        return 0;
    }
    return err_set(
        ERR_MALFORMED_FILE,
        "The array %s is of type \"%s\"; complex64, complex128, float32 and float64 are read (c8, c16, f4, f8)%s. "
        "Convert it with astype().",
        array->name, type, integers ? ", and integers (i1 to i8, u1 to u8)" : "");
}

static int not_npy(const char *name)
{
    return err_set(ERR_MALFORMED_FILE, "%s.npy is not an array written by numpy.save, or its header is damaged.", name);
}

/* The keys may come in any order, each once; `fortran` and the type are returned as written. */
static bool dictionary_read(struct literal text, struct scan_array *array, bool *fortran, char type[16])
{
    bool seen[3] = {false};
    char key[16];
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    if (!take(&text, '{'))
        return false;
    while (!take(&text, '}')) {
        int which = 0;
        if (!take_string(&text, key) || !take(&text, ':'))
            return false;
        while (which < 3 && strcmp(key, keys[which]) != 0)
            which++;
        if (which == 3 || seen[which])
            return false;
        seen[which] = true;
        bool taken = false;
        if (which == 0) {
            taken = take_string(&text, type);
            if (!taken && take(&text, '[')) { /* fields by name */
                memcpy(type, "[...]", sizeof "[...]");
                return true;
            }
        } else if (which == 1) {
            *fortran = take_word(&text, "True");
            taken = *fortran || take_word(&text, "False");
        } else {
            taken = take_shape(&text, array);
        }
        if (!taken || (!take(&text, ',') && !(text.at < text.end && *text.at == '}')))
            return false;
    }
    blanks_skip(&text);
    return seen[0] && seen[1] && seen[2] && text.at == text.end;
}

static int npy_read(struct scan_array *array, const char *name, const uint8_t *bytes, uint64_t length, bool integers)
{
    enum { MAGIC = 8 };
    bool fortran = false;
    char type[16] = "";
    *array = (struct scan_array){.name = name};
    if (length < MAGIC + 4 || memcmp(bytes, "\x93NUMPY", 6) != 0 || bytes[6] < 1 || bytes[6] > 3)
        return not_npy(name);
    size_t counted = bytes[6] == 1 ? 2 : 4;
    uint32_t header = 0;
    memcpy(&header, bytes + MAGIC, counted);
    header = le32toh(header);
    if (header > length - MAGIC - counted)
        return not_npy(name);
    const char *text = (const char *)bytes + MAGIC + counted;
    if (!dictionary_read((struct literal){text, text + header}, array, &fortran, type))
        return not_npy(name);
    int rc = type_read(array, type, integers);
    uint64_t items = 0, left = length - MAGIC - counted - header;
    size_t size = 0;
    if (rc != 0)
        return rc;
    if (!scan_array_order(array, fortran, &items) ||
        !size_mul(items, array->real_size * (array->complex_valued ? 2 : 1), &size) || size != left) {
        char shape[176];
        return err_set(ERR_MALFORMED_FILE, "The array %s should be %s, but has %llu bytes.", name,
                       scan_array_shape(array, shape), (unsigned long long)left);
    }
    array->items = (const uint8_t *)text + header;
    return 0;
}

int scan_array_npy(struct scan_array *array, const char *name, const uint8_t *bytes, uint64_t length)
{
    return npy_read(array, name, bytes, length, false);
}

int scan_array_npy_any(struct scan_array *array, const char *name, const uint8_t *bytes, uint64_t length)
{
    return npy_read(array, name, bytes, length, true);
}

/* ---- numbers ---- */

/* The bits of an integer, extended to 64 by its sign. */
static uint64_t integer_read(const struct scan_array *array, const uint8_t *from)
{
    const unsigned unused = 64 - 8 * (unsigned)array->real_size;
    const bool big_endian = array->swapped == (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    uint64_t bits = 0;
    memcpy(&bits, from, array->real_size);
    bits = big_endian ? be64toh(bits) >> unused : le64toh(bits);
    return array->number == SCAN_ARRAY_SIGNED ? (uint64_t)((int64_t)(bits << unused) >> unused) : bits;
}

static double real_read(const struct scan_array *array, const uint8_t *from)
{
    uint32_t word;
    uint64_t long_word;
    float value;
    double long_value;
    if (array->number != SCAN_ARRAY_FLOAT) {
        long_word = integer_read(array, from);
        return array->number == SCAN_ARRAY_SIGNED ? (double)(int64_t)long_word : (double)long_word;
    }
    if (array->real_size == sizeof value) {
        memcpy(&word, from, sizeof word);
        word = array->swapped ? __builtin_bswap32(word) : word;
        memcpy(&value, &word, sizeof value);
        return (double)value;
    }
    memcpy(&long_word, from, sizeof long_word);
    long_word = array->swapped ? __builtin_bswap64(long_word) : long_word;
    memcpy(&long_value, &long_word, sizeof long_value);
    return long_value;
}

/* The item's address; *step: how many bytes later the next item along `axis` is. */
static const uint8_t *item_at(const struct scan_array *array, const uint64_t *at, int axis, size_t *step)
{
    size_t item = array->real_size * (array->complex_valued ? 2 : 1);
    uint64_t index = 0;
    for (int i = 0; i < array->axes; i++)
        index += at[i] * array->step[i];
    *step = array->step[axis] * item;
    return array->items + index * item;
}

void scan_array_reals(const struct scan_array *array, const uint64_t *at, int axis, uint64_t count, float *to,
                      size_t stride)
{
    size_t step;
    const uint8_t *from = item_at(array, at, axis, &step);
    for (uint64_t i = 0; i < count; i++)
        to[i * stride] = (float)real_read(array, from + i * step);
}

void scan_array_doubles(const struct scan_array *array, const uint64_t *at, int axis, uint64_t count, double *to)
{
    size_t step;
    const uint8_t *from = item_at(array, at, axis, &step);
    for (uint64_t i = 0; i < count; i++)
        to[i] = real_read(array, from + i * step);
}

bool scan_array_whole(const struct scan_array *array, const uint64_t *at, uint64_t *value)
{
    size_t step;
    const uint8_t *from = item_at(array, at, 0, &step);
    if (array->number == SCAN_ARRAY_FLOAT) {
        const double real = real_read(array, from);
        const bool whole = real >= 0 && real < 0x1p64 && real == floor(real);
        *value = whole ? (uint64_t)real : 0;
        return whole;
    }
    *value = integer_read(array, from);
    return array->number == SCAN_ARRAY_UNSIGNED || *value <= INT64_MAX;
}

int scan_array_complexes(const struct scan_array *array, const uint64_t *at, int axis, uint64_t count, struct c32 *to)
{
    size_t step;
    const uint8_t *from = item_at(array, at, axis, &step);
    if (!array->swapped && array->real_size == sizeof(float) && step == sizeof *to) {
        memcpy(to, from, count * sizeof *to);
        return 0;
    }
    bool fits = true;
    for (uint64_t i = 0; i < count; i++, from += step) {
        const double re = real_read(array, from), im = real_read(array, from + array->real_size);
        to[i] = (struct c32){(float)re, (float)im};
        fits = fits && isinf(to[i].re) == isinf(re) && isinf(to[i].im) == isinf(im);
    }
    return fits ? 0
                : err_set(ERR_DATA_NONFINITE,
                          "The array %s has numbers of complex128 that overflow single precision, in which scans are "
                          "kept: they exceed 3.4e38. Divide it by a constant.",
                          array->name);
}
