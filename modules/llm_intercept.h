/* The model door. */
#ifndef SP_LLM_INTERCEPT_H
#define SP_LLM_INTERCEPT_H

#include "gate/gate.h"

extern const struct gate_module llm_intercept_module;

#endif
