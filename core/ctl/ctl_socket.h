/* Where the control socket is. */
#ifndef SP_CTL_SOCKET_H
#define SP_CTL_SOCKET_H

/* -S PATH: before anything is asked; borrowed. */
void ctl_socket_set(const char *path);
/*
 * Source:  the directive control: what -S named, else SALLYPORT_CONTROL, else
 *          for an ordinary user the socket of his own sallyport, where there
 *          is one, else the system's.
 * Context: sallyportctl, start-up.
 * Returns: "unix:/PATH", for ctl_http; NULL without memory, or when the path
 *          is not absolute.  It lives until the end.
 */
const char *ctl_socket_url(void);

#endif
