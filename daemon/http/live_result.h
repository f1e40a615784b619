/* live_result.h: how the images that were sent early (daemon/queue/live.h) continue in the job's result, an MRD stream.
 */
#ifndef MRIRECON_DAEMON_LIVE_RESULT_H
#define MRIRECON_DAEMON_LIVE_RESULT_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the file, of `end` bytes, has a whole image at `at`: *next: where the image after it begins. */
bool live_image_next(int file, int64_t at, int64_t end, int64_t *next);

/* The offset in the file `result`, of `bytes`, after the first `sent` bytes of images, which must be those of the file
 * `live` (-1: none were sent). Fails with ERR_INTERNAL if they differ, which the sentence explains for job `id`. */
int live_result_check(int live, int64_t sent, int result, int64_t bytes, const char *id, int64_t *at);

#endif
