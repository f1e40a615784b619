/* scan_build.h: inside the decoder: writes a flat scan (recon/scan/scan.h) to a descriptor; and the readers that feed
 * it. Everything here runs in the sandboxed child (or a test); scan_open() checks the result again. */
#ifndef MRIRECON_SCAN_BUILD_H
#define MRIRECON_SCAN_BUILD_H

#include "recon/scan/scan.h"

#include <sys/uio.h>

enum { SCAN_BUILD_PIECES = 512 };

/* Pieces of memory to be written consecutively. */
struct scan_stretch {
    struct iovec piece[SCAN_BUILD_PIECES];
    int pieces;
    uint64_t at; /* offset of the first piece */
};

/* A flat scan in construction. Order of calls: begin; readouts, until all have been passed; layout; samples of each
 * readout in the same order; finish. Memory use does not depend on the scan's size. */
struct scan_builder {
    int fd;
    uint64_t cap;        /* limit of the flat scan's size */
    uint64_t file_bytes; /* of the input file: limits the expansion */
    struct scan_header header;
    struct scan_encoding encodings[SCAN_MAX_ENCODINGS];
    struct scan_stretch traj, data;
    bool in_place; /* samples stay in the file: scan_builder_amend() is called for each batch of readouts, instead of
                      scan_builder_samples() for each; set after scan_builder_begin() */
};

/* Read the ISMRMRD header (`xml` needs no NUL) and write it and the encodings to `fd` (writable, pwrite).
 * `acquisitions`: their number according to the file. Fails with ERR_HEADER_INVALID, ERR_LIMIT, ERR_NO_IMAGE_DATA,
 * ERR_IO, ERR_NO_MEMORY. */
int scan_builder_begin(struct scan_builder *builder, int fd, uint64_t cap, uint64_t file_bytes, const char *xml,
                       size_t xml_bytes, uint64_t acquisitions);

/* Check the next `count` readouts (all fields except traj and data are set), assign their offsets and write them.
 * Readouts without samples or coils are skipped and counted as ignored. Fails with ERR_MALFORMED_FILE,
 * ERR_ENCODING_INVALID, ERR_LIMIT, ERR_HOSTILE_FILE, ERR_IO. */
int scan_builder_readouts(struct scan_builder *builder, struct scan_readout *readouts, size_t count);

/* All readouts have been passed: choose the offsets of the parts that follow them. Fails with ERR_NO_IMAGE_DATA,
 * ERR_LIMIT. */
int scan_builder_layout(struct scan_builder *builder);

/* Read back readouts [first, first + count). Fails with ERR_IO. */
int scan_builder_recall(const struct scan_builder *builder, struct scan_readout *readouts, uint64_t first,
                        size_t count);

/* Write readouts [first, first + count) again, now with their offsets in the file. Fails with ERR_IO, ERR_NO_MEMORY. */
int scan_builder_amend(const struct scan_builder *builder, const struct scan_readout *readouts, uint64_t first,
                       size_t count);

/* Append the samples of the next readout. The memory must not change until scan_builder_flush(). Fails with ERR_IO,
 * ERR_NO_MEMORY. */
int scan_builder_samples(struct scan_builder *builder, const struct scan_readout *readout, const void *traj,
                         const void *data);
int scan_builder_flush(struct scan_builder *builder);

/* Write `count` values of the coil maps, from index `first`. Fails as scan_builder_samples(). */
int scan_builder_maps(struct scan_builder *builder, uint64_t first, const struct c32 *maps, size_t count);

/* The same for the field map; write all sampling times. */
int scan_builder_field(struct scan_builder *builder, uint64_t first, const float *field, size_t count);
int scan_builder_times(struct scan_builder *builder, const float *times);

/* Write the header: the scan is complete. */
int scan_builder_finish(struct scan_builder *builder);

/* A scan that arrives, so that the number of its acquisitions is unknown. Order of calls: open; for each acquisition
 * arrive, put (its trajectory), align, put (its samples), align; close with all readouts. Trajectories and samples
 * alternate, so traj_at equals data_at. Fail as the functions above. */
int scan_builder_open(struct scan_builder *builder, int fd, uint64_t cap, const char *xml, size_t xml_bytes);
/* Check the next readout, assign its offsets, and write its head. */
int scan_builder_arrive(struct scan_builder *builder, struct scan_readout *readout);
int scan_builder_put(struct scan_builder *builder, const void *bytes, size_t count);
int scan_builder_align(struct scan_builder *builder);
/* Update the header of the arriving scan (recon/scan/scan_live.h): the first `readouts` are complete, and end at `end`
 * (builder->data.at after the last one); `all`: no more will come. */
int scan_builder_tell(const struct scan_builder *builder, uint64_t readouts, uint64_t end, bool all);
int scan_builder_close(struct scan_builder *builder, const struct scan_readout *readouts, size_t count);

/* Parse an ISMRMRD header. Nothing is fetched, no entity is expanded. Fails with ERR_HEADER_INVALID (the sentence names
 * the element), ERR_LIMIT. */
int scan_xml_parse(struct scan_encoding encodings[SCAN_MAX_ENCODINGS], uint32_t *count, const char *xml, size_t bytes);

/* One-time initialisation of libhdf5, and of libxml2, which opens files: call it before entering the sandbox. Fails
 * with ERR_INTERNAL. */
int scan_readers_init(void);

/* Decode a built-in scan of one sample, so that the libraries' code and memory are already loaded when an upload
 * arrives: this saves half of the time of a small upload. Fails with ERR_INTERNAL, ERR_NO_MEMORY, and as
 * scan_hdf5_decode(). */
int scan_hdf5_warm_up(void);

/* Decode a whole file in memory into `fd`. `wanted`: see scan_decode(). Fails with the codes of "the file",
 * ERR_BAD_PARAMETER. */
int scan_hdf5_decode(int fd, uint64_t cap, const void *file, size_t bytes, const struct scan_wanted *wanted);
/* The same of a file that is still being written, and whose first H5_LENGTH_HEAD bytes are there: waits for each part
 * until it is, and for the whole, without limit. `done`: see codec_formats.h. Also fails with ERR_UNKNOWN_FORMAT if
 * they do not tell its length. */
int scan_hdf5_follow(int fd, uint64_t cap, int file, const struct scan_wanted *wanted, void (*done)(void));
int scan_stream_decode(int fd, uint64_t cap, const void *file, size_t bytes);
/* Decode a stream that is still being written to `file`, up to its end (CLOSE), for which it waits without limit (the
 * parent may kill this process). The result equals that of scan_stream_decode(). Also fails with ERR_LIMIT if there are
 * too many acquisitions to keep their heads in memory. */
int scan_stream_follow(int fd, uint64_t cap, int file, void (*done)(void));
int scan_npz_decode(int fd, uint64_t cap, const void *file, size_t bytes, const struct scan_wanted *wanted);

#endif
