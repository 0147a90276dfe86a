/* sallyportctl status and sallyportctl guarantees: tables. */
#ifndef SP_CTL_STATUS_H
#define SP_CTL_STATUS_H

/*
 * Returns: the exit status: 0; 1 the gateway refused; 2 usage, or it cannot
 *          be reached.
 */
int ctl_status(int argc, char **argv);
int ctl_status_guarantees(int argc, char **argv);
extern const char ctl_status_usage[];

#endif
