#include "recon/mesh/mesh_leaf.h"

#include "recon/result_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void sink_write(struct mesh_sink *sink, const char *bytes, size_t count)
{
    if (sink->rc == 0)
        sink->rc = result_put(sink->fd, bytes, count, "The mesh");
}

int mesh_sink_end(struct mesh_sink *sink)
{
    sink_write(sink, sink->bytes, sink->used);
    sink->used = 0;
    return sink->rc;
}

void mesh_put(struct mesh_sink *sink, const void *bytes, size_t count)
{
    if (sink->used + count > sizeof sink->bytes)
        mesh_sink_end(sink);
    if (count > sizeof sink->bytes) {
        sink_write(sink, bytes, count);
        return;
    }
    memcpy(sink->bytes + sink->used, bytes, count);
    sink->used += count;
}

void mesh_print(struct mesh_sink *sink, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mesh_put(sink, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}
