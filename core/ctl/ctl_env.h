/* sallyportctl env check: an environment tried out, step by step. */
#ifndef SP_CTL_CTL_ENV_H
#define SP_CTL_CTL_ENV_H

extern const char ctl_env_usage[];
/*
 * Context: a shell; blocks.
 * Parameters: argv[0] is "env".
 * Returns: the exit status: 0 every step worked; 1 one failed; 2 the arguments,
 *          or nothing answers.
 */
int ctl_env(int argc, char **argv);

#endif
