/* What reached the server, one JSON line each, written at once. */
#ifndef SP_SM_LOG_H
#define SP_SM_LOG_H

#include "sm_http.h"

/*
 * Context: any; blocks as long as the write does.
 * Parameters: fd, where lines go, -1 nowhere; borrowed.
 */
void sm_log_request(int fd, uint64_t conn, uint64_t request,
    const struct sm_http *h);
void sm_log_end(int fd, uint64_t conn, uint64_t request, const char *how,
    uint64_t sent);

#endif
