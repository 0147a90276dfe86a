/* sallyportctl upstream. */
#ifndef SP_CTL_UPSTREAM_H
#define SP_CTL_UPSTREAM_H

/*
 * Returns: the exit status: 0; 1 the gateway refused; 2 usage, or it cannot
 *          be reached.
 */
int ctl_upstream(int argc, char **argv);
extern const char ctl_upstream_usage[];

#endif
