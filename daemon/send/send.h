/* send.h: mrirecon-send, the program that delivers one job to one destination and ends. It is the only program that
 * connects to other hosts, and reads nothing but what the daemon sends it.
 *
 * Descriptor WIRE_FD is one end of a SOCK_SEQPACKET pair, with messages in the form of daemon/wire.h:
 *
 *   {type: "webhook", address, ca, secret, id, timeout, body}
 *       POST `body`, JSON, to the URL `address`, signed with `secret`. ca: file of trusted certificates; "": default
 *   {type: "dicom", address: "HOST:PORT", calling, called, timeout} + fds [DICOM files]
 *       C-STORE of the files, with these AE titles
 *   {type: "stow", address, ca, secret, timeout} + fds [DICOM files]
 *       STOW-RS of the files to the URL `address`; secret: USER:PASSWORD or Bearer TOKEN; "": none
 *
 * and the answer
 *
 *   {type: "delivered" | "again" | "refused", answer: a sentence, after: s}
 *       again: it may be delivered later, not before `after` seconds (0: at any time); refused: permanently
 */
#ifndef MRIRECON_SEND_H
#define MRIRECON_SEND_H

#include <jansson.h>

#define SEND_STORESCU "/usr/bin/storescu"

enum { SEND_ANSWER = 280, SEND_FILES = 8, SEND_UID = 64 + 1, SEND_HOST = 256, SEND_URL = 512 };

enum send_outcome { SEND_DELIVERED, SEND_AGAIN, SEND_REFUSED };

struct send_result {
    enum send_outcome outcome;
    char answer[SEND_ANSWER];
    long after; /* s */
};

/* The port of an http or https URL; 0: malformed. */
int send_url_port(const char *url);
/* The host and port of "HOST:PORT"; 0: malformed. */
int send_host_split(const char *address, char host[SEND_HOST]);

/* ---- send_http.c ---- */

struct send_result send_webhook(const json_t *message);

/* ---- send_dicom.c ---- */

/* A file, the UID of its instance, and the PACS's status for it (PS3.7, annex C). */
enum { SEND_UNTOLD = -1, SEND_FAILED = 0x0110 };
struct send_instance {
    int fd, status;
    char uid[SEND_UID];
};
/* Read the UIDs of the files; 0, or -1: one is not a DICOM file. */
int send_instances_read(struct send_instance *instances, const int *fds, int count);
void send_status_note(struct send_instance *instances, int count, const char *uid, int status);
/* The outcome of all instances' statuses. Without any status the answer has `reason`, and is permanent if `refused`. */
struct send_result send_instances_judge(const struct send_instance *instances, int count, int refused,
                                        const char *reason);

struct send_result send_dicom(const json_t *message, struct send_instance *instances, int count);

/* ---- send_stow.c ---- */

struct send_result send_stow(const json_t *message, struct send_instance *instances, int count);

#endif
