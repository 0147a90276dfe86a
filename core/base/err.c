#include "config.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

static const char *const err_text[] = {
	[-SP_OK] = "no error",
	[-SP_E_NOMEM] = "out of memory",
	[-SP_E_SYS] = "system call failed",
	[-SP_E_AGAIN] = "not ready, try again",
	[-SP_E_EOF] = "end of input",
	[-SP_E_LIMIT] = "over a limit",
	[-SP_E_SYNTAX] = "malformed input",
	[-SP_E_RANGE] = "number out of range",
	[-SP_E_NOTFOUND] = "not found",
	[-SP_E_EXISTS] = "exists already",
	[-SP_E_STATE] = "not allowed in this state",
	[-SP_E_PROTO] = "protocol violation by the peer",
	[-SP_E_GONE] = "connection closed by the peer",
	[-SP_E_TIMEOUT] = "timed out",
	[-SP_E_DENIED] = "permission denied",
	[-SP_E_TLS] = "TLS failure",
	[-SP_E_DNS] = "name does not resolve",
	[-SP_E_NOSPC] = "no space left",
	[-SP_E_UNSUPPORTED] = "not supported here",
	[-SP_E_ARG] = "invalid argument",
	[-SP_E_REFUSED] = "connection refused",
	[-SP_E_CONF] = "configuration error",
};

#define ERR_TEXT_N (int)(sizeof(err_text) / sizeof(err_text[0]))

const char *
err_str(int e)
{
	if (e > 0 || e <= -ERR_TEXT_N)
		return "unknown error";
	return err_text[-e];
}

static const struct {
	int en;
	int e;
} err_map[] = {
	{ 0, SP_OK },
	{ ENOMEM, SP_E_NOMEM },
	{ EAGAIN, SP_E_AGAIN },
	{ EINTR, SP_E_AGAIN },
	{ EINPROGRESS, SP_E_AGAIN },
	{ EMFILE, SP_E_LIMIT },
	{ ENFILE, SP_E_LIMIT },
	{ EMSGSIZE, SP_E_LIMIT },
	{ ENAMETOOLONG, SP_E_LIMIT },
	{ EFBIG, SP_E_LIMIT },
	{ E2BIG, SP_E_LIMIT },
	{ ENOBUFS, SP_E_LIMIT },
	{ ERANGE, SP_E_RANGE },
	{ EOVERFLOW, SP_E_RANGE },
	{ ENOENT, SP_E_NOTFOUND },
	{ ESRCH, SP_E_NOTFOUND },
	{ ENODEV, SP_E_NOTFOUND },
	{ ENXIO, SP_E_NOTFOUND },
	{ EEXIST, SP_E_EXISTS },
	{ EADDRINUSE, SP_E_EXISTS },
	{ EBUSY, SP_E_STATE },
	{ EISCONN, SP_E_STATE },
	{ ENOTCONN, SP_E_STATE },
	{ EALREADY, SP_E_STATE },
	{ ENOTEMPTY, SP_E_STATE },
	{ EPROTO, SP_E_PROTO },
	{ EBADMSG, SP_E_PROTO },
	{ EPIPE, SP_E_GONE },
	{ ECONNRESET, SP_E_GONE },
	{ ECONNABORTED, SP_E_GONE },
	{ ESHUTDOWN, SP_E_GONE },
	{ ETIMEDOUT, SP_E_TIMEOUT },
	{ EACCES, SP_E_DENIED },
	{ EPERM, SP_E_DENIED },
	{ EROFS, SP_E_DENIED },
	{ ENOSPC, SP_E_NOSPC },
	{ EDQUOT, SP_E_NOSPC },
	{ ENOSYS, SP_E_UNSUPPORTED },
	{ EOPNOTSUPP, SP_E_UNSUPPORTED },
	{ EAFNOSUPPORT, SP_E_UNSUPPORTED },
	{ EPROTONOSUPPORT, SP_E_UNSUPPORTED },
	{ EINVAL, SP_E_ARG },
	{ EBADF, SP_E_ARG },
	{ EFAULT, SP_E_ARG },
	{ ECONNREFUSED, SP_E_REFUSED },
};

int
err_from_errno(int en)
{
	size_t i;

	for (i = 0; i < sizeof(err_map) / sizeof(err_map[0]); i++)
		if (err_map[i].en == en)
			return err_map[i].e;
	return SP_E_SYS;
}

void
err_bug(const char *file, int line, const char *what)
{
	fprintf(stderr, "bug: %s:%d: %s\n", file, line, what);
	fflush(stderr);
	abort();
}
