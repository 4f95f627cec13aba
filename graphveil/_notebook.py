"""What notebooks show of an object: a small table, escaped, with no script and no style of its own."""

from collections.abc import Iterable, Sequence

from graphveil._util.escape import html


def card(title: str, facts: Iterable[tuple[str, str]], note: str = "") -> str:
    """Return a heading, names and values, and a sentence.

    >>> card("Graph", [("nodes", "<3>")])
    '<div><b>Graph</b><table><tr><th>nodes</th><td>&lt;3&gt;</td></tr></table></div>'
    """
    rows = "".join(f"<tr><th>{html(name)}</th><td>{html(value)}</td></tr>" for name, value in facts)
    return f"<div><b>{html(title)}</b><table>{rows}</table>{f'<p>{html(note)}</p>' if note else ''}</div>"


def sheet(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> str:
    """Return a heading and a table with a row of names.

    >>> sheet("Sweep", ["method"], [["gap"]])
    '<div><b>Sweep</b><table><tr><th>method</th></tr><tr><td>gap</td></tr></table></div>'
    """
    first = "".join(f"<th>{html(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{html(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return (
        f"<div><b>{html(title)}</b><table><tr>{first}</tr>{body}</table>"
        f"{f'<p>{html(note)}</p>' if note else ''}</div>"
    )
