"""The executor: runs the calls that the gate allowed, and brings each to exactly one result.

Law: one result for every call, whatever the tools do, and a write that was started is never started again.
(tests/test_executor_laws.py::test_every_call_has_one_result_in_order_and_writes_stand_alone)

Theory of operation. (1) `plan` cuts the calls into batches: neighbouring reads overlap, a write stands alone, and the
order of the calls is kept (X3); a tool that names others in `after` begins a new batch behind them. (2) Before a write
starts, the observer must have recorded it (X4); what that gives back instead of None is the call's result, and the
tool is not run; at the very last moment the observer may still name an obstacle. (3) Sync tools run in threads, others
in tasks, `process` tools in a process of their own; each has a real deadline (X5). (4) A cancel has three grades: what
has not started never does; what runs gets to know (`cancelled()`, `CancelledError`); what has not ended after `grace`
seconds is abandoned, counted and reported (X6). (5) A write of which nobody knows how it ended is looked up
(`lookup`), at once and at most once; unless that settles it, its outcome is unknown; and while our own thread, task or
process may still carry it out, "it never happened" settles nothing. (6) Only reads are tried again, only after
`UpstreamError`, only as often as the tool says.
"""

from __future__ import annotations

from callgate.executor._batch import Batch, Observer, plan
from callgate.executor._executor import Caller, Executor
from callgate.executor._threads import Threads

__all__ = ["Batch", "Caller", "Executor", "Observer", "Threads", "plan"]
