#include "recon/h5/h5_length.h"

#include <string.h>

uint64_t h5_length(const uint8_t *image, size_t bytes)
{
    static const uint8_t magic[] = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    for (size_t at = 0; bytes >= H5_LENGTH_HEAD && at <= bytes - H5_LENGTH_HEAD; at = at ? 2 * at : 512) {
        const uint8_t *p = image + at;
        if (memcmp(p, magic, sizeof magic) != 0)
            continue;
        unsigned version = p[8], offset_bytes = version < 2 ? p[13] : p[9];
        static const unsigned end_at[] = {40, 44, 28, 28};
        uint64_t end;
        if (version > 3 || offset_bytes != sizeof end)
            return 0;
        memcpy(&end, p + end_at[version], sizeof end);
        return end;
    }
    return 0;
}
