/* Commands of sallyportctl that are a program of their own. */
#ifndef SP_CTL_START_H
#define SP_CTL_START_H

/*
 * Becomes sallyport-trace, which verifies what it shows: the library that
 * takes is as long in starting as all of sallyportctl, and nothing else needs
 * it.  It stands beside this executable, or where the build put it.
 * Context: sallyportctl.
 * Returns: the exit status, when it cannot be started: 2.
 */
int ctl_start_trace(int argc, char **argv);

#endif
