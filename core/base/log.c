#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <syslog.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum {
	LOG_LINE_BYTES = 1024, /* with the newline; one write */
	LOG_PER_WINDOW = 200, /* lines of one level */
	LOG_WINDOW_MS = 1000,
	LOG_TRIES = 8, /* writes for one line, if they come short */
};

/* One level's second. */
struct log_window {
	uint64_t began_ms;
	unsigned lines;
	unsigned long dropped;
};

static const struct {
	const char *name;
	int priority; /* syslog(3) */
} log_levels[LOG_LEVEL_N] = {
	[LOG_LEVEL_ERROR] = { "error", LOG_ERR },
	[LOG_LEVEL_WARN] = { "warn", LOG_WARNING },
	[LOG_LEVEL_NOTICE] = { "notice", LOG_NOTICE },
	[LOG_LEVEL_INFO] = { "info", LOG_INFO },
	[LOG_LEVEL_DEBUG] = { "debug", LOG_DEBUG },
};

static struct {
	const char *role;
	int fd;
	bool to_syslog;
	enum log_level level;
	struct log_window windows[LOG_LEVEL_N];
	unsigned long lost; /* lines that its reader did not take, untold */
	bool torn; /* the last one was taken in part */
} log_state = { "sallyport", STDERR_FILENO, false, LOG_LEVEL_NOTICE,
	{ { 0, 0, 0 } }, 0, false };

void
log_init(const char *role)
{
	log_state.role = role;
}

void
log_set_fd(int fd)
{
	log_state.fd = fd;
}

void
log_set_syslog(bool on)
{
	if (log_state.to_syslog)
		closelog();
	/* now: a role that is confined later cannot open the socket */
	if (on)
		openlog(log_state.role, LOG_PID | LOG_NDELAY, LOG_DAEMON);
	log_state.to_syslog = on;
}

void
log_set_level(enum log_level level)
{
	log_state.level = level;
}

enum log_level
log_level(void)
{
	return log_state.level;
}

const char *
log_level_name(enum log_level level)
{
	return (unsigned)level < LOG_LEVEL_N ? log_levels[level].name : "?";
}

/*
 * One write that does not wait, of at most n bytes.  A description that is
 * shared with others keeps its flags: a socket is asked call by call, and a
 * pipe that has room at all takes PIPE_BUF bytes (pipe(7), poll(2)).
 */
static ssize_t
log_put_some(int fd, const char *p, size_t n)
{
	struct pollfd ready = { .fd = fd, .events = POLLOUT };
	ssize_t got = send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	int flags;

	if (got >= 0 || errno != ENOTSOCK)
		return got;
	flags = fcntl(fd, F_GETFL);
	if (flags >= 0 && (flags & O_NONBLOCK) == 0) {
		if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) {
			errno = EAGAIN;
			return -1;
		}
		if (n > PIPE_BUF)
			n = PIPE_BUF;
	}
	return write(fd, p, n);
}

size_t
log_put(int fd, const void *p, size_t n)
{
	size_t done = 0, tries = LOG_TRIES + n / PIPE_BUF;
	ssize_t got;

	for (; done < n && tries > 0; tries--) {
		got = log_put_some(fd, (const char *)p + done, n - done);
		if (got == -1 && errno != EINTR)
			break;
		if (got > 0)
			done += (size_t)got;
	}
	return done;
}

/* Never waits for a reader that is gone or slow: the line is lost then. */
static bool
log_write(const char *p, size_t n)
{
	size_t done;

	if (log_state.torn && log_put(log_state.fd, "\n", 1) != 1) {
		log_state.lost++;
		return false;
	}
	log_state.torn = false;
	done = log_put(log_state.fd, p, n);
	if (done == n)
		return true;
	log_state.torn = done > 0;
	log_state.lost++;
	return false;
}

/*
 * Appends text to line, which holds at bytes, with everything that is not
 * printable ASCII escaped; what does not fit becomes "...".  Returns the new
 * length, which leaves room for one more byte.
 */
static size_t
log_escape(char line[LOG_LINE_BYTES], size_t at, const char *text)
{
	static const char hex[] = "0123456789abcdef";
	const size_t last = LOG_LINE_BYTES - 1 - 3;
	unsigned char c;

	for (; *text != '\0' && at + 4 <= last; text++) {
		c = (unsigned char)*text;
		if (c >= ' ' && c < 0x7f) {
			line[at++] = (char)c;
			continue;
		}
		line[at++] = '\\';
		line[at++] = 'x';
		line[at++] = hex[c >> 4];
		line[at++] = hex[c & 15];
	}
	if (*text != '\0' && at <= last) {
		memset(line + at, '.', 3);
		at += 3;
	}
	return at;
}

/* One line to the descriptor: false when it was lost. */
static bool
log_line(enum log_level level, const char *text)
{
	char line[LOG_LINE_BYTES];
	char when[32];
	size_t at;
	int n;

	clock_format(clock_wall_us(), when);
	n = snprintf(line, sizeof(line), "%s %s %.64s[%ld] ", when,
	    log_level_name(level), log_state.role, (long)getpid());
	if (n < 0)
		return false;
	at = log_escape(line, (size_t)n, text);
	line[at++] = '\n';
	return log_write(line, at);
}

/* One line out, whatever the rate. */
static void
log_emit(enum log_level level, const char *text)
{
	char line[LOG_LINE_BYTES];
	unsigned long lost = log_state.lost;
	size_t at;

	if (log_state.to_syslog) {
		at = log_escape(line, 0, text);
		syslog(log_levels[level].priority, "%.*s", (int)at, line);
		return;
	}
	if (log_state.fd < 0 || !log_line(level, text) || lost == 0)
		return;
	/* there is a reader again */
	log_state.lost = 0;
	snprintf(line, sizeof(line),
	    "%lu lines before this one were lost: whoever reads the log did "
	    "not take them",
	    lost);
	if (!log_line(LOG_LEVEL_WARN, line))
		log_state.lost += lost - 1;
}

/* Begins a new second for every level whose second is over. */
static void
log_turn_windows(uint64_t now_ms)
{
	struct log_window *w;
	char text[80];
	unsigned i;

	for (i = 0; i < LOG_LEVEL_N; i++) {
		w = &log_state.windows[i];
		if (now_ms - w->began_ms < LOG_WINDOW_MS)
			continue;
		if (w->dropped != 0) {
			snprintf(text, sizeof(text),
			    "%lu %s lines dropped, over %d a second",
			    w->dropped, log_levels[i].name, LOG_PER_WINDOW);
			log_emit((enum log_level)i, text);
		}
		*w = (struct log_window){ now_ms, 0, 0 };
	}
}

void
log_msg(enum log_level level, const char *fmt, ...)
{
	char text[LOG_LINE_BYTES];
	struct log_window *w;
	int saved = errno; /* callers may still want theirs */
	va_list ap;

	if ((unsigned)level > (unsigned)log_state.level ||
	    (unsigned)level >= LOG_LEVEL_N)
		return;
	log_turn_windows(clock_ms());
	w = &log_state.windows[level];
	if (w->lines >= LOG_PER_WINDOW) {
		w->dropped++;
		errno = saved;
		return;
	}
	w->lines++;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		snprintf(text, sizeof(text), "(message cannot be formatted)");
	va_end(ap);
	log_emit(level, text);
	errno = saved;
}
