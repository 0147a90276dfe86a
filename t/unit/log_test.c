#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tap.h"

static int rd, wr; /* a pipe; its reading end does not block */
static char got[400000];

/* What was logged since the last call. */
static const char *
drain(void)
{
	size_t n = 0;
	ssize_t k;

	while (n < sizeof(got) - 1 &&
	    (k = read(rd, got + n, sizeof(got) - 1 - n)) > 0)
		n += (size_t)k;
	got[n] = '\0';
	return got;
}

/* Waits until a new second of the rate limit has begun. */
static void
next_window(void)
{
	uint64_t end = clock_ms() + 1001;

	while (clock_ms() < end)
		(void)usleep(20000);
}

static void
test_line(void)
{
	char want[100];
	const char *s;

	log_error("conn=%d upstream \"%s\": refused", 17, "m");
	s = drain();
	snprintf(want, sizeof(want),
	    "Z error tester[%ld] conn=17 upstream \"m\": refused\n",
	    (long)getpid());
	tap_ok(strlen(s) > 23 && s[4] == '-' && s[10] == 'T' && s[19] == '.',
	    "a time comes first");
	tap_is_str(strlen(s) > 23 ? s + 23 : s, want, "then the rest");
	log_info("quiet");
	tap_is_str(drain(), "", "info is off at first");
	log_debug("%s", "quiet");
	tap_is_str(drain(), "", "so is debug");
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("%s", "loud");
	tap_ok(strstr(drain(), " debug tester[") != NULL, "debug on");
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("quiet");
	tap_is_str(drain(), "", "warn off");
	log_set_level(LOG_LEVEL_INFO);
	tap_is_int(log_level(), LOG_LEVEL_INFO, "the level is told");
	tap_is_str(log_level_name(LOG_LEVEL_NOTICE), "notice", "by name");
	tap_is_str(log_level_name(LOG_LEVEL_N), "?", "no name");
}

static void
test_escape(void)
{
	char big[5000];
	const char *s;

	log_warn("a\nb\tc\x1b[0m\x7f\xc3\xa4\xff\\%%");
	s = drain();
	tap_ok(strstr(s, "a\\x0ab\\x09c\\x1b[0m\\x7f\\xc3\\xa4\\xff\\%\n"),
	    "untrusted bytes are escaped");
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	log_warn("%s", big);
	s = drain();
	tap_ok(strlen(s) <= 1024 && strlen(s) > 1000, "at most 1 KiB");
	tap_ok(strcmp(s + strlen(s) - 4, "...\n") == 0, "marked as cut");
	memset(big, '\n', sizeof(big) - 1);
	log_warn("%s", big);
	s = drain();
	tap_ok(strlen(s) <= 1024 && strchr(s, '\n') == s + strlen(s) - 1,
	    "one line, also when every byte is escaped");
}

static void
test_rate(void)
{
	unsigned lines = 0, i;
	const char *s;

	next_window();
	log_warn("new second");
	for (i = 0; i < 1000; i++)
		log_warn("line %u", i);
	for (s = drain(); (s = strchr(s, '\n')) != NULL; s++)
		lines++;
	if (lines != 200)
		tap_diag("%u lines", lines);
	tap_ok(lines >= 200 && lines < 1001, "lines are dropped");
	log_error("other level");
	tap_ok(strstr(drain(), "other level") != NULL, "levels count apart");
	next_window();
	log_error("later");
	s = drain();
	tap_ok(strstr(s, "warn lines dropped") != NULL, "drops are told");
	tap_ok(strstr(s, "later") != NULL, "and it goes on");
	log_warn("back");
	tap_ok(strstr(drain(), "back") != NULL, "that level too");
}

/* The reader of a pipe whose flags others share, or of a socket, stops. */
static void
test_reader_stops(void)
{
	char block[4096] = { 0 };
	int two[2], i;

	if (pipe(two) != 0)
		return;
	(void)fcntl(two[0], F_SETFL, O_NONBLOCK);
	while (log_put(two[1], block, sizeof(block)) > 0)
		continue;
	tap_is_int(fcntl(two[1], F_GETFL) & O_NONBLOCK, 0,
	    "a full pipe did not block, and has its flags");
	log_set_fd(two[1]);
	for (i = 0; i < 3; i++)
		log_error("into a full pipe");
	while (read(two[0], block, sizeof(block)) > 0)
		continue;
	log_error("it reads again");
	memset(block, 0, sizeof(block));
	tap_ok(read(two[0], block, sizeof(block) - 1) > 0 &&
		strstr(block, "it reads again\n") != NULL &&
		strstr(block, " 3 lines before this one were lost") != NULL,
	    "what was lost is counted and told");
	log_error("once");
	memset(block, 0, sizeof(block));
	tap_ok(read(two[0], block, sizeof(block) - 1) > 0 &&
		strstr(block, "once\n") != NULL &&
		strstr(block, "lost") == NULL,
	    "once");
	close(two[0]);
	close(two[1]);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, two) != 0)
		return;
	while (log_put(two[1], block, sizeof(block)) > 0)
		continue;
	tap_ok(true, "a full socket did not block");
	close(two[0]);
	tap_is_int((long)log_put(two[1], block, 10), 0,
	    "nor does one that is gone");
	close(two[1]);
}

static void
test_broken(void)
{
	char zeros[4096] = { 0 };
	int full[2];

	errno = EDOM;
	log_set_fd(-1);
	log_error("nowhere");
	tap_is_int(errno, EDOM, "errno is kept");
	log_set_fd(rd); /* not writable */
	log_error("fails");
	tap_is_int(errno, EDOM, "a failing write is ignored");
	if (pipe2(full, O_NONBLOCK) == 0) {
		while (write(full[1], zeros, sizeof(zeros)) > 0)
			continue;
		errno = EDOM;
		log_set_fd(full[1]);
		log_error("full");
		tap_is_int(errno, EDOM, "a full pipe does not block");
		close(full[0]);
		close(full[1]);
	} else {
		tap_skip(1, "no pipe");
	}
	log_set_syslog(true);
	log_error("unit test of the log");
	tap_is_int(errno, EDOM, "syslog, whether it is there or not");
	log_set_syslog(false);
	log_set_fd(wr);
	log_error("again");
	tap_ok(strstr(drain(), "again\n") != NULL, "back to the descriptor");
}

int
main(void)
{
	int fds[2];

	if (pipe(fds) != 0)
		return 1;
	rd = fds[0];
	wr = fds[1];
	(void)fcntl(rd, F_SETFL, O_NONBLOCK);
	(void)fcntl(wr, F_SETFL, O_NONBLOCK);
	(void)fcntl(wr, F_SETPIPE_SZ, 1 << 18);
	log_init("tester");
	log_set_fd(wr);
	test_line();
	test_escape();
	test_rate();
	test_broken();
	test_reader_stops();
	close(rd);
	close(wr);
	return tap_done();
}
