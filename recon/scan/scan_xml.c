/* Reads the part of an ISMRMRD header that a reconstruction needs: the encodings. Elements are found by their local
 * name, so that a prefixed root and a missing namespace are accepted; numbers are parsed strictly, because libismrmrd's
 * own parser takes "abc" for 0. */
#include "recon/scan/scan_build.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <libxml/parser.h>
#include <libxml/tree.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_LENGTH = 64 };

/* The current place in the header, for messages. */
struct place {
    unsigned encoding; /* from 0 */
    const char *space, *group;
};

static const char *element_text(const xmlNode *node, char text[NUMBER_LENGTH])
{
    xmlChar *content = xmlNodeGetContent(node);
    const char *from = content ? (const char *)content : "";
    from += strspn(from, " \t\r\n");
    size_t length = strlen(from);
    while (length && strchr(" \t\r\n", from[length - 1]))
        length--;
    if (length >= NUMBER_LENGTH)
        length = NUMBER_LENGTH - 1;
    memcpy(text, from, length);
    text[length] = '\0';
    xmlFree(content);
    return text;
}

static bool is(const xmlNode *node, const char *name)
{
    return node->type == XML_ELEMENT_NODE && strcmp((const char *)node->name, name) == 0;
}

static const xmlNode *child_of(const xmlNode *parent, const char *name)
{
    const xmlNode *node = parent->children;
    while (node && !is(node, name))
        node = node->next;
    return node;
}

static int missing(const struct place *at, const char *name)
{
    return err_set(ERR_HEADER_INVALID, "The ISMRMRD header's encoding %u lacks the element %s%s%s%s%s.", at->encoding,
                   at->space ? at->space : "", at->space ? "/" : "", at->group ? at->group : "", at->group ? "/" : "",
                   name);
}

static const char *const axes[] = {"x", "y", "z"};

/* The value of an axis of a matrix or a field of view. */
static int axis_text(const xmlNode *parent, const struct place *at, int d, char text[NUMBER_LENGTH])
{
    const xmlNode *node = child_of(parent, axes[d]);
    if (!node)
        return missing(at, axes[d]);
    element_text(node, text);
    return 0;
}

static int axis_wrong(const struct place *at, int d, const char *text, const char *expected)
{
    return err_set(ERR_HEADER_INVALID, "In the ISMRMRD header's encoding %u, %s/%s/%s is \"%s\"; %s is expected.",
                   at->encoding, at->space, at->group, axes[d], text, expected);
}

static int matrix_read(uint32_t out[3], const xmlNode *parent, const struct place *at)
{
    for (int d = 0; d < 3; d++) {
        char text[NUMBER_LENGTH], *end, expected[64];
        int rc = axis_text(parent, at, d, text);
        if (rc)
            return rc;
        errno = 0;
        long value = strtol(text, &end, 10);
        if (end == text || *end || errno || value < 1 || value > SCAN_MAX_MATRIX) {
            snprintf(expected, sizeof expected, "a whole number from 1 to %d", SCAN_MAX_MATRIX);
            return axis_wrong(at, d, text, expected);
        }
        out[d] = (uint32_t)value;
    }
    return 0;
}

static int fov_read(float out[3], const xmlNode *parent, const struct place *at)
{
    for (int d = 0; d < 3; d++) {
        char text[NUMBER_LENGTH], *end;
        int rc = axis_text(parent, at, d, text);
        if (rc)
            return rc;
        float value = strtof(text, &end);
        if (end == text || *end || !isfinite(value) || !(value > 0))
            return axis_wrong(at, d, text, "a length in millimetres above 0");
        out[d] = value;
    }
    return 0;
}

static int space_read(uint32_t matrix[3], float fov[3], const xmlNode *encoding, struct place at)
{
    const xmlNode *space = child_of(encoding, at.space);
    if (!space) {
        const char *name = at.space;
        at.space = NULL;
        return missing(&at, name);
    }
    const xmlNode *size = child_of(space, "matrixSize"), *view = child_of(space, "fieldOfView_mm");
    if (!size || !view)
        return missing(&at, size ? "fieldOfView_mm" : "matrixSize");
    at.group = "matrixSize";
    int rc = matrix_read(matrix, size, &at);
    at.group = "fieldOfView_mm";
    return rc == 0 ? fov_read(fov, view, &at) : rc;
}

