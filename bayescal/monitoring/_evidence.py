"""Evidence against calibration that may be checked after every row: an e-process."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.monitoring._alternatives import BinaryAlternatives, MulticlassAlternatives

#: Rows of a block: restarts begin before the first row of each.
BLOCK = 16
#: Blocks after which a group of restarts is closed, and groups that are kept at most.
_GROUP, _MAX_GROUPS = 16, 48
_ARRAYS = ("log_plain", "log_closed", "log_partial", "log_groups", "log_since")


class Evidence:
    r"""Bets on alternatives, half from the first row on and half with continual restarts.

    With likelihood ratios r and prior weights w of alternatives c, the wealth after t rows is

    .. math:: e_t = \tfrac12 \sum_c w_c \prod_{i \le t} r_{ic}
        + \tfrac12 \sum_j \gamma_j \sum_c w_c \prod_{j \le i \le t} r_{ic}

    over restarts j before every 16th row, with proportions gamma that sum to one; a future restart
    keeps its proportion. This is a nonnegative martingale of mean one if the probabilities are
    right, so P(e_t >= 1 / alpha for some t) <= alpha (Ville). Restarts detect a change after many
    calm rows much sooner than the bets from the first row on.

    A late change is still detected later than an early one. The evidence of its restart must first
    make up for the small proportion: 7.4, 10.5, 13.4 and 16.2 on the logarithmic scale after 1,000,
    10,000, 100,000 and a million calm rows. Proportions that sum to one must fall faster than
    1 / j, so no choice costs less than log j, which is 4.1, 6.4, 8.7 and 11.0; neighboring restarts
    add up and give back about 2. No other test avoids this cost: there are t / m disjoint periods
    of m rows in which a false alarm may be raised, all of which together have probability alpha, so
    a delay of m rows after t calm rows takes about log(t / (m alpha)) of evidence.

    In simulations of other proportions, the differences of (1 + j / 16) ** (-1 / 4), with a third
    of the wealth, need 30 to 50 rows less after 1,000 and 10,000 calm rows (of 332 and 402, for a
    slope of 0.6 and an offset of 0.3), but 5 to 20 % more rows if the change is in the first row.
    Fewer restarts with larger proportions gain nothing, because a change then waits for the next
    restart. Dividing the sum over all restarts by their number is not valid: this is no
    supermartingale, and exceeds any threshold sooner or later.
    """

    def __init__(self, alternatives: BinaryAlternatives | MulticlassAlternatives) -> None:
        self.alternatives = alternatives
        self.rows = 0
        #: Logarithm of the wealth now.
        self.log_wealth = 0.0
        self._log_weights = log_weights = np.log(alternatives.weights)
        #: Logarithms of wealth by alternative (c,) at the beginning of the current block: of the
        #: bets from the first row on, and of restarts in groups that are closed.
        self.log_plain = log_weights.copy()
        self.log_closed = np.full(len(log_weights), -np.inf)
        #: Logarithm of the product of the ratios in the current block so far.
        self.log_partial = np.zeros(len(log_weights))
        #: The first row of each group of restarts, and its wealth (groups, c) when the last group
        #: was closed; of the open group the wealth at the beginning of the block.
        self.group_rows: list[int] = [0]
        self.log_groups = np.full((1, len(log_weights)), -np.inf)
        #: Products since the last group was closed.
        self.log_since = np.zeros(len(log_weights))

    def update(self, probs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Add rows, at least one, and return the logarithm of the wealth after each (n,)."""
        result = np.empty(len(y))
        # Parts end where groups of restarts do.
        size = BLOCK * _GROUP
        begin = 0
        while begin < len(y):
            end = min(len(y), begin + size - self.rows % size)
            part = slice(begin, end)
            share = None if weights is None else weights[part]
            result[part] = self._add(probs[part], y[part], share)
            begin = end
        self.log_wealth = float(result[-1])
        return result

    def _add(self, probs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Add rows of one group of blocks."""
        n, c = len(y), len(self.log_plain)
        before = self.rows % BLOCK
        num_blocks = -(-(before + n) // BLOCK)
        whole = (before + n) % BLOCK == 0
        # Row i of block b comes at (i, b), so that each step below is one operation on all blocks.
        rows = np.arange(before, before + n)
        position = rows % BLOCK * num_blocks + rows // BLOCK
        size = BLOCK * num_blocks
        absent = np.ones(size, bool)
        absent[position] = False
        order = np.zeros(size, int)
        order[position] = np.arange(n)
        probs, y = probs[order], y[order]
        ratios = self.alternatives.ratios(probs, y) if weights is None else None
        if ratios is not None and self.log_partial.min() > -600:
            if n < size:
                ratios[absent] = 1
            products = ratios.reshape(BLOCK, num_blocks, c)
            products[before, 0] *= np.exp(self.log_partial)
            for i in range(1, BLOCK):
                np.multiply(products[i - 1], products[i], out=products[i])
            with np.errstate(divide="ignore"):
                log_starts = self._advance(np.log(products[-1]), whole)
            highest = log_starts.max(axis=1)
            shares = np.exp(log_starts - highest[:, None])
            wealth = np.log(np.einsum("ibc,bc->ib", products, shares))
        else:
            log_ratios = self.alternatives.log_ratios(probs, y)
            if weights is not None:
                log_ratios *= weights[order, None]
            log_ratios[absent] = 0
            log_products = log_ratios.reshape(BLOCK, num_blocks, c)
            log_products[before, 0] += self.log_partial
            for i in range(1, BLOCK):
                log_products[i] += log_products[i - 1]
            log_starts = self._advance(log_products[-1], whole)
            highest = log_starts.max(axis=1)
            wealth = _log_sum(log_products + (log_starts - highest[:, None]))
        # The wealth that waits for restarts to come.
        blocks = self.rows // BLOCK + np.arange(1, num_blocks + 1)
        waiting = -np.log(np.log2(blocks + 2))
        wealth = np.logaddexp(wealth + highest, waiting)
        self.rows += n
        return wealth.ravel()[position] - np.log(2)

    def _advance(self, log_totals: np.ndarray, whole: bool) -> np.ndarray:
        """Return the wealth at the start of each block (blocks, c), and move on to the last end.

        ``log_totals`` (blocks, c) are the gains of the blocks; ``whole`` says whether the last
        block is complete.
        """
        num_blocks = len(log_totals)
        first = self.rows // BLOCK
        gained = np.zeros((num_blocks + 1, log_totals.shape[1]))
        np.add.accumulate(log_totals, axis=0, out=gained[1:])
        newest, starts = self._restart(gained, first)
        earlier = np.logaddexp(self.log_plain, self.log_closed)
        log_starts = np.logaddexp(earlier + gained[:-1], starts)
        done = num_blocks if whole else num_blocks - 1
        self.log_plain = self.log_plain + gained[done]
        self.log_closed = self.log_closed + gained[done]
        self.log_since = self.log_since + gained[done]
        self.log_groups[-1] = newest[done]
        self.log_partial = np.zeros_like(self.log_plain) if whole else log_totals[-1].copy()
        if whole and (first + done) % _GROUP == 0:
            self._close_group((first + done) * BLOCK)
        return log_starts

    def _restart(self, gained: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
        """Compute the wealth of the open group's restarts.

        Returns it at the ends of blocks, before the next restart (blocks + 1, c), and at their
        starts, after the restart (blocks, c).
        """
        number = first + np.arange(len(gained) - 1)
        begun = self._log_weights + _log_shares(number, number + 1)[:, None]
        stakes = np.concatenate([self.log_groups[-1:], begun - gained[:-1]])
        highest = stakes.max()
        # Sums of exponentials are much faster than of logarithms, and exact unless one vanishes.
        if highest - stakes.min(where=stakes > -np.inf, initial=highest) < 600:
            stakes -= highest
            np.exp(stakes, out=stakes)
            np.add.accumulate(stakes, axis=0, out=stakes)
            with np.errstate(divide="ignore"):
                np.log(stakes, out=stakes)
            stakes += highest
        else:
            np.logaddexp.accumulate(stakes, axis=0, out=stakes)
        return stakes + gained, stakes[1:] + gained[:-1]

    def _close_group(self, next_row: int) -> None:
        """Bring all groups up to date, begin a new one, and merge old ones if there are many."""
        self.log_closed = np.logaddexp(self.log_closed, self.log_groups[-1])
        self.log_groups[:-1] += self.log_since
        self.log_since = np.zeros_like(self.log_since)
        if len(self.group_rows) == _MAX_GROUPS:
            # Neighbors are merged that are close for their distance from now.
            ages = next_row - np.array(self.group_rows)
            closest = int(np.argmin(ages[:-1] / ages[1:]))
            self.log_groups[closest] = np.logaddexp(*self.log_groups[closest : closest + 2])
            self.log_groups = np.delete(self.log_groups, closest + 1, axis=0)
            del self.group_rows[closest + 1]
        self.group_rows.append(next_row)
        empty = np.full((1, self.log_groups.shape[1]), -np.inf)
        self.log_groups = np.concatenate([self.log_groups, empty])

    @property
    def log_plain_evidence(self) -> float:
        """The logarithm of the wealth of the bets that were never restarted."""
        return float(_log_sum(self.log_plain + self.log_partial))

    def start_weights(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first rows of groups of restarts, and how probable a change is in each (groups,).

        The first entry also holds the bets from the first row on. Every entry is judged with the
        same prior weight per row.
        """
        log_wealth = self.log_groups + self.log_partial
        log_wealth[:-1] += self.log_since
        rows = np.array(self.group_rows)
        log_mass = _log_sum(log_wealth)
        first = self.rows and self.log_plain_evidence
        ends = np.append(rows[1:], self.rows)
        # Proportions fall with the number of the restart, on which the result should not depend.
        blocks = (np.maximum(ends, rows + 1) - rows) / BLOCK
        log_shares = _log_shares(rows // BLOCK, -(-ends // BLOCK))
        log_mass = log_mass - log_shares + np.log(blocks)
        log_mass[0] = np.logaddexp(log_mass[0], first)
        mass = np.exp(log_mass - log_mass.max())
        return rows, mass / mass.sum()

    def kind_weights(self) -> dict[str, float]:
        """Return the proportions of the present wealth by kind of alternative."""
        earlier = np.logaddexp(self.log_plain, self.log_closed)
        log_wealth = np.logaddexp(earlier, self.log_groups[-1]) + self.log_partial
        wealth = np.exp(log_wealth - log_wealth.max())
        kinds = self.alternatives.kinds
        return {str(kind): float(wealth[kinds == kind].sum() / wealth.sum()) for kind in set(kinds)}

    def state(self) -> dict[str, Any]:
        """Return all that changes with rows as lists and numbers, with None for no wealth."""
        arrays = {name: _finite_or_none(getattr(self, name).tolist()) for name in _ARRAYS}
        numbers = {"rows": self.rows, "log_wealth": self.log_wealth}
        return {**numbers, "group_rows": list(self.group_rows), **arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that :meth:`state` returned."""
        self.rows, self.group_rows = int(state["rows"]), [*map(int, state["group_rows"])]
        self.log_wealth = float(state["log_wealth"])
        for name in _ARRAYS:
            array = np.array(state[name], float)
            array[np.isnan(array)] = -np.inf
            setattr(self, name, array)


def _finite_or_none(value: object) -> object:
    """Replace infinities in nested lists by None, because JSON has no infinity."""
    if isinstance(value, list):
        return [_finite_or_none(entry) for entry in value]
    return None if value in (np.inf, -np.inf) else value


def _log_shares(first: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Return log proportions of restarts first + 1, ..., end, at least of one; all sum to one."""
    return np.log(1 / np.log2(first + 2) - 1 / np.log2(np.maximum(end, first + 1) + 2))


def without(rows: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """Return weights (n,) that are zero for some rows, or None if none are needed."""
    if not rows.any():
        return weights
    return np.where(rows, 0.0, 1.0 if weights is None else weights)


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Sum the exponentials over the last axis, on a log scale."""
    highest = terms.max(axis=-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - highest).sum(axis=-1)) + highest[..., 0]
