/* libFuzzer target: the ISMRMRD header (recon/scan/scan_xml.c), the XML of HDF5 scans and MRD streams. */
#include "recon/scan/scan_build.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

enum { ENCODING_TEXT = 1024 };

static void check_encoding(const struct scan_encoding *e)
{
    for (int d = 0; d < 3; d++) {
        check(e->matrix[d] >= 1 && e->matrix[d] <= SCAN_MAX_MATRIX && e->recon_matrix[d] >= 1 &&
              e->recon_matrix[d] <= SCAN_MAX_MATRIX);
        check(isfinite(e->fov_mm[d]) && e->fov_mm[d] > 0 && isfinite(e->recon_fov_mm[d]) && e->recon_fov_mm[d] > 0);
    }
    check(e->trajectory <= SCAN_OTHER && memchr(e->trajectory_name, '\0', sizeof e->trajectory_name));
    check(text_is_clean(e->trajectory_name));
}

static int space_print(char *text, const char *name, const uint32_t matrix[3], const float fov[3])
{
    return snprintf(text, ENCODING_TEXT,
                    "<%s><matrixSize><x>%u</x><y>%u</y><z>%u</z></matrixSize><fieldOfView_mm><x>%.9g</x><y>%.9g</y>"
                    "<z>%.9g</z></fieldOfView_mm></%s>",
                    name, matrix[0], matrix[1], matrix[2], fov[0], fov[1], fov[2], name);
}

static int name_print(char *text, const char *name)
{
    int used = sprintf(text, "<trajectory>");
    for (; *name; name++)
        used += sprintf(text + used, "&#%d;", *name);
    return used + sprintf(text + used, "</trajectory>");
}

/* A header written from the values that were read must be read as the same values. Names are an exception: one that was
 * truncated after blanks loses them (and may then be a known name). */
static void check_again(const struct scan_encoding *encodings, uint32_t count)
{
    struct scan_encoding again[SCAN_MAX_ENCODINGS];
    static char text[SCAN_MAX_ENCODINGS * 2 * ENCODING_TEXT];
    uint32_t count_again = 0;
    int used = sprintf(text, "<ismrmrdHeader>");
    for (const struct scan_encoding *e = encodings; e < encodings + count; e++) {
        used += sprintf(text + used, "<encoding>");
        used += name_print(text + used, e->trajectory_name);
        used += space_print(text + used, "encodedSpace", e->matrix, e->fov_mm);
        used += space_print(text + used, "reconSpace", e->recon_matrix, e->recon_fov_mm);
        used += sprintf(text + used,
                        "<encodingLimits><kspace_encoding_step_2><center>%u</center></kspace_encoding_step_2>"
                        "</encodingLimits></encoding>",
                        e->partition_centre);
    }
    used += sprintf(text + used, "</ismrmrdHeader>");
    check(scan_xml_parse(again, &count_again, text, (size_t)used) == 0 && count == count_again);
    for (uint32_t i = 0; i < count; i++) {
        const char *name = encodings[i].trajectory_name;
        size_t kept = strlen(again[i].trajectory_name), lost = strlen(name) - kept;
        if (lost == 0)
            continue;
        check(encodings[i].trajectory == SCAN_OTHER && strspn(name + kept, " ") == lost);
        memcpy(again[i].trajectory_name, name, kept + lost);
        again[i].trajectory = SCAN_OTHER;
    }
    check(memcmp(encodings, again, count * sizeof *again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct scan_encoding encodings[SCAN_MAX_ENCODINGS];
    uint32_t count = 12345;
    if (!check_result(scan_xml_parse(encodings, &count, (const char *)data, size))) {
        check(count == 12345);
        return 0;
    }
    check(count >= 1 && count <= SCAN_MAX_ENCODINGS);
    for (uint32_t i = 0; i < count; i++)
        check_encoding(&encodings[i]);
    check_again(encodings, count);
    return 0;
}
