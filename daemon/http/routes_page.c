/* The web page: its files, and the redirection to it. */
#include "daemon/http/page.h"
#include "daemon/http/routes.h"

#include <string.h>

/* Content-Security-Policy: only the service's own files may be run, shown or requested, and no other site may frame the
 * page. NiiVue and uPlot need nothing else; their fonts are data: URLs. */
#define POLICY                                                                                            \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

bool page_is_wanted(struct request *request)
{
    const char *accept = http_header(request, "Accept");
    int page_closeness, document_closeness;
    int page = accept_quality(accept, "text/html", &page_closeness);
    int document = accept_quality(accept, "application/json", &document_closeness);
    return request->service->page && page_closeness == 3 && page > 0 && page >= document;
}

int route_page_home(struct request *request)
{
    /* Relative, so that a proxy may serve the page below a path of its own. */
    const char *const headers[] = {"Location", "ui/", "Vary", "Accept", NULL};
    return http_answer(request, 303, "", strdup(""), headers);
}

int route_page(struct request *request)
{
    const struct service *service = request->service;
    const struct page_file *file = page_find(service->page, request->part[1], http_header(request, "Accept-Encoding"));
    if (!service->page)
        return err_set(ERR_NOT_FOUND,
                       "This service was installed without its web page. Run make web, with npm, and "
                       "install again; or set the option web-dir to a folder that has the page's files.");
    if (!file)
        return err_set(ERR_NOT_FOUND, "The page has no file of this name. It begins at /ui/.");
    const char *headers[18] = {"ETag",
                               file->etag,
                               "Cache-Control",
                               file->hashed ? "public, max-age=31536000, immutable" : "no-cache",
                               "Content-Security-Policy",
                               POLICY,
                               "Referrer-Policy",
                               "no-referrer"};
    int used = 8;
    if (file->varies) {
        headers[used++] = "Vary";
        headers[used++] = "Accept-Encoding";
    }
    const char *known = http_header(request, "If-None-Match");
    if (known && etag_listed(known, file->etag, true))
        return http_answer_memory(request, 304, file->media, file->bytes, file->length, headers);
    if (file->coding) {
        headers[used++] = "Content-Encoding";
        headers[used++] = file->coding;
    }
    return http_answer_memory(request, 200, file->media, file->bytes, file->length, headers);
}
