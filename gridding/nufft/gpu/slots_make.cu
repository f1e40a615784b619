/* The workspace of sums in slots: as many rows of bins at a time as fit. */
#include "gridding/nufft/gpu/nufft_gpu.cuh"

#include <algorithm>
#include <cstdlib>

/* Slots and parts of the largest chunk of `chunk` rows. */
static void measure_chunks(const struct nufft_gpu *plan, int chunk, struct nufft_slots *p)
{
    int count = plan->bins.geometry.axis[1].bins;
    p->chunk = chunk;
    p->slots = p->parts = 0;
    for (int from = 0; from < count; from += chunk) {
        struct slot_rows rows = slot_rows_of(plan->bins.rows, count, from, std::min(count, from + chunk));
        p->slots = std::max(p->slots, rows.slots);
        p->parts = std::max(p->parts, rows.parts[0] + rows.parts[1]);
    }
}

static size_t workspace_bytes(const struct nufft_gpu *plan, const struct nufft_slots *p)
{
    size_t slots = (size_t)p->slots + 2 * (size_t)p->parts;
    size_t adjoint = (nufft_gpu_pruned_cells(plan) + slots * nufft_gpu_slot_cells(p)) * p->together;
    return std::max(adjoint, plan->cells) * sizeof(struct c32);
}

/* The tables of y and z cells, consecutive. */
static int upload_cells(struct nufft_gpu *plan)
{
    const struct range_geometry *g = &plan->bins.geometry;
    size_t count = (size_t)g->axis[1].cells + g->axis[2].cells, i = 0;
    struct slot_cell *host = (struct slot_cell *)malloc(count * sizeof *host);
    if (!host)
        return err_no_memory("the tables of cells");
    for (int d = 1; d < 3; d++)
        for (int cell = 0; cell < g->axis[d].cells; cell++)
            host[i++] = slot_cell_of(g->axis[d], g->width - 1, cell);
    int rc = gpu_array(plan->gpu, count, &plan->slots.cells, "The tables of cells");
    if (!rc)
        rc = gpu_upload(plan->gpu, plan->slots.cells, host, count * sizeof *host);
    plan->bytes += rc ? 0 : count * sizeof *host;
    free(host);
    return rc;
}

int nufft_gpu_slots_make(struct nufft_gpu *plan, const int cells[3], int together)
{
    struct nufft_slots *p = &plan->slots;
    size_t available, total, limit, bytes = 0;
    int rows = plan->bins.geometry.axis[1].bins, rc = gpu_available(plan->gpu, &available, &total);
    if (rc)
        return rc;
    /* The caller's images and samples need memory, too. */
    limit = std::min(nufft_gpu_workspace_most(plan), available / 2);
    p->columns = cells[0];
    p->rows = cells[1];
    p->planes = cells[2];
    /* The fewest chunks that fit; more than eight would cost more than joint sums of transforms save. */
    for (p->together = plan->overflow ? 1 : std::min(together, plan->shape.batch); p->together > 0; p->together--) {
        int chunks = 1, most = p->together > 1 ? 8 : rows;
        do {
            measure_chunks(plan, (rows + chunks - 1) / chunks, p);
            bytes = workspace_bytes(plan, p);
        } while (bytes > limit && ++chunks <= most);
        if (bytes <= limit || p->together == 1)
            break;
    }
    if (bytes > available)
        return nufft_gpu_no_room(plan, bytes, available);
    plan->bytes += bytes;
    rc = gpu_alloc(plan->gpu, bytes, (void **)&plan->grid, "The workspace");
    if (rc)
        return rc;
    plan->group = 1;
    plan->together = p->together;
    plan->gridless = true;
    p->pruned = plan->grid;
    p->slot = p->pruned + nufft_gpu_pruned_cells(plan) * p->together;
    p->partial = p->slot + (size_t)p->slots * nufft_gpu_slot_cells(p) * p->together;
    return upload_cells(plan);
}
