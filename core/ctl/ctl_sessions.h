/* sallyportctl sessions. */
#ifndef SP_CTL_SESSIONS_H
#define SP_CTL_SESSIONS_H

/*
 * Returns: the exit status: 0; 1 the gateway refused; 2 usage, or it cannot
 *          be reached.
 */
int ctl_sessions(int argc, char **argv);
extern const char ctl_sessions_usage[];

#endif
