"""The chain over dendrograms: a proposal, its change of both likelihoods, and the decision.

An internal node y = (i, j) with its parent x = (y, k) becomes ((i, k), j) or ((j, k), i). Only the counts at
x and y change, and all edges that matter cross x: so every internal node keeps the list of its edges, and a
proposal reads x's. The counts of nodes add up to the number of edges, so a list is short on average, and
which of i, j and k an end lies under takes a walk that ends there.

`_native.c` has the same operations in the same order, and so the same bits: a change here is one there.
Interpreted, a step takes some ten microseconds, and in C one or two.
"""

from math import exp, log, log1p

from graphveil._kernels import Floats, Ints


def score(slots: int, edges: int) -> float:
    """Return l(N, e) = e ln(e / N) + (N - e) ln(1 - e / N), the log-likelihood of a block at its best p."""
    found = 0.0
    if edges > 0 and edges < slots:
        found = edges * log(edges / slots) + (slots - edges) * log1p(-1.0 * edges / slots)
    return found


def step_bound(slots: int) -> float:
    """Return f(N) = ln N + (N - 1) ln(N / (N - 1)): the most that one edge moves l(N, e)."""
    found = 0.0
    if slots > 1:
        found = log(slots) + (slots - 1) * log1p(1.0 / (slots - 1))
    return found


def larger(first: float, second: float) -> float:
    """Return the larger of two numbers."""
    found = first
    if second > first:
        found = second
    return found


def walk(
    steps: int,
    first: int,
    leaves: int,
    every: int,
    joint: int,
    lazy: int,
    weights: Floats,
    pick: Ints,
    turn: Ints,
    coin: Floats,
    left: Ints,
    right: Ints,
    parent: Ints,
    size: Ints,
    counts: Ints,
    scores: Floats,
    head: Ints,
    following: Ints,
    one: Ints,
    other: Ints,
    kind: Ints,
    under: Ints,
    done: Ints,
) -> None:
    """Take steps of the chain, in place.

    Args:
        steps, first: how many, and the number of the first.
        leaves: n; internal nodes are n to 2n - 2, of which the last is the root.
        every: each so many-th step is private.
        joint: whether private steps weigh the public change, too.
        lazy: whether private steps stay where they are half of the time, with the tight weight of each move.
        weights: of the public change, of the private one, and the loss kappa of a lazy step.
        pick, turn, coin: of each step: which internal node, which of two moves, and a uniform in [0, 1); a
            lazy step stays for turns of 2 and 3.
        left, right, parent, size: the tree.
        counts, scores: of each node: public, private.
        head, following: of each node its first edge, of each edge the next one; -1 is none.
        one, other, kind, under: of each edge: its ends, its kind, and scratch.
        done: how many moves were accepted, and the private ones among them.
    """
    step = 0
    while step < steps:
        private = 0
        if (first + step + 1) % every == 0:
            private = 1
        stays = 0
        if private == 1 and lazy == 1 and turn[step] > 1:
            stays = 1
        if stays == 0:
            y = leaves + pick[step]
            x = parent[y]
            i = left[y]
            j = right[y]
            k = left[x]
            if k == y:
                k = right[x]
            if turn[step] % 2 == 1:
                i = right[y]
                j = left[y]
            public_new = 0
            private_new = 0
            edge = head[x]
            while edge >= 0:
                end = one[edge]
                while end != i and end != j and end != k:
                    end = parent[end]
                if end == k:
                    end = other[edge]
                    while end != i and end != j:
                        end = parent[end]
                under[edge] = 0
                if end == i:
                    under[edge] = 1
                    if kind[edge] == 0:
                        public_new += 1
                    else:
                        private_new += 1
                edge = following[edge]
            pairs_y = size[i] * size[j]
            pairs_x = size[y] * size[k]
            pairs_new = size[i] * size[k]
            pairs_rest = (size[i] + size[k]) * size[j]
            public_rest = counts[2 * x] + counts[2 * y] - public_new
            private_rest = counts[2 * x + 1] + counts[2 * y + 1] - private_new
            public_y = score(pairs_new, public_new)
            public_x = score(pairs_rest, public_rest)
            private_y = score(pairs_new - public_new, private_new)
            private_x = score(pairs_rest - public_rest, private_rest)
            ratio = weights[0] * (public_y + public_x - scores[2 * y] - scores[2 * x])
            if private == 1:
                gain = private_y + private_x - scores[2 * y + 1] - scores[2 * x + 1]
                weight = weights[1]
                if lazy == 1:
                    was_y = step_bound(pairs_y - counts[2 * y])
                    was_x = step_bound(pairs_x - counts[2 * x])
                    new_y = step_bound(pairs_new - public_new)
                    new_x = step_bound(pairs_rest - public_rest)
                    bound = larger(larger(was_y + new_x, was_x + new_y), was_x + new_x)
                    weight = 0.0
                    if bound > 0.0:
                        weight = weights[2] / bound
                if joint == 0:
                    ratio = 0.0
                ratio = ratio + weight * gain
                if lazy == 1:  # a chance that coins of 53 bits resolve well; a cut loses nothing more
                    ratio = larger(ratio, -13.0)
            accepted = 0
            if ratio >= 0.0:
                accepted = 1
            else:
                if coin[step] < exp(ratio):
                    accepted = 1
            if accepted == 1:
                to_y = -1
                to_x = -1
                edge = head[x]
                while edge >= 0:
                    after = following[edge]
                    if under[edge] == 1:
                        following[edge] = to_y
                        to_y = edge
                    else:
                        following[edge] = to_x
                        to_x = edge
                    edge = after
                edge = head[y]
                while edge >= 0:
                    after = following[edge]
                    following[edge] = to_x
                    to_x = edge
                    edge = after
                head[y] = to_y
                head[x] = to_x
                left[y] = i
                right[y] = k
                left[x] = y
                right[x] = j
                parent[k] = y
                parent[j] = x
                size[y] = size[i] + size[k]
                counts[2 * y] = public_new
                counts[2 * x] = public_rest
                counts[2 * y + 1] = private_new
                counts[2 * x + 1] = private_rest
                scores[2 * y] = public_y
                scores[2 * x] = public_x
                scores[2 * y + 1] = private_y
                scores[2 * x + 1] = private_x
                done[0] += 1
                done[1] += private
        step += 1
