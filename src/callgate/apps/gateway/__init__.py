"""The gateway: clean tool calls for every client, in front of every server.

Law: every exchange that began ends in exactly one record, whatever became of it.
(tests/test_gateway_openai.py::test_every_exchange_ends_in_one_record)

`routes` serves the APIs of models, `runs` those of agents, `app` joins them; `gate` is what both sides share. Nothing
here decides about calls by itself: it reads with `formats`, asks with `protocols` and checks with `schema`.
"""
