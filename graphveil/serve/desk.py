"""Answers to requests for predictions: which rows a caller may read, and which rows are released."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from graphveil.serve import refusals
from graphveil.serve.gate import Scope
from graphveil.serve.keys import Key
from graphveil.serve.limits import Limits
from graphveil.serve.questions import Invocation, PredictQuestion, parsed, within
from graphveil.serve.refusals import Refusal, as_bytes
from graphveil.serve.runs import Id, Row, ServedRun

if TYPE_CHECKING:
    from graphveil.serve.releases.office import Office


class Desk:
    """Answers requests for predictions of some runs, as JSON.

    Args:
        runs: by name.
        limits: how many ids a request may have.
        office: makes new releases; None where none are made.
    """

    def __init__(self, runs: Mapping[str, ServedRun], limits: Limits, office: "Office | None" = None) -> None:
        """Take the runs."""
        self._runs, self._limits, self._office = runs, limits, office

    async def predict(self, body: bytes, key: Key | None, scope: Scope) -> bytes:
        """Answer ``/v1/predict``."""
        question = parsed(PredictQuestion, body)
        run = self._chosen(question.run)
        if question.fresh:
            rows = await self._fresh(question, key)
        else:
            rows = self._rows(run, question.ids or [], key)
        return as_bytes({"run": run.name, "predictions": rows})

    async def invocations(self, body: bytes, key: Key | None, scope: Scope) -> bytes:
        """Answer ``/invocations``."""
        question, names = parsed(Invocation, body), dict(parse_qsl(scope["query_string"].decode("latin-1")))
        return as_bytes({"predictions": self._rows(self._chosen(names.get("run")), question.asked(), key)})

    async def _fresh(self, question: PredictQuestion, key: Key | None) -> list[Row]:
        """Return rows of new records, if there is a budget and the caller may spend it."""
        if self._office is None:
            raise refusals.needs_a_release()
        if key is None or not key.releases:
            raise refusals.may_not_release()
        return await self._office.rows(question.records, question.edges, self._limits.ids, key)

    def _rows(self, run: ServedRun, ids: list[Id], key: Key | None) -> list[Row]:
        """Return released rows to a caller who may read all of them.

        Unknown ids are checked after that, so that other callers get one answer for known and unknown ids.
        """
        if run.by_subject and (key is None or not key.entitled(within(ids, self._limits.ids))):
            raise refusals.not_entitled()
        ids = run.spelled(within(ids, self._limits.ids))
        unknown = run.unknown(ids)
        if unknown:
            quoted = run.id_type is int and any(isinstance(ids[position], str) for position in unknown)
            raise refusals.unknown_ids(unknown, quoted=quoted)
        return run.rows(ids)

    def _chosen(self, name: str | None) -> ServedRun:
        if name is None and len(self._runs) == 1:
            return next(iter(self._runs.values()))
        if name is None or name not in self._runs:
            raise Refusal(404, "NotFound", "Set `run` to one of the runs that GET /v1/privacy lists.")
        return self._runs[name]
