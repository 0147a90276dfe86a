/* What else a python needs to be seen, besides the folder that it is in. */
#ifndef SP_HELPER_PYHOME_H
#define SP_HELPER_PYHOME_H

#include "base/buf.h"
#include "base/err.h"

enum { PYHOME_PATHS_MAX = 64 };

struct pyhome {
	char *v[PYHOME_PATHS_MAX]; /* absolute, as they are written */
	size_t n;
};

/*
 * Of a virtual environment, that is its base: what the links of python and of
 * `home` in pyvenv.cfg go through (each link, which stays one inside), and the
 * folder that the real one is installed in, if it has a lib/python... of its
 * own.  What lies beneath the venv itself is left out.
 * Source:  PEP 405; sysconfig's posix_prefix.
 * Context: helper, at start; blocks on files that the command line names.
 * Parameters: python, absolute.
 * Owner:   pyhome_clear(), also after a failure.
 * Returns: 0, also when there is nothing else; SP_E_LIMIT; SP_E_NOMEM.
 */
int pyhome_find(struct pyhome *h, const char *python) must_check;
void pyhome_clear(struct pyhome *h);

#endif
