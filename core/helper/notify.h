/* Telling the service manager how things stand. */
#ifndef SP_HELPER_NOTIFY_H
#define SP_HELPER_NOTIFY_H

#include <stdint.h>

/*
 * Sends a state such as "READY=1" to NOTIFY_SOCKET, if there is one.
 * Source:  sd_notify(3).
 * Context: helper; does not block; failure is of no consequence.
 */
void notify_send(const char *state);
/* "RELOADING=1" with the time that sd_notify(3) asks for. */
void notify_reloading(void);
/*
 * The longest silence that the manager allows (WATCHDOG_USEC); 0: it does not
 * watch this process.
 */
uint64_t notify_watchdog_ms(void);

#endif
