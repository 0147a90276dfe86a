/*
 * The error log: one line, one write(2) of at most 1 KiB:
 *   2026-11-29T13:21:24.123Z warn reactor[812] conn=17 upstream "m": refused
 * Bytes below space, DEL and above are escaped as \xNN in the output.  No
 * secrets, no bodies.
 */
#ifndef SP_BASE_LOG_H
#define SP_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARN,
	LOG_LEVEL_NOTICE,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
	LOG_LEVEL_N
};

/*
 * Context: any; does not wait for whoever reads the log: lines that are not
 *          taken are counted, and told of when one is again.
 * Parameters: role, static text such as "reactor"; fd, where lines go (2 at
 *          first; -1 none), borrowed; to_syslog, lines go to syslog(3).
 */
void log_init(const char *role);
void log_set_fd(int fd);
void log_set_syslog(bool on);
void log_set_level(enum log_level level);
enum log_level log_level(void);
const char *log_level_name(enum log_level level);

/*
 * Writes what can be written at once, whatever the descriptor is: its flags,
 * which others may share, are left alone.
 * Context: any, does not block.
 * Returns: how many bytes were taken.
 */
size_t log_put(int fd, const void *p, size_t n) must_check;

/*
 * At most 200 lines a second of each level; what is dropped is counted and
 * told in one line when the second is over.
 */
void log_msg(enum log_level level, const char *fmt, ...) printf_like(2, 3);
#define log_error(...) log_msg(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_msg(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_notice(...) log_msg(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_info(...) log_msg(LOG_LEVEL_INFO, __VA_ARGS__)
/* Evaluates its arguments only when the level is on. */
#define log_debug(...) \
	(log_level() >= LOG_LEVEL_DEBUG \
		? log_msg(LOG_LEVEL_DEBUG, __VA_ARGS__) \
		: (void)0)

#endif
