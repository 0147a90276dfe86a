/* The names that sessions and episodes go by. */
#ifndef SP_BASE_IDENT_H
#define SP_BASE_IDENT_H

#include <stdbool.h>

#include "base/view.h"

enum { IDENT_MAX = 128 }; /* bytes */

/*
 * Whether it may be one: [A-Za-z0-9_.-]{1,128} without a leading dot.  So it
 * is the name of a file, one segment of a path and a word of any log as it
 * stands.
 * Context: any, no blocking, no allocation.
 */
bool ident_good(struct view id);

#endif
