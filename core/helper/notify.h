/* Telling the service manager how things stand. */
#ifndef SP_HELPER_NOTIFY_H
#define SP_HELPER_NOTIFY_H

/*
 * Sends a state such as "READY=1" to NOTIFY_SOCKET, if there is one.
 * Source:  sd_notify(3).
 * Context: helper; does not block; failure is of no consequence.
 */
void notify_send(const char *state);

#endif
