/* Configuration of the model door, for one location. */
#ifndef SP_LLM_INTERCEPT_CONF_H
#define SP_LLM_INTERCEPT_CONF_H

#include "conf/conf.h"

enum llm_keys { LLM_KEYS_OPEN, LLM_KEYS_SESSION, LLM_KEYS_AUTO };

struct llm_intercept_conf {
	const struct conf_upstream *upstream;
	const struct conf_capture *capture; /* NULL: capture off */
	unsigned keys; /* enum llm_keys */
	bool session_path; /* /ID/v1/... beneath the location */
	struct conf_list pass; /* paths forwarded and not captured */
	uint64_t keepalive_comment_ms; /* own ": ka" comments; 0 off */
};

extern const struct conf_module llm_intercept_conf;

#endif
