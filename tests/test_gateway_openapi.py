"""The gateway's own API against the document that describes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from gateway_process import Gateway
from test_gateway_runs import Client, server

pytestmark = pytest.mark.timeout(90)  # a real process, on a machine that may be busy
KEY = "cg-fuzz-0000001"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A server with runs in every state."""
    with server(tmp_path_factory.mktemp("openapi"), ledger=None) as (found, _), Client(found) as client:
        for prompt, state in (("look lamp", "ended"), ("pay bob", "waiting")):
            client.until(client.begin(prompt, id=f"state-{state}"), state)
        yield found


def test_the_document_is_valid_and_names_every_path(served: Gateway) -> None:
    document = httpx.get(f"{served.url}/openapi.json").json()
    schemathesis.openapi.from_dict(document).validate()
    for path in ("/runs", "/runs/{id}", "/runs/{id}/events", "/runs/{id}/answers", "/healthz", "/readyz", "/metrics"):
        assert path in document["paths"]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"].endswith("."), path


OPERATIONS = [
    "begin_run", "list_runs", "show_run", "follow_run", "cancel_run", "answer", "resume_run", "show_call",
    "settle_call", "list_questions", "list_calls", "stats", "list_exchanges", "list_tools", "health", "ready",
    "metrics", "document",
]  # fmt: skip


MORE_RULES = {"begin_run", "settle_call"}
"""Whose bodies have rules that a schema does not say: a tool that is there, fields that exclude each other."""


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
def test_the_server_does_what_its_document_says(served: Gateway, name: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_dict(httpx.get(f"{served.url}/openapi.json").json())
    schema.config.update(base_url=served.url)
    found = [result.ok() for result in schema.get_all_operations()]
    assert sorted(str(one.definition.raw["operationId"]) for one in found) == sorted(OPERATIONS)
    [operation] = [one for one in found if one.definition.raw["operationId"] == name]
    if mode is GenerationMode.NEGATIVE and not (operation.body or operation.query):
        return  # there is nothing that could be wrong

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: schemathesis.Case) -> None:
        # Some requests find something. A stream of a run that waits has no end, so it is not followed.
        known = ["state-ended", "state-waiting", *[case.path_parameters.get("id", "")] * 2]
        if "id" in case.path_parameters:
            places = known[:1] if name == "follow_run" else known
            case.path_parameters["id"] = places[len(str(case.path_parameters["id"])) % len(places)]
        case.call_and_validate(timeout=10, excluded_checks=[positive_data_acceptance] if name in MORE_RULES else [])

    ask()


def test_with_keys_the_document_says_so_and_needs_one(tmp_path: Path) -> None:
    with server(tmp_path, "--key", KEY, ledger=None) as (served, _):
        assert httpx.get(f"{served.url}/openapi.json").status_code == 401
        document = httpx.get(f"{served.url}/openapi.json", headers={"x-api-key": KEY}).json()
        assert document["paths"]["/runs"]["post"]["security"]
        assert "security" not in document["paths"]["/healthz"]["get"]
        assert set(document["components"]["securitySchemes"]) == {"key", "header"}
