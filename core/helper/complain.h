/* What is wrong with the configuration, told to whoever can mend it. */
#ifndef SP_HELPER_COMPLAIN_H
#define SP_HELPER_COMPLAIN_H

#include <stdbool.h>

#include "base/err.h"

/*
 * One line, without its end: to standard error while the operator looks on,
 * to the error log once there is a loop.
 */
void complain(const char *fmt, ...) printf_like(1, 2);
void complain_to_log(bool on);

#endif
