/* Error numbers shared by all programs. */
#ifndef SP_BASE_ERR_H
#define SP_BASE_ERR_H

/*
 * A function that can fail returns int: 0 (or a documented positive count) on
 * success, one negative SP_E_* otherwise.  errno is read where it happens and
 * never crosses a header; err_from_errno() maps it.
 */
enum err {
	SP_OK = 0,
	SP_E_NOMEM = -1, /* allocation failed */
	SP_E_SYS = -2, /* a system call failed, no closer match */
	SP_E_AGAIN = -3, /* would block; try when ready */
	SP_E_EOF = -4, /* clean end of input */
	SP_E_LIMIT = -5, /* over a configured or fixed bound */
	SP_E_SYNTAX = -6, /* malformed input */
	SP_E_RANGE = -7, /* number outside its range */
	SP_E_NOTFOUND = -8, /* no such thing */
	SP_E_EXISTS = -9, /* is there already */
	SP_E_STATE = -10, /* not allowed in this state */
	SP_E_PROTO = -11, /* the peer broke a protocol */
	SP_E_GONE = -12, /* the peer went away, reset */
	SP_E_TIMEOUT = -13, /* a deadline passed */
	SP_E_DENIED = -14, /* permission, policy */
	SP_E_TLS = -15, /* TLS handshake, verification or record */
	SP_E_DNS = -16, /* name does not resolve */
	SP_E_NOSPC = -17, /* disk or quota full */
	SP_E_UNSUPPORTED = -18, /* known, but not to be had here */
	SP_E_ARG = -19, /* the caller's argument makes no sense */
	SP_E_REFUSED = -20, /* connection refused */
	SP_E_CONF = -21, /* configuration error, already reported */
};

#define must_check __attribute__((warn_unused_result))
#define printf_like(f, a) __attribute__((format(printf, f, a)))

/*
 * Source:  none.
 * Context: any, does not block.
 * Returns: a short lower-case English phrase for an SP_E_* number, static;
 *          "unknown error" for any other number.
 */
const char *err_str(int e);

/*
 * Source:  errno(3).
 * Context: any, does not block.
 * Parameters: en, an errno value.
 * Returns: the SP_E_* number nearest to it, SP_E_SYS when none is near.
 */
int err_from_errno(int en) must_check;

/*
 * A bug in sallyport itself: prints file, line and text to standard error
 * and aborts, also in production.  Never for a peer's or the system's fault.
 */
#define err_assert(cond) ((cond) ? (void)0 : err_bug(__FILE__, __LINE__, #cond))
void err_bug(const char *file, int line, const char *what)
    __attribute__((noreturn));

#endif
