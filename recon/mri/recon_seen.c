#include "recon/mri/recon_seen.h"

#include "gridding/base/err.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 1024 };

int recon_seen_grow(struct recon_seen *seen, size_t count)
{
    size_t room = seen->count ? seen->count : FIRST;
    if (count <= seen->count)
        return 0;
    while (room < count)
        room *= 2;
    struct seen_readout *grown = realloc(seen->readout, room * sizeof *grown);
    if (!grown)
        return err_no_memory("the trajectories of %zu readouts", count);
    memset(grown + seen->count, 0, (room - seen->count) * sizeof *grown);
    seen->readout = grown;
    seen->count = room;
    return 0;
}

void recon_seen_free(struct recon_seen *seen)
{
    free(seen->readout);
    frames_grown_free(seen->grown);
    *seen = (struct recon_seen){.readout = NULL};
}