static int trajectory_read(struct scan_encoding *e, const xmlNode *encoding, const struct place *at)
{
    static const char *const names[] = {"cartesian", "epi", "radial", "goldenangle", "spiral"};
    const xmlNode *node = child_of(encoding, "trajectory");
    if (!node)
        return missing(at, "trajectory");
    char text[NUMBER_LENGTH];
    element_text(node, text);
    e->trajectory = SCAN_OTHER;
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            e->trajectory = i;
    for (size_t i = 0; i < sizeof e->trajectory_name - 1 && text[i]; i++)
        e->trajectory_name[i] = text[i];
    for (char *c = e->trajectory_name; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return 0;
}

/* The number `what` of the limits of `counter`; -1: many writers leave the limits empty, or write text that is no
 * number. */
static long limit_read(const xmlNode *encoding, const char *counter, const char *what)
{
    const char *const path[] = {"encodingLimits", counter, what};
    const xmlNode *node = encoding;
    for (size_t i = 0; i < sizeof path / sizeof *path && node; i++)
        node = child_of(node, path[i]);
    char text[NUMBER_LENGTH], *end = text;
    long value = node ? strtol(element_text(node, text), &end, 10) : -1;
    bool told = node && end > text && !*end && value >= 0 && value <= UINT16_MAX;
    return told ? value : -1;
}

/* The number of values of all these counters together, at most UINT32_MAX; most[i]: the maximum of each (NULL: not
 * wanted). */
static uint32_t values_count(const xmlNode *encoding, const char *const *counters, size_t count, uint16_t *most)
{
    uint64_t values = 1;
    for (size_t i = 0; i < count; i++) {
        const long last = limit_read(encoding, counters[i], "maximum");
        values *= last > 0 ? (uint64_t)last + 1 : 1;
        values = values < UINT32_MAX ? values : UINT32_MAX;
        if (most)
            most[i] = (uint16_t)(last > 0 ? last : 0);
    }
    return (uint32_t)values;
}

/* The partition at kz = 0, by default the middle; the images of a repetition; the readouts of an image. */
static void limits_read(struct scan_encoding *e, const xmlNode *encoding)
{
    static const char *const places[] = {"phase", "contrast", "set", "slice"};
    static const char *const views[] = {"kspace_encoding_step_1", "kspace_encoding_step_2", "average", "segment"};
    const long centre = limit_read(encoding, "kspace_encoding_step_2", "center");
    e->partition_centre = (uint16_t)(centre >= 0 ? centre : e->matrix[2] / 2);
    e->images = values_count(encoding, places, SCAN_PLACES, e->most);
    e->views = values_count(encoding, views, sizeof views / sizeof *views, NULL);
}

static int encodings_read(struct scan_encoding *encodings, uint32_t *count, const xmlNode *root)
{
    if (!root || !is(root, "ismrmrdHeader"))
        return err_set(
            ERR_HEADER_INVALID,
            "The file's XML is not an ISMRMRD header: its root element is \"%.64s\", and \"ismrmrdHeader\" is "
            "expected.",
            root ? (const char *)root->name : "");
    uint32_t found = 0;
    for (const xmlNode *node = root->children; node; node = node->next) {
        if (!is(node, "encoding"))
            continue;
        if (found == SCAN_MAX_ENCODINGS)
            return err_set(ERR_LIMIT, "The ISMRMRD header has more than %d encodings.", SCAN_MAX_ENCODINGS);
        struct scan_encoding *e = &encodings[found];
        *e = (struct scan_encoding){0};
        struct place at = {.encoding = found};
        int rc = trajectory_read(e, node, &at);
        at.space = "encodedSpace";
        if (rc == 0)
            rc = space_read(e->matrix, e->fov_mm, node, at);
        at.space = "reconSpace";
        if (rc == 0)
            rc = space_read(e->recon_matrix, e->recon_fov_mm, node, at);
        if (rc != 0)
            return rc;
        limits_read(e, node);
        found++;
    }
    if (found == 0)
        return err_set(ERR_HEADER_INVALID, "The ISMRMRD header has no encoding element, which gives the matrix and the "
                                           "field of view: it is required.");
    *count = found;
    return 0;
}

/* A document type could define entities; no ISMRMRD header has one. */
static void doctype_refuse(void *context, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    (void)name;
    (void)external;
    (void)system;
    xmlParserCtxt *parser = context;
    parser->_private = parser;
    xmlStopParser(parser);
}

/* The parser's message may quote the document, and with it a patient's name: only names of elements are passed on. */
static int xml_malformed(const xmlError *error)
{
    bool quotes =
        error && error->str1 && error->code != XML_ERR_TAG_NAME_MISMATCH && error->code != XML_ERR_TAG_NOT_FINISHED;
    int length = error && error->message && !quotes ? (int)strcspn(error->message, "\n") : 0;
    return err_set(ERR_HEADER_INVALID, "The file's ISMRMRD header is not well-formed XML: line %d%s%.*s.",
                   error ? error->line : 0, length ? ": " : "", length > 200 ? 200 : length,
                   length ? error->message : "");
}

/* libxml2 compares each attribute of an element with those before it: 60,000 attributes take it ten seconds. The length
 * of a tag is therefore limited; text between tags and comments is not. */
static int tags_check(const char *xml, size_t bytes)
{
    enum { TAG_BYTES = 16 << 10 };
    static const struct {
        const char *begin, *end;
    } skipped[] = {{"<!--", "-->"}, {"<![CDATA[", "]]>"}};
    const char *end = xml + bytes;
    for (const char *at = xml; (at = memchr(at, '<', (size_t)(end - at))); at++) {
        const char *after = NULL;
        bool skip = false;
        for (size_t i = 0; i < 2 && !skip; i++) {
            size_t length = strlen(skipped[i].begin);
            skip = (size_t)(end - at) > length && memcmp(at, skipped[i].begin, length) == 0;
            if (skip)
                after = memmem(at, (size_t)(end - at), skipped[i].end, strlen(skipped[i].end));
        }
        if (skip && !after)
            return 0; /* not well-formed XML: the parser reports that */
        if (skip) {
            at = after;
            continue;
        }
        const char *tag = at;
        for (char quote = '\0'; at < end && (quote || *at != '>'); at++)
            quote = quote ? (*at == quote ? '\0' : quote) : *at == '"' || *at == '\'' ? *at : '\0';
        if (at - tag > TAG_BYTES)
            return err_set(ERR_HEADER_INVALID,
                           "The file's ISMRMRD header has a tag of more than %d bytes; no element of such a header has "
                           "that many attributes.",
                           TAG_BYTES);
        if (at == end)
            return 0;
    }
    return 0;
}

int scan_xml_parse(struct scan_encoding encodings[SCAN_MAX_ENCODINGS], uint32_t *count, const char *xml, size_t bytes)
{
    if (bytes == 0)
        return err_set(ERR_HEADER_INVALID, "The file's ISMRMRD header (xml) is empty.");
    if (bytes > SCAN_MAX_XML)
        return err_set(ERR_LIMIT, "The file's ISMRMRD header has %zu bytes; at most %d are read.", bytes, SCAN_MAX_XML);
    if (memchr(xml, '\0', bytes))
        return err_set(ERR_HEADER_INVALID, "The file's ISMRMRD header (xml) has a NUL byte inside.");
    int rc = tags_check(xml, bytes);
    if (rc != 0)
        return rc;
    xmlParserCtxt *parser = xmlNewParserCtxt();
    if (!parser)
        return err_no_memory("reading the ISMRMRD header");
    parser->sax->internalSubset = doctype_refuse;
    xmlDoc *doc = xmlCtxtReadMemory(parser, xml, (int)bytes, NULL, NULL,
                                    XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING | XML_PARSE_COMPACT);
    if (parser->_private) {
        rc = err_set(ERR_HEADER_INVALID, "The file's ISMRMRD header has a DOCTYPE, which is not allowed.");
    } else if (!doc) {
        rc = xml_malformed(xmlCtxtGetLastError(parser));
    } else {
        rc = encodings_read(encodings, count, xmlDocGetRootElement(doc));
    }
    xmlFreeDoc(doc);
    xmlFreeParserCtxt(parser);
    return rc;
}
