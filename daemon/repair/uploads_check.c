/* Resumable uploads in --check-state and --repair-state. */
#include "daemon/repair/store_check.h"
#include "daemon/spool/uploads_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *what, *done;
} faults[UPLOAD_FAULTS] = {
    [UPLOAD_NO_BYTES] = {"its metadata exist, but its bytes do not", "removed; its sender has to create a new one"},
    [UPLOAD_BAD_NOTE] = {"its metadata are damaged", "its files were moved to found-"},
    [UPLOAD_TOO_LONG] = {"it has more bytes than announced", "its files were moved to found-"},
    [UPLOAD_BAD_CHUNK] = {"bytes that had arrived are missing", "continues after the bytes that exist"},
};

static const char *const endings[] = {"", ".json", ".chunk"};

/* State of one check, or (if `time` is not 0) repair. */
struct uploads_survey {
    const struct spool *spool;
    int folder;
    struct stat state; /* of the state folder: everything should belong to it */
    int64_t time;      /* of found-TIME/ */
    FILE *out;
    int sound, leftover, bad;
};

/* Whether `name` belongs to the state folder's owner, and no other user has access. */
static bool is_own(const struct uploads_survey *survey, int folder, const char *name)
{
    struct stat there;
    return disk_look(folder, name, &there) != DISK_THERE ||
           (there.st_uid == survey->state.st_uid && (there.st_mode & 077) == 0 && (there.st_mode & 0600) == 0600);
}

/* Root may run this, and follows no link that the service's account has made there. */
static bool own(const struct uploads_survey *survey, int folder, const char *name, mode_t mode)
{
    return fchownat(folder, name, survey->state.st_uid, survey->state.st_gid, AT_SYMLINK_NOFOLLOW) == 0 &&
           fchmodat(folder, name, mode, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Check, and repair, owner and mode of `name`, which is a `what`. */
static void own_look(struct uploads_survey *survey, int folder, const char *name, const char *what, mode_t mode)
{
    if (is_own(survey, folder, name))
        return;
    bool done = survey->time && own(survey, folder, name, mode);
    survey->bad += !done;
    fprintf(survey->out, "%s %s: %s\n", what, name,
            done           ? "owner and mode were corrected"
            : survey->time ? "owner and mode cannot be corrected; run this as root"
                           : "its owner is not that of the state folder, or other users have access to it");
}

static bool mend(const struct uploads_survey *survey, const char *id, enum upload_fault fault)
{
    char name[UPLOAD_NAME];
    bool done = true;
    if (fault == UPLOAD_NO_BYTES)
        done = upload_files_remove(survey->folder, id) >= 0;
    else if (fault == UPLOAD_BAD_CHUNK)
        done = unlinkat(survey->folder, upload_file(name, id, ".chunk"), 0) == 0;
    else { /* the bytes first: without their note, a start removes them */
        for (int i = 0; i < 3 && done; i++) {
            char kept[UPLOAD_NAME + 16];
            upload_file(name, id, endings[i]);
            snprintf(kept, sizeof kept, "%s.upload%s", id, endings[i]);
            done = spool_found_keep(survey->spool, survey->time, survey->folder, name, kept) || errno == ENOENT;
        }
        done = done && spool_found_sync(survey->spool, survey->time) == 0;
    }
    return done;
}

static void one_look(void *context, const char *id)
{
    struct uploads_survey *survey = context;
    int64_t arrived;
    char name[UPLOAD_NAME];
    enum upload_fault fault = upload_examine(survey->folder, id, &arrived);
    const int error = errno;
    survey->sound += fault == UPLOAD_SOUND;
    survey->leftover += fault == UPLOAD_LEFTOVER;
    if (fault != UPLOAD_LEFTOVER)
        for (int i = 0; i < 3; i++)
            own_look(survey, survey->folder, upload_file(name, id, endings[i]), "upload", 0600);
    if (fault == UPLOAD_UNREAD) { /* what the disk does not show is not damaged */
        survey->bad++;
        fprintf(survey->out, "upload %s: cannot be read, and stays as it is: %s\n", id, strerror(error));
    }
    if (!faults[fault].what)
        return;
    bool done = survey->time && mend(survey, id, fault);
    survey->bad += !done;
    if (!survey->time)
        fprintf(survey->out, "upload %s: %s\n", id, faults[fault].what);
    else if (!done)
        fprintf(survey->out, "upload %s: cannot be repaired: %s\n", id, strerror(errno));
    else if (fault == UPLOAD_BAD_NOTE || fault == UPLOAD_TOO_LONG)
        fprintf(survey->out, "upload %s: %s%lld/\n", id, faults[fault].done, (long long)survey->time);
    else
        fprintf(survey->out, "upload %s: %s\n", id, faults[fault].done);
}

int uploads_look(const struct spool *spool, int64_t time, FILE *out, bool *sound)
{
    struct uploads_survey survey = {.spool = spool, .time = time, .out = out};
    *sound = true;
    survey.folder = openat(spool->state, "uploads", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (survey.folder < 0 && errno == ENOENT)
        return 0;
    int rc = survey.folder < 0 || fstat(spool->state, &survey.state) < 0 ? disk_failed("opening the uploads") : 0;
    if (!rc)
        own_look(&survey, spool->state, "uploads", "the folder", 0700);
    if (!rc)
        rc = uploads_each(survey.folder, one_look, &survey);
    if (!rc && !time)
        fprintf(out,
                "%d uploads can continue, %d leftovers will be removed at the next start, %d problems with uploads\n",
                survey.sound, survey.leftover, survey.bad);
    if (survey.folder >= 0)
        close(survey.folder);
    *sound = survey.bad == 0;
    return rc;
}
