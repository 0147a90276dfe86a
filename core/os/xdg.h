/* Where an ordinary user's files go. */
#ifndef SP_OS_XDG_H
#define SP_OS_XDG_H

#include "base/buf.h"
#include "base/err.h"

enum xdg_dir { XDG_STATE, XDG_CONFIG, XDG_RUNTIME };

/*
 * Appends the base directory: the variable where it is absolute, else its
 * default under HOME (or the account's home).
 * Source:  XDG Base Directory Specification 0.8.
 * Context: start-up; may ask the name service.
 * Returns: 0; SP_E_NOTFOUND no home, or no XDG_RUNTIME_DIR (which has no
 *          default); SP_E_LIMIT; SP_E_NOMEM.
 */
int xdg_dir(enum xdg_dir which, struct buf *out) must_check;

#endif
