"""Answers to requests for predictions: which rows a caller may read, and which rows are released."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from graphveil.serve import error_responses
from graphveil.serve.error_responses import RequestError, to_json_bytes
from graphveil.serve.keys import Key
from graphveil.serve.limits import Limits
from graphveil.serve.middleware import Scope
from graphveil.serve.request_bodies import Invocation, PredictRequest, check_id_count, parse_body
from graphveil.serve.runs import Id, Row, ServedRun

if TYPE_CHECKING:
    from graphveil.serve.releases.release_service import ReleaseService


class PredictionHandler:
    """Answers requests for predictions of some runs, as JSON.

    Args:
        runs: by name.
        limits: how many ids a request may have.
        release_service: makes new releases; None where none are made.
    """

    def __init__(
        self, runs: Mapping[str, ServedRun], limits: Limits, release_service: "ReleaseService | None" = None
    ) -> None:
        """Take the runs."""
        self._runs, self._limits, self._release_service = runs, limits, release_service

    async def predict(self, body: bytes, key: Key | None, scope: Scope) -> bytes:
        """Answer ``/v1/predict``."""
        request_body = parse_body(PredictRequest, body)
        run = self._find_run(request_body.run)
        if request_body.needs_new_release:
            rows = await self._new_release(request_body, key)
        else:
            rows = self._rows(run, request_body.ids or [], key)
        return to_json_bytes({"run": run.name, "predictions": rows})

    async def invocations(self, body: bytes, key: Key | None, scope: Scope) -> bytes:
        """Answer ``/invocations``."""
        request_body, names = (
            parse_body(Invocation, body),
            dict(parse_qsl(scope["query_string"].decode("latin-1"))),
        )
        return to_json_bytes(
            {"predictions": self._rows(self._find_run(names.get("run")), request_body.column_ids(), key)}
        )

    async def _new_release(self, request_body: PredictRequest, key: Key | None) -> list[Row]:
        """Return rows of new records, if there is a budget and the caller may spend it."""
        if self._release_service is None:
            raise error_responses.release_required()
        if key is None or not key.releases:
            raise error_responses.release_forbidden()
        return await self._release_service.rows(
            request_body.records, request_body.edges, self._limits.ids, key
        )

    def _rows(self, run: ServedRun, ids: list[Id], key: Key | None) -> list[Row]:
        """Return released rows to a caller who may read all of them.

        Unknown ids are checked after that, so that other callers get one answer for known and unknown ids.
        """
        if run.by_subject and (key is None or not key.authorizes(check_id_count(ids, self._limits.ids))):
            raise error_responses.forbidden_row()
        ids = run.spelled(check_id_count(ids, self._limits.ids))
        unknown = run.unknown(ids)
        if unknown:
            quoted = run.id_type is int and any(isinstance(ids[position], str) for position in unknown)
            raise error_responses.ids_not_found(unknown, quoted=quoted)
        return run.rows(ids)

    def _find_run(self, name: str | None) -> ServedRun:
        if name is None and len(self._runs) == 1:
            return next(iter(self._runs.values()))
        if name is None or name not in self._runs:
            raise RequestError(404, "NotFound", "Set `run` to one of the runs that GET /v1/privacy lists.")
        return self._runs[name]
