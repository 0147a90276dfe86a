#include "config.h"

#include "recorder/store.h"

bool
store_session_valid(struct view id)
{
	size_t i;

	if (id.n == 0 || id.n > STORE_SESSION_MAX || id.p[0] == '.')
		return false;
	for (i = 0; i < id.n; i++) {
		unsigned char c = (unsigned char)id.p[i];
		unsigned char lower = c | 0x20;

		if (!(c >= '0' && c <= '9') &&
		    !(lower >= 'a' && lower <= 'z') && c != '_' && c != '.' &&
		    c != '-')
			return false;
	}
	return true;
}
