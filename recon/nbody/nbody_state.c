#include "recon/nbody/nbody_state.h"

#include <stdlib.h>
#include <string.h>

/* A state of another version is ignored: the continued motion might differ in its bits. */
static const char tag[] = "nbody 1, mrirecond " MRIRECON_VERSION;

enum { PARTS = 6 };

struct head {
    uint64_t count, records;
    int64_t step;
    double dt, time;
};

/* The parts of a state, in this order after the head. */
static void parts_of(const struct nbody_outcome *o, size_t records, struct checkpoint_part part[PARTS])
{
    const struct nbody_bodies *b = &o->bodies;
    part[0] = (struct checkpoint_part){NULL, sizeof(struct head)};
    part[1] = (struct checkpoint_part){b->at, b->count * sizeof *b->at};
    part[2] = (struct checkpoint_part){b->velocity, b->count * sizeof *b->velocity};
    part[3] = (struct checkpoint_part){b->acceleration, b->count * sizeof *b->acceleration};
    part[4] = (struct checkpoint_part){b->potential, b->count * sizeof *b->potential};
    part[5] = (struct checkpoint_part){o->records, records * sizeof *o->records};
}

static size_t bytes_of(const struct nbody_outcome *o, size_t records)
{
    struct checkpoint_part part[PARTS];
    size_t bytes = 0;
    parts_of(o, records, part);
    for (int i = 0; i < PARTS; i++)
        bytes += part[i].count;
    return bytes;
}

size_t nbody_state_bytes(const struct nbody_outcome *o)
{
    return bytes_of(o, o->record_room);
}

int nbody_state_save(const struct checkpoint *checkpoint, const struct nbody_outcome *o, const struct nbody_plan *plan,
                     int64_t step)
{
    const struct head head = {o->bodies.count, o->record_count, step, plan->dt, o->time};
    struct checkpoint_part part[PARTS];
    parts_of(o, o->record_count, part);
    part[0].bytes = &head;
    return checkpoint_save(checkpoint, tag, nbody_state_bytes(o), part, PARTS);
}

int nbody_state_load(const struct checkpoint *checkpoint, struct nbody_outcome *o, struct nbody_plan *plan,
                     int64_t *step, bool *found)
{
    struct head head;
    void *state;
    size_t bytes;
    *found = false;
    int rc = checkpoint_load(checkpoint, tag, nbody_state_bytes(o), &state, &bytes);
    if (rc != 0 || !state)
        return rc;
    if (bytes >= sizeof head)
        memcpy(&head, state, sizeof head);
    if (bytes >= sizeof head && head.count == o->bodies.count && head.records <= o->record_room &&
        head.step <= plan->steps && bytes == bytes_of(o, head.records)) {
        struct checkpoint_part part[PARTS];
        const char *at = (const char *)state + sizeof head;
        parts_of(o, head.records, part);
        for (int i = 1; i < PARTS; at += part[i++].count)
            memcpy((void *)(uintptr_t)part[i].bytes, at, part[i].count);
        o->record_count = head.records;
        o->time = head.time;
        plan->dt = head.dt;
        *step = head.step;
        *found = true;
    }
    free(state);
    return 0;
}
