"""One run of an agent without I/O: inputs go in, events and commands come out.

One law: a run is the fold of its inputs. The same inputs to a fresh `Run` give the same events and commands, so a run
is resumed by feeding its journal to a new one (`_journal`), and one loop serves agent, gateway, worker and replay.

Theory of operation. A run goes through phases: `model` (an answer is awaited), `calls` (people decide about calls, and
calls run), `model` again … up to `ended`; `score` is `model` for likelihoods, `parked` is `calls` after the process let
go of a question. (1) A turn is a generator of `protocols`; the run carries its steps out as commands. (2) An answer
that cannot be used goes back with the reason, `retries` times, then the ladder of protocols goes one step down.
(3) Limits are checked before each request and before anything of a batch of calls runs; what is over does not start.
(4) Each call gets exactly one result, whatever happens, and only whole turns enter the history. (5) An identical write
of the run is answered, not started. (6) Every input is recorded before what follows from it is carried out.
"""

from __future__ import annotations

from callgate.run._machine import Run
from callgate.run._words import (
    Answered,
    AskPerson,
    Began,
    Broke,
    Cancelled,
    Command,
    End,
    Execute,
    Failed,
    Input,
    LookUp,
    Parked,
    Pending,
    Progressed,
    Ran,
    Received,
    Record,
    Resumed,
    RunConfig,
    Scored,
    ScoreText,
    Send,
    Step,
    Tick,
)

__all__ = [
    "Answered",
    "AskPerson",
    "Began",
    "Broke",
    "Cancelled",
    "Command",
    "End",
    "Execute",
    "Failed",
    "Input",
    "LookUp",
    "Parked",
    "Pending",
    "Progressed",
    "Ran",
    "Received",
    "Record",
    "Resumed",
    "Run",
    "RunConfig",
    "ScoreText",
    "Scored",
    "Send",
    "Step",
    "Tick",
]
