/* What the rules of an environment let out, and what none can. */
#ifndef SP_GATE_RELAY_RULES_H
#define SP_GATE_RELAY_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "conf/conf_env.h"

/*
 * Context: any; no allocation.
 * Parameters: name, as hosts_name() wrote it; addr in host byte order.
 * Returns: the rule that lets it out, or NULL.
 */
const struct conf_env_rule *relay_rules_host(const struct conf_environment *e,
    struct view name, uint16_t port) must_check;
const struct conf_env_rule *relay_rules_addr(const struct conf_environment *e,
    uint32_t addr, uint16_t port) must_check;
/* Whether any host may be reached at that port. */
bool relay_rules_hosts(const struct conf_environment *e,
    uint16_t port) must_check;
/*
 * Whether that is an address of this host, as its table of local routes has
 * it now; also those of networks that are local as a whole.  Whatever cannot
 * be told counts as one.
 * Source:  ip(7), IP_MULTICAST_IF: the kernel looks the address up among its
 *          own, without privilege and without netlink.
 * Parameters: fd, any datagram socket of IPv4, which is not used else.
 */
bool relay_rules_is_local(int fd, uint32_t addr) must_check;

#endif
