/* What -V, -M and -T print. */
#ifndef SP_HELPER_SHOW_H
#define SP_HELPER_SHOW_H

#include "base/err.h"
#include "conf/conf.h"

/*
 * Context: helper, before its loop; to standard output.
 * Returns (show_dump): 0; SP_E_NOMEM; SP_E_LIMIT.
 */
void show_version(void);
void show_modules(void);
int show_dump(const struct conf *conf) must_check;

#endif
