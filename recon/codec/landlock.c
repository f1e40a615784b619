#include "recon/codec/landlock.h"

#include "gridding/base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct landlock_rules {
    uint64_t files, network, scope;
};

/* What each version of the ABI added. */
static const struct {
    int since;
    struct landlock_rules rules;
} versions[] = {
    {1, {.files = (UINT64_C(1) << 13) - 1}}, /* execute, read, write, make and remove files of any type */
    {2, {.files = UINT64_C(1) << 13}},       /* link and rename across directories */
    {3, {.files = UINT64_C(1) << 14}},       /* truncate */
    {4, {.network = 3}},                     /* bind and connect TCP */
    {5, {.files = UINT64_C(1) << 15}},       /* ioctl of devices */
    {6, {.scope = 3}},                       /* abstract unix sockets, signals */
};
enum {
    RULE_PATH = 1,
    RULE_PORT = 2,
    CONNECT_TCP = 1 << 1,
    RIGHTS_OF_FILES = LANDLOCK_EXECUTE | LANDLOCK_WRITE | LANDLOCK_READ_FILE | LANDLOCK_TRUNCATE | LANDLOCK_DEVICE
};

int sandbox_failed(const char *what)
{
    return err_set(
        ERR_INTERNAL,
        "The sandbox cannot be set up: %s failed (%s). Scans are only read and reconstructed inside it: run on "
        "a kernel with seccomp, and let the service's container allow it.",
        what, strerror(errno));
}

int landlock_open(struct landlock *landlock)
{
    long abi = syscall(LANDLOCK_CALL_CREATE, NULL, 0, LANDLOCK_CREATE_VERSION);
    struct landlock_rules rules = {0};
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (abi >= versions[i].since) {
            rules.files |= versions[i].rules.files;
            rules.network |= versions[i].rules.network;
            rules.scope |= versions[i].rules.scope;
        }
    *landlock = (struct landlock){.files = rules.files, .network = rules.network != 0, .ruleset = -1};
    if (!rules.files)
        return 0;
    landlock->ruleset = (int)syscall(LANDLOCK_CALL_CREATE, &rules, sizeof rules, 0);
    return landlock->ruleset >= 0 ? 0 : sandbox_failed("landlock_create_ruleset");
}

static void rule_add(struct landlock *landlock, int type, const void *rule)
{
    if (syscall(LANDLOCK_CALL_ADD, landlock->ruleset, type, rule, 0) != 0 && !landlock->error)
        landlock->error = errno;
}

void landlock_allow(struct landlock *landlock, const char *path, uint64_t rights)
{
    struct stat status;
    struct {
        uint64_t rights;
        int32_t fd;
    } __attribute__((packed)) rule = {.rights = rights & landlock->files, .fd = -1};
    if (landlock->ruleset >= 0)
        rule.fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.fd < 0)
        return;
    if (fstat(rule.fd, &status) == 0 && !S_ISDIR(status.st_mode))
        rule.rights &= RIGHTS_OF_FILES;
    rule_add(landlock, RULE_PATH, &rule);
    close(rule.fd);
}

void landlock_allow_port(struct landlock *landlock, int port)
{
    const struct {
        uint64_t rights, port;
    } rule = {.rights = CONNECT_TCP, .port = (uint64_t)port};
    if (landlock->ruleset >= 0 && landlock->network)
        rule_add(landlock, RULE_PORT, &rule);
}

int landlock_enter(struct landlock *landlock)
{
    if (landlock->ruleset < 0)
        return 0;
    const long rc = landlock->error ? -1 : syscall(LANDLOCK_CALL_RESTRICT, landlock->ruleset, 0);
    const int error = landlock->error ? landlock->error : errno;
    close(landlock->ruleset);
    landlock->ruleset = -1;
    errno = error;
    return rc == 0 ? 0 : sandbox_failed(landlock->error ? "landlock_add_rule" : "landlock_restrict_self");
}
