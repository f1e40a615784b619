#include "daemon/http/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { CHAIN_MOST = 16 };

struct tls_pair {
    unsigned users; /* references: the service's to the newest, and each connection's */
    gnutls_pcert_st chain[CHAIN_MOST];
    unsigned length;
    gnutls_privkey_t key;
    time_t end; /* of the first certificate */
};

struct tls {
    char *certificate, *key;
    pthread_mutex_t lock; /* of `newest`, and of users */
    struct tls_pair *newest;
};

static void pair_free(struct tls_pair *pair)
{
    if (!pair)
        return;
    for (unsigned i = 0; i < pair->length; i++)
        gnutls_pcert_deinit(&pair->chain[i]);
    if (pair->key)
        gnutls_privkey_deinit(pair->key);
    free(pair);
}

/* The end of the first certificate's validity. */
static time_t pair_end(struct tls_pair *pair)
{
    gnutls_x509_crt_t certificate = NULL;
    time_t end = 0;
    if (gnutls_pcert_export_x509(&pair->chain[0], &certificate) == 0)
        end = gnutls_x509_crt_get_expiration_time(certificate);
    gnutls_x509_crt_deinit(certificate);
    return end;
}

/* Whether the key belongs to the first certificate of the chain. */
static int pair_check(const struct tls *tls, struct tls_pair *pair)
{
    unsigned char certified[64] = {0}, own[64] = {0};
    size_t certified_length = sizeof certified, own_length = sizeof own;
    gnutls_pubkey_t key = NULL;
    int failed = gnutls_pubkey_init(&key);
    if (!failed)
        failed = gnutls_pubkey_import_privkey(key, pair->key, 0, 0);
    if (!failed)
        failed = gnutls_pubkey_get_key_id(key, 0, own, &own_length);
    if (!failed)
        failed = gnutls_pubkey_get_key_id(pair->chain[0].pubkey, 0, certified, &certified_length);
    gnutls_pubkey_deinit(key);
    if (failed || own_length != certified_length || memcmp(own, certified, own_length) != 0)
        return err_set(ERR_BAD_PARAMETER, "The key in %s does not belong to the certificate in %s.", tls->key,
                       tls->certificate);
    return 0;
}

static int file_load(const char *option, const char *path, gnutls_datum_t *text)
{
    if (gnutls_load_file(path, text) == 0)
        return 0;
    int error = errno;
    return err_set(ERR_BAD_PARAMETER, "%s: %s cannot be read: %s.%s", option, path, strerror(error),
                   error == EACCES ? " Run chown, to give it to the account that runs mrirecond." : "");
}

static int chain_read(const struct tls *tls, struct tls_pair *pair)
{
    gnutls_datum_t text = {NULL, 0};
    int rc = file_load("tls-certificate", tls->certificate, &text);
    if (rc)
        return rc;
    unsigned length = CHAIN_MOST;
    int failed = gnutls_pcert_list_import_x509_raw(pair->chain, &length, &text, GNUTLS_X509_FMT_PEM, 0);
    gnutls_free(text.data);
    if (failed)
        return err_set(ERR_BAD_PARAMETER, "Option tls-certificate: %s holds no certificate in PEM: %s",
                       tls->certificate, gnutls_strerror(failed));
    pair->length = length;
    return 0;
}

static int private_key_read(const struct tls *tls, struct tls_pair *pair)
{
    gnutls_datum_t text = {NULL, 0};
    struct stat about;
    if (stat(tls->key, &about) == 0 && about.st_mode & S_IRWXO)
        return err_set(ERR_BAD_PARAMETER,
                       "Option tls-key: every user of this machine can read %s, and impersonate this service. Run "
                       "chmod 600 on it.",
                       tls->key);
    int rc = file_load("tls-key", tls->key, &text);
    if (rc)
        return rc;
    int failed = gnutls_privkey_init(&pair->key);
    if (!failed)
        failed = gnutls_privkey_import_x509_raw(pair->key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_memset(text.data, 0, text.size);
    gnutls_free(text.data);
    return failed ? err_set(ERR_BAD_PARAMETER, "Option tls-key: %s holds no key in PEM: %s", tls->key,
                            gnutls_strerror(failed))
                  : 0;
}

static int pair_read(const struct tls *tls, struct tls_pair **out)
{
    struct tls_pair *pair = calloc(1, sizeof *pair);
    int rc = pair ? chain_read(tls, pair) : err_no_memory("a certificate");
    if (!rc)
        rc = private_key_read(tls, pair);
    if (!rc)
        rc = pair_check(tls, pair);
    if (rc) {
        pair_free(pair);
        return rc;
    }
    pair->end = pair_end(pair);
    *out = pair;
    return 0;
}

int tls_reload(struct tls *tls)
{
    struct tls_pair *pair = NULL;
    int rc = pair_read(tls, &pair);
    if (rc)
        return rc;
    if (pair->end <= time(NULL) && tls->newest && tls->newest->end > time(NULL)) {
        pair_free(pair);
        return err_set(ERR_BAD_PARAMETER, "Option tls-certificate: %s contains an expired certificate.",
                       tls->certificate);
    }
    pair->users = 1;
    pthread_mutex_lock(&tls->lock);
    struct tls_pair *before = tls->newest;
    tls->newest = pair;
    pthread_mutex_unlock(&tls->lock);
    tls_release(tls, before);
    return 0;
}

int tls_create(struct tls **out, const char *certificate, const char *key)
{
    struct tls *tls = calloc(1, sizeof *tls);
    if (tls) {
        tls->certificate = strdup(certificate);
        tls->key = strdup(key);
        pthread_mutex_init(&tls->lock, NULL);
    }
    int rc = tls && tls->certificate && tls->key ? tls_reload(tls) : err_no_memory("TLS");
    if (rc)
        tls_free(tls);
    else
        *out = tls;
    return rc;
}

void tls_free(struct tls *tls)
{
    if (!tls)
        return;
    pair_free(tls->newest);
    pthread_mutex_destroy(&tls->lock);
    free(tls->certificate);
    free(tls->key);
    free(tls);
}

int64_t tls_end(struct tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    int64_t end = (int64_t)tls->newest->end;
    pthread_mutex_unlock(&tls->lock);
    return end;
}

struct tls_pair *tls_hold(struct tls *tls)
{
    pthread_mutex_lock(&tls->lock);
    struct tls_pair *pair = tls->newest;
    pair->users++;
    pthread_mutex_unlock(&tls->lock);
    return pair;
}

void tls_release(struct tls *tls, struct tls_pair *pair)
{
    if (!pair)
        return;
    pthread_mutex_lock(&tls->lock);
    bool last = --pair->users == 0;
    pthread_mutex_unlock(&tls->lock);
    if (last)
        pair_free(pair);
}

void tls_show(struct tls_pair *pair, gnutls_pcert_st **chain, unsigned *length, gnutls_privkey_t *key)
{
    *chain = pair->chain;
    *length = pair->length;
    *key = pair->key;
}
