"""What may be asked, and which ids a question is about."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError

from graphveil.serve.refusals import Refusal, needs_a_release, unreadable

ID = "id"
_Id = Annotated[StrictInt, Field(ge=-(2**63), lt=2**64)] | Annotated[StrictStr, Field(max_length=1000)]
_Ids = Annotated[list[_Id], Field(min_length=1)]
_IDS = TypeAdapter[list[int | str]](_Ids)


class _Question(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PredictQuestion(_Question):
    """Ids of nodes of one run. New records are understood, and refused."""

    ids: _Ids | None = Field(default=None, examples=[[17, 4]])
    run: str | None = Field(default=None, description="The run's name; may be left out if there is one.")
    records: list[Any] | None = Field(default=None, description="Refused: they need a fresh release.")

    def asked(self) -> list[int | str]:
        """Return the ids."""
        if self.records is not None:
            raise needs_a_release()
        if self.ids is None:
            raise unreadable()
        return self.ids


class SplitFrame(_Question):
    """A table as pandas' ``to_dict(orient="split")`` writes it."""

    columns: list[str] = Field(examples=[[ID]])
    data: list[list[Any]] = Field(examples=[[[17], [4]]])
    index: list[Any] | None = None


class Invocation(_Question):
    """MLflow's shapes of a table, here of the one column ``id``."""

    dataframe_split: SplitFrame | None = None
    dataframe_records: list[dict[str, Any]] | None = None

    def asked(self) -> list[int | str]:
        """Return the column of ids."""
        if (self.dataframe_split is None) == (self.dataframe_records is None):
            raise unreadable()
        records = self.dataframe_records if self.dataframe_split is None else _records(self.dataframe_split)
        if any(record.keys() != {ID} for record in records or ()):
            raise needs_a_release()
        try:
            return _IDS.validate_python([record[ID] for record in records or ()])
        except ValidationError:
            raise unreadable() from None


def _records(frame: SplitFrame) -> list[dict[str, Any]]:
    """Return a table's rows by column."""
    if len(set(frame.columns)) < len(frame.columns) or any(
        len(row) != len(frame.columns) for row in frame.data
    ):
        raise unreadable()
    return [dict(zip(frame.columns, row, strict=True)) for row in frame.data]


def within(ids: list[int | str], most: int) -> list[int | str]:
    """Return ids that are not too many."""
    if len(ids) > most:
        raise Refusal(413, "TooLarge", f"a question may name {most:,} ids; ask in several")
    return ids
