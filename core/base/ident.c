#include "config.h"

#include "base/ident.h"

bool
ident_good(struct view id)
{
	size_t i;

	if (id.n == 0 || id.n > IDENT_MAX || id.p[0] == '.')
		return false;
	for (i = 0; i < id.n; i++) {
		unsigned char c = (unsigned char)id.p[i];

		if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
		    !(c >= '0' && c <= '9') && c != '_' && c != '.' && c != '-')
			return false;
	}
	return true;
}
