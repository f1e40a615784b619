#include "daemon/mrd/mrd_clients.h"

#include "daemon/http/http_parse.h"
#include "daemon/http/tokens.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { ENTRY = 160, ADDRESS_BITS = 128, V4_BITS = 96 };

/* One entry: a network, as an IPv6 address (IPv4: ::ffff:a.b.c.d) and the number of significant bits. */
struct entry {
    unsigned char network[16];
    int64_t bits;
    char client[JOB_CLIENT]; /* "": the address */
};

static void mapped(unsigned char out[16], const struct in_addr *v4)
{
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    memcpy(out + 12, v4, 4);
}

static int entry_refuse(const char *text)
{
    return err_set(ERR_BAD_PARAMETER,
                   "Option mrd-clients: \"%.64s\" must be ADDRESS or ADDRESS/BITS, optionally followed by =CLIENT. For "
                   "example: 192.168.2.1=scanner1, 10.1.0.0/16.",
                   text);
}

/* Read one entry of `length` bytes, without spaces around it. */
static int entry_read(struct entry *out, const char *from, size_t length)
{
    char text[ENTRY], whole[ENTRY];
    struct in_addr v4;
    struct in6_addr v6;
    if (length >= sizeof text)
        return entry_refuse(from);
    memcpy(text, from, length);
    text[length] = '\0';
    memcpy(whole, text, length + 1);
    char *client = strchr(text, '='), *bits;
    if (client)
        *client++ = '\0';
    if (client && !client_fits(client))
        return entry_refuse(whole);
    bits = strchr(text, '/');
    if (bits)
        *bits++ = '\0';
    const bool is_v4 = inet_pton(AF_INET, text, &v4) == 1;
    if (!is_v4 && inet_pton(AF_INET6, text, &v6) != 1)
        return entry_refuse(whole);
    if (is_v4)
        mapped(out->network, &v4);
    else
        memcpy(out->network, &v6, sizeof out->network);
    out->bits = is_v4 ? ADDRESS_BITS - V4_BITS : ADDRESS_BITS;
    const int64_t asked = bits ? number_parse(bits) : out->bits;
    if (asked < 0 || asked > out->bits)
        return entry_refuse(whole);
    out->bits = asked + (is_v4 ? V4_BITS : 0);
    snprintf(out->client, sizeof out->client, "%s", client ? client : "");
    return 0;
}

/* The next entry of *list, which moves on; *found false: there is none left. */
static int entry_next(const char **list, struct entry *out, bool *found)
{
    *list += strspn(*list, ", \t");
    size_t length = strcspn(*list, ","), used = length;
    while (used > 0 && strchr(" \t", (*list)[used - 1]))
        used--;
    *found = length > 0;
    int rc = *found ? entry_read(out, *list, used) : 0;
    *list += length;
    return rc;
}

int mrd_clients_check(const char *list)
{
    struct entry entry;
    bool found = true;
    int rc = 0;
    while (!rc && found)
        rc = entry_next(&list, &entry, &found);
    return rc;
}

static bool entry_has(const struct entry *entry, const unsigned char address[16])
{
    for (int bit = 0; bit < entry->bits; bit++)
        if ((entry->network[bit / 8] ^ address[bit / 8]) & 0x80 >> bit % 8)
            return false;
    return true;
}

int mrd_clients_find(const char *list, const struct sockaddr *address, char client[JOB_CLIENT])
{
    unsigned char number[16] = {0};
    struct entry entry;
    bool found = false, everyone = !*list;
    if (address->sa_family == AF_INET)
        mapped(number, &((const struct sockaddr_in *)(const void *)address)->sin_addr);
    else
        memcpy(number, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, sizeof number);
    /* In HTTP's form: an IPv4-mapped IPv6 address becomes an IPv4 address. */
    const bool v4 = IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)number);
    inet_ntop(v4 ? AF_INET : AF_INET6, v4 ? number + 12 : number, client, JOB_CLIENT);
    while (!everyone) {
        int rc = entry_next(&list, &entry, &found);
        if (rc)
            return rc;
        if (!found)
            return err_set(ERR_FORBIDDEN,
                           "The address %s is not among those that may send MRD streams (option "
                           "mrd-clients).",
                           client);
        if (entry_has(&entry, number))
            break;
    }
    if (found && *entry.client)
        memcpy(client, entry.client, JOB_CLIENT);
    return 0;
}
