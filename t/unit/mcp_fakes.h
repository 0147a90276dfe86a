/*
 * For t/unit/test_mcp*.c alone: the worker and the grading of an episode are
 * played by the test, whatever the gate has of them; and what is unread.
 */
#ifndef SP_T_UNIT_MCP_FAKES_H
#define SP_T_UNIT_MCP_FAKES_H

#define worker_of fake_worker_of
#define worker_state fake_worker_state
#define worker_initialized fake_worker_initialized
#define worker_call fake_worker_call
#define worker_forget fake_worker_forget
#define worker_cancel fake_worker_cancel
#define worker_hold fake_worker_hold
#define exchange_queued fake_exchange_queued
#define worker_tell fake_worker_tell
#define worker_watch fake_worker_watch
#define worker_unwatch fake_worker_unwatch
#define grading_read fake_grading_read
#define grading_diff fake_grading_diff
#define grading_run fake_grading_run
#define grading_forget fake_grading_forget

#endif
