"""Answers of a type: a list of dataclasses, a function, and the output while it is written.

python examples/outputs.py
"""

from __future__ import annotations

from dataclasses import dataclass

from callgate import Agent, Replay


@dataclass
class City:
    name: str
    people: int

    def __post_init__(self) -> None:
        if self.people < 1:
            raise ValueError("a city has people")


def total(cities: list[City]) -> int:
    """What the model writes are the arguments; the output is the sum."""
    return sum(city.people for city in cities)


WRONG = '[{"name": "Paris", "people": 0}]'
RIGHT = '[{"name": "Paris", "people": 2000000}, {"name": "Lyon", "people": 500000}]'

agent = Agent(Replay([WRONG, RIGHT]), output=list[City])
result = agent.run_sync("The two largest cities of France?")
print(result.output, "after", result.requests, "requests")  # the validator's words went back to the model

summed = Agent(Replay(['{"cities": ' + RIGHT + "}"])).run_sync("And together?", output=total)
print(summed.output)

stream = Agent(Replay([{"content": RIGHT, "chunks": 12}])).stream_sync("Again, please.", output=list[City])
for value in stream.outputs():
    print(value)
