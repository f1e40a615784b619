#include "recon/scan/mrd_readout.h"

#include "gridding/base/err.h"

int mrd_number_unknown(unsigned number, uint64_t at)
{
    return err_set(ERR_MALFORMED_FILE,
                   "The MRD stream has a message of unknown number %u at byte %llu. The rest cannot be read: the "
                   "stream is damaged, or not an MRD version 1 stream.",
                   number, (unsigned long long)at);
}

void mrd_readout_fill(struct scan_readout *r, const uint8_t *head, uint32_t acquisition)
{
    *r = (struct scan_readout){
        .flags = mrd_u64(head + 2),
        .acquisition = acquisition,
        .measurement_uid = mrd_u32(head + 10),
        .scan_counter = mrd_u32(head + 14),
        .time_stamp = mrd_u32(head + 18),
        .samples = mrd_u16(head + 34),
        .coils = mrd_u16(head + 38),
        .discard_pre = mrd_u16(head + 168),
        .discard_post = mrd_u16(head + 170),
        .center_sample = mrd_u16(head + 172),
        .encoding = mrd_u16(head + 174),
        .traj_dims = mrd_u16(head + 176),
    };
    memcpy(&r->sample_time_us, head + 178, sizeof r->sample_time_us);
    memcpy(r->position, head + 182, sizeof r->position);
    memcpy(r->read_dir, head + 194, sizeof r->read_dir);
    memcpy(r->phase_dir, head + 206, sizeof r->phase_dir);
    memcpy(r->slice_dir, head + 218, sizeof r->slice_dir);
    memcpy(r->table_position, head + 230, sizeof r->table_position);
    memcpy(r->idx, head + 242, sizeof r->idx);
}
