"""Names that users can have met where they were: found, with a warning that says where they are."""

import pytest

from graphveil import aggregate


@pytest.mark.parametrize("name", aggregate._MOVED)
def test_a_documented_name_is_found_where_it_was_and_says_where_it_is(name: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"import {name} from graphveil") as warned:
        assert getattr(aggregate, name).__name__ == name
    assert warned[0].filename == __file__


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'HopQuery'"):
        aggregate.HopQuery  # noqa: B018
