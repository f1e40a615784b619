/* send.h: mrirecon-send, the program that delivers one job to one destination and ends. It is the only one that speaks
 * to other hosts, and reads nothing but what it is sent.
 *
 * On descriptor WIRE_FD is one end of a SOCK_SEQPACKET pair, with messages as daemon/wire.h has them:
 *
 *   {type: "webhook", address, ca, secret, id, timeout, body}
 *       POST `body`, JSON, to the URL `address`, signed with `secret`. ca: file of trusted certificates; "": the
 * system's
 *
 * and the answer
 *
 *   {type: "delivered" | "again" | "refused", answer: a sentence, after: s}
 *       again: it may be delivered later, not before `after` seconds (0: whenever); refused: for good
 */
#ifndef MRIRECON_SEND_H
#define MRIRECON_SEND_H

#include <jansson.h>

enum { SEND_ANSWER = 280 };

enum send_outcome { SEND_DELIVERED, SEND_AGAIN, SEND_REFUSED };

struct send_result {
    enum send_outcome outcome;
    char answer[SEND_ANSWER];
    long after; /* s */
};

/* The port of a URL of http or https; 0: it is none. */
int send_url_port(const char *url);

/* Deliver a message of the type "webhook". */
struct send_result send_webhook(const json_t *message);

#endif
