/* STOW-RS (PS3.18, 10.5): POST of the instances as multipart/related. An instance counts as stored if the answer lists
 * it, whatever the HTTP status: a server may store some and answer with an error. */
#include "daemon/send/send.h"
#include "daemon/send/send_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOUNDARY "mrirecond-instances-5e1f0c9a7d"
#define PART     "--" BOUNDARY "\r\nContent-Type: application/dicom\r\n\r\n"
#define PART_END "\r\n"
#define END      "--" BOUNDARY "--\r\n"

enum { ANSWER_MOST = 1 << 20, PIECES = 3 * SEND_FILES + 1 };

/* The pieces of the body: texts and files. */
struct body {
    struct piece {
        const char *text; /* NULL: the file */
        int fd;
        curl_off_t bytes;
    } piece[PIECES];
    int pieces, at;
    curl_off_t done; /* of the present one */
    curl_off_t bytes;
};

static void piece_add(struct body *body, const char *text, int fd)
{
    const curl_off_t bytes = text ? (curl_off_t)strlen(text) : (curl_off_t)lseek(fd, 0, SEEK_END);
    body->piece[body->pieces++] = (struct piece){text, fd, bytes};
    body->bytes += bytes;
}

static size_t body_read(char *out, size_t size, size_t count, void *context)
{
    struct body *body = context;
    while (body->at < body->pieces && body->done == body->piece[body->at].bytes) {
        body->at++;
        body->done = 0;
    }
    if (body->at == body->pieces)
        return 0;
    const struct piece *piece = &body->piece[body->at];
    size_t most = size * count;
    if ((curl_off_t)most > piece->bytes - body->done)
        most = (size_t)(piece->bytes - body->done);
    ssize_t got = (ssize_t)most;
    if (piece->text)
        memcpy(out, piece->text + body->done, most);
    else
        got = pread(piece->fd, out, most, body->done);
    if (got <= 0)
        return CURL_READFUNC_ABORT;
    body->done += got;
    return (size_t)got;
}

/* The beginning of the answer. */
struct answer {
    char *text;
    size_t used;
};

static size_t answer_write(char *bytes, size_t size, size_t count, void *context)
{
    struct answer *answer = context;
    if (answer->used + size * count > ANSWER_MOST)
        return 0;
    memcpy(answer->text + answer->used, bytes, size * count);
    answer->used += size * count;
    return size * count;
}

/* The first value of an attribute of a dataset in DICOM's JSON. */
static const json_t *value_of(const json_t *dataset, const char *tag)
{
    return json_array_get(json_object_get(json_object_get(dataset, tag), "Value"), 0);
}

/* Record the statuses in the answer: 00081199 lists stored instances, 00081198 failed ones, each with a status in
 * 00081197. */
static void answer_note(const struct answer *answer, struct send_instance *instances, int count)
{
    static const char *const lists[] = {"00081198", "00081199"};
    json_t *all = json_loadb(answer->text, answer->used, 0, NULL);
    const json_t *dataset = json_is_array(all) ? json_array_get(all, 0) : all;
    for (int l = 0; l < 2; l++) {
        const json_t *items = json_object_get(json_object_get(dataset, lists[l]), "Value");
        for (size_t i = 0; i < json_array_size(items); i++) {
            const json_t *item = json_array_get(items, i), *reason = value_of(item, "00081197");
            const char *uid = json_string_value(value_of(item, "00081155"));
            if (uid)
                send_status_note(instances, count, uid,
                                 l == 1                    ? 0
                                 : json_is_integer(reason) ? (int)json_integer_value(reason) & 0xffff
                                                           : SEND_FAILED);
        }
    }
    json_decref(all);
}

/* "USER:PASSWORD", or "Bearer TOKEN". */
static void login_set(CURL *curl, const char *login)
{
    static const char bearer[] = "Bearer ";
    if (strncmp(login, bearer, sizeof bearer - 1) == 0) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
        curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, login + sizeof bearer - 1);
    } else if (*login) {
        curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
        curl_easy_setopt(curl, CURLOPT_USERPWD, login);
    }
}

static struct send_result stow(CURL *curl, struct body *body, struct answer *answer, struct send_instance *instances,
                               int count, const char *reason)
{
    CURLcode done = curl_easy_perform(curl);
    struct send_result told = send_http_judge(curl, done, reason);
    /* An answer that arrived before the connection broke counts as well. */
    answer_note(answer, instances, count);
    if (done != CURLE_OK && body->at < body->pieces)
        return told;
    const size_t length = strlen(told.answer);
    if (length)
        told.answer[length - 1] = '\0'; /* without the full stop: the text becomes part of a sentence */
    struct send_result result = send_instances_judge(instances, count, told.outcome == SEND_REFUSED, told.answer);
    result.after = told.after;
    return result;
}

struct send_result send_stow(const json_t *message, struct send_instance *instances, int count)
{
    char reason[CURL_ERROR_SIZE], url[SEND_URL];
    struct send_result result = {SEND_AGAIN, "There is no memory for a request.", 0};
    struct body body = {.pieces = 0};
    struct answer answer = {malloc(ANSWER_MOST), 0};
    const char *login = json_string_value(json_object_get(message, "secret"));
    for (int i = 0; i < count; i++) {
        piece_add(&body, PART, -1);
        piece_add(&body, NULL, instances[i].fd);
        piece_add(&body, PART_END, -1);
    }
    piece_add(&body, END, -1);
    struct curl_slist *headers =
        curl_slist_append(NULL, "Content-Type: multipart/related; type=\"application/dicom\"; boundary=" BOUNDARY);
    struct curl_slist *more = headers ? curl_slist_append(headers, "Accept: application/dicom+json") : NULL;
    CURL *curl = more && answer.text ? send_http_make(message, reason) : NULL;
    if (curl) {
        snprintf(url, sizeof url, "%s/studies", json_string_value(json_object_get(message, "address")));
        curl_easy_setopt(curl, CURLOPT_URL, url);
        curl_easy_setopt(curl, CURLOPT_POST, 1L);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, body.bytes);
        curl_easy_setopt(curl, CURLOPT_READFUNCTION, body_read);
        curl_easy_setopt(curl, CURLOPT_READDATA, &body);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, answer_write);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        login_set(curl, login ? login : "");
        result = stow(curl, &body, &answer, instances, count, reason);
    }
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(answer.text);
    return result;
}
