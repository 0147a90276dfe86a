/* sallyportctl exec. */
#ifndef SP_CTL_EXEC_H
#define SP_CTL_EXEC_H

/*
 * Runs a command in an episode, with this process's standard streams.
 * Returns: the exit status: the command's; 128 and the signal that ended it;
 *          124 timeout; 125 the sandbox failed; 126 the command cannot be
 *          run; 127 there is none.
 */
int ctl_exec(int argc, char **argv);
extern const char ctl_exec_usage[];

#endif
