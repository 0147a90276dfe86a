/* What is wrong with the configuration, told to whoever can mend it. */
#ifndef SP_HELPER_COMPLAIN_H
#define SP_HELPER_COMPLAIN_H

#include <stdbool.h>

#include "base/err.h"
#include "helper/proxycmd.h"

/*
 * One line, without its end: to standard error while the operator looks on,
 * to the error log once there is a loop.
 */
void complain(const char *fmt, ...) printf_like(1, 2);
void complain_to_log(bool on);
/* "proxy:LINE:" becomes the argument that it came from; borrowed for good. */
void complain_about_proxy(const struct proxycmd *p);
/* Each line is appended to this as well, until NULL. */
void complain_copy(struct buf *to);

#endif
