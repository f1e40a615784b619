/* Volumes as OpenDX fields, as APBS, VMD, PyMOL and ChimeraX read them: OpenDX User's Guide, appendix B; z is fastest.
 */
#include "recon/volume/volume_leaf.h"

#include "gridding/base/err.h"

#include <stdio.h>
#include <string.h>

enum { BUFFER = 1 << 16, LINE = 128 };

struct sink {
    int fd;
    size_t used;
    char bytes[BUFFER];
};

static int flush(struct sink *sink)
{
    int rc = volume_put(sink->fd, sink->bytes, sink->used);
    sink->used = 0;
    return rc;
}

static void head_print(char *text, size_t size, const struct volume *v)
{
    const double *o = v->origin, *s = v->spacing;
    snprintf(text, size,
             "# %s\n"
             "object 1 class gridpositions counts %zu %zu %zu\n"
             "origin %.9g %.9g %.9g\ndelta %.9g 0 0\ndelta 0 %.9g 0\ndelta 0 0 %.9g\n"
             "object 2 class gridconnections counts %zu %zu %zu\n"
             "object 3 class array type double rank 0 items %zu data follows\n",
             v->title, v->size[0], v->size[1], v->size[2], o[0], o[1], o[2], s[0], s[1], s[2], v->size[0], v->size[1],
             v->size[2], volume_nodes(v));
}

/* Three numbers per line. */
static int values_put(struct sink *sink, const struct volume *v)
{
    const size_t *n = v->size;
    size_t written = 0;
    int rc = 0;
    for (size_t x = 0; x < n[0] && rc == 0; x++)
        for (size_t y = 0; y < n[1] && rc == 0; y++)
            for (size_t z = 0; z < n[2] && rc == 0; z++) {
                const float value = v->data[(z * n[1] + y) * n[0] + x];
                sink->used += (size_t)snprintf(sink->bytes + sink->used, LINE, "%.8e%c", (double)value,
                                               ++written % 3 ? ' ' : '\n');
                if (sink->used > BUFFER - LINE)
                    rc = flush(sink);
            }
    if (rc == 0 && written % 3)
        sink->bytes[sink->used++] = '\n';
    return rc;
}

int volume_write_dx(const struct volume *volume, int fd)
{
    static const char end[] = "attribute \"dep\" string \"positions\"\n"
                              "object \"regular positions regular connections\" class field\n"
                              "component \"positions\" value 1\ncomponent \"connections\" value 2\n"
                              "component \"data\" value 3\n";
    struct sink sink = {.fd = fd};
    if (volume->frames > 1)
        return err_set(ERR_NOT_ACCEPTABLE,
                       "An OpenDX file holds one frame, but the result has %zu. Request npy or mrc, or frames=mean.",
                       volume->frames);
    head_print(sink.bytes, sizeof sink.bytes, volume);
    sink.used = strlen(sink.bytes);
    int rc = values_put(&sink, volume);
    if (rc == 0)
        rc = flush(&sink);
    return rc == 0 ? volume_put(fd, end, sizeof end - 1) : rc;
}
