"""Evidence against calibration that may be looked at after every row: an e-process."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayescal.monitoring._alternatives import Alternatives

__all__ = ["BLOCK", "Evidence"]

#: Rows of a block: restarts begin before the first row of each.
BLOCK = 16
#: Blocks after which a group of restarts is closed, and groups that are kept at most.
_GROUP, _MAX_GROUPS = 16, 48


class Evidence:
    r"""Bets on alternatives, half from the first row on and half restarted again and again.

    With likelihood ratios r of the alternatives c of prior weight w, the wealth after t rows is

    .. math:: e_t = \tfrac12 \sum_c w_c \prod_{i \le t} r_{ic}
        + \tfrac12 \sum_j \gamma_j \sum_c w_c \prod_{j \le i \le t} r_{ic}

    over restarts j before every 16th row, whose shares gamma sum to one; a restart that is still to
    come holds its share. This is a nonnegative martingale of mean one if the probabilities are
    right, so P(e_t >= 1 / alpha for some t) <= alpha (Ville). Restarts find a change after many
    calm rows about as soon as an early one.
    """

    def __init__(self, alternatives: Alternatives) -> None:
        self.alternatives = alternatives
        self.rows = 0
        log_weights = np.log(alternatives.weights)
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
        """Add rows, and return the logarithm of the wealth after each (n,)."""
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
        return result

    def _add(self, probs: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
        """Add rows of one group of blocks."""
        n, c = len(y), len(self.log_plain)
        before = self.rows % BLOCK
        num_blocks = -(-(before + n) // BLOCK)
        ratios = self.alternatives.ratios(probs, y) if weights is None else None
        padded = np.zeros((num_blocks * BLOCK, c))
        if ratios is not None and self.log_partial.min() > -600:
            padded += 1
            padded[before : before + n] = ratios
            padded[before] *= np.exp(self.log_partial)
            products = np.multiply.accumulate(padded.reshape(num_blocks, BLOCK, c), axis=1)
            with np.errstate(divide="ignore"):
                log_totals = np.log(products[:, -1])
            log_products = None
        else:
            log_ratios = self.alternatives.log_ratios(probs, y)
            padded[before : before + n] = (
                log_ratios if weights is None else log_ratios * weights[:, None]
            )
            padded[before] += self.log_partial
            log_products = np.add.accumulate(padded.reshape(num_blocks, BLOCK, c), axis=1)
            products, log_totals = None, log_products[:, -1]
        log_starts = self._advance(log_totals, whole=(before + n) % BLOCK == 0)
        highest = log_starts.max(axis=1)
        if products is not None:
            shares = np.exp(log_starts - highest[:, None])
            wealth = np.log(np.matmul(products, shares[:, :, None])[:, :, 0])
        else:
            assert log_products is not None
            wealth = _log_sum(log_products + (log_starts - highest[:, None])[:, None, :])
        # What restarts that are still to come hold.
        blocks = self.rows // BLOCK + np.arange(1, num_blocks + 1)
        held = -np.log(np.log2(blocks + 2))
        wealth = np.logaddexp(wealth + highest[:, None], held[:, None])
        self.rows += n
        return wealth.ravel()[before : before + n] - np.log(2)

    def _advance(self, log_totals: np.ndarray, whole: bool) -> np.ndarray:
        """Return the wealth at the start of each block, and move on to the end of the last one.

        ``whole`` says whether the last block is complete. The result is (blocks, c).
        """
        num_blocks = len(log_totals)
        first = self.rows // BLOCK
        gained = np.add.accumulate(np.concatenate([np.zeros_like(log_totals[:1]), log_totals]))
        begun = np.log(self.alternatives.weights) + _log_shares(first, num_blocks)[:, None]
        newest = np.empty((num_blocks + 1, len(self.log_plain)))
        newest[0] = self.log_groups[-1]
        starts = np.empty_like(log_totals)
        for i in range(num_blocks):
            np.logaddexp(newest[i], begun[i], out=starts[i])
            np.add(starts[i], log_totals[i], out=newest[i + 1])
        earlier = np.logaddexp(self.log_plain, self.log_closed)
        log_starts = np.logaddexp(earlier + gained[:-1], starts)
        done = num_blocks if whole else num_blocks - 1
        self.log_plain = self.log_plain + gained[done]
        self.log_closed = self.log_closed + gained[done]
        self.log_since = self.log_since + gained[done]
        self.log_groups[-1] = newest[done]
        self.log_partial = np.zeros_like(self.log_plain) if whole else log_totals[-1]
        if whole and (first + done) % _GROUP == 0:
            self._close_group((first + done) * BLOCK)
        return log_starts

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
        # Shares fall with the number of the restart, which the statement should not depend on.
        blocks = (np.maximum(ends, rows + 1) - rows) / BLOCK
        shares = np.array(
            [_share_between(a // BLOCK, -(-b // BLOCK)) for a, b in zip(rows, ends, strict=True)]
        )
        log_mass = log_mass - np.log(shares) + np.log(blocks)
        log_mass[0] = np.logaddexp(log_mass[0], first)
        mass = np.exp(log_mass - log_mass.max())
        return rows, mass / mass.sum()

    def kind_weights(self) -> dict[str, float]:
        """Return the shares of the present wealth by kind of alternative."""
        earlier = np.logaddexp(self.log_plain, self.log_closed)
        log_wealth = np.logaddexp(earlier, self.log_groups[-1]) + self.log_partial
        wealth = np.exp(log_wealth - log_wealth.max())
        kinds = self.alternatives.kinds
        return {str(kind): float(wealth[kinds == kind].sum() / wealth.sum()) for kind in set(kinds)}

    def state(self) -> dict[str, Any]:
        """Return all that changes with rows, as lists and numbers."""
        names = ("log_plain", "log_closed", "log_partial", "log_groups", "log_since")
        arrays = {name: getattr(self, name).tolist() for name in names}
        return {"rows": self.rows, "group_rows": list(self.group_rows), **arrays}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state that :meth:`state` returned."""
        self.rows, self.group_rows = int(state["rows"]), [*map(int, state["group_rows"])]
        for name in ("log_plain", "log_closed", "log_partial", "log_groups", "log_since"):
            setattr(self, name, np.array(state[name], float))


def _log_shares(first: int, num: int) -> np.ndarray:
    """Return logarithms of the shares of restarts first + 1, ..., first + num; all sum to one."""
    numbers = np.arange(first + 1, first + num + 1)
    return np.log(1 / np.log2(numbers + 1) - 1 / np.log2(numbers + 2))


def _share_between(first: int, end: int) -> float:
    """Return the sum of the shares of restarts first + 1, ..., end."""
    return float(1 / np.log2(first + 2) - 1 / np.log2(max(end, first + 1) + 2))


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Sum the exponentials over the last axis, on a log scale."""
    highest = terms.max(axis=-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - highest).sum(axis=-1)) + highest[..., 0]
