"""A compressed history of rows: means of scores inside cells, or a weighted sample of rows."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np

from bayescal._core.numerics import FLOOR, log_softmax, sigmoid
from bayescal.data.rows import Rows
from bayescal.data.scores import floors

#: Cells of binary scores and of three classes, and the least number of rows of more classes.
_BINARY_CELLS, _CELLS, _MIN_ROWS = 1 << 11, 1 << 16, 1 << 14
#: Numbers in the rows of more than three classes.
_ROW_NUMBERS = 1 << 22
#: More classes than this have no cells, because neighbors are rare in many dimensions.
_MAX_CELL_CLASSES = 3
#: The exponent of cells that hold equal scores only, and the widest one.
_EXACT, _WIDEST = -2000, 1024
#: Indices of cells stay below two to this power, with which indices of infinite scores are.
_INDEX_BITS = 60
#: Cells whose weight is below this proportion of all are forgotten.
_NEGLIGIBLE = 1e-12
#: Bound on rounding errors of log probabilities, whose complements may be in single precision.
#: Positive probabilities are at least twice as large as the replacement of zeros.
_ROUNDING = 1e-3
#: Seed of the factors, and the factor, by which the indices of a cell become one number.
_SEED, _MIXER = 20_261_126, np.uint64(0xBF58476D1CE4E5B9)


class History(NamedTuple):
    """Compressed rows of an online calibrator, which depend little on the batches of rows.

    Rows with equal scores and labels are merged. If there are too many, rows of two and three
    classes are merged in cells: boxes whose width is a power of two, the smallest that gives few
    enough cells. Boxes of one width contain smaller boxes, so cells depend only on the rows. For
    more classes a sample is kept: the rows of largest weight divided by a uniform number, which a
    hash of the row determines (priority sampling).
    """

    #: Means of the scores (m, d) in the domain of the calibrator. Infinite scores stand for
    #: probabilities of zero, whose replacement depends on all rows.
    scores: np.ndarray
    y: np.ndarray
    #: Weights (m, q) after forgetting at each of q rates.
    weights: np.ndarray
    #: Factors (m, q) of the weights of a sample, with which it gives the gradients of all rows.
    factors: np.ndarray
    #: The width of cells is two to this power.
    exponent: np.ndarray
    #: Threshold t of the sample: a row of smaller weight w was kept with probability w / t.
    threshold: np.ndarray
    #: The smallest positive probability of each class (k,); empty if scores are not probabilities.
    positive: np.ndarray

    def forget(self, rates: np.ndarray) -> Self:
        """Multiply the weights of all rows by ``rates`` (q,)."""
        weights = self.weights * rates
        kept = (weights > _NEGLIGIBLE * weights.sum(axis=0)).any(axis=1)
        threshold = self.threshold * rates[0]
        return self._replace(weights=weights, threshold=threshold)._take(kept)

    def mixed(self, mix: np.ndarray) -> Self:
        """Return the history at one rate, whose weights are means over q rates."""
        weights = self.weights @ mix
        factors = (self.weights * self.factors) @ mix / np.where(weights > 0, weights, 1)
        return self._replace(weights=weights[:, None], factors=factors[:, None])

    def repeated(self, num_rates: int) -> Self:
        """Return the history of one rate with a column of weights for each of several rates."""
        columns = self.weights, self.factors
        weights, factors = (np.repeat(column, num_rates, axis=1) for column in columns)
        return self._replace(weights=weights, factors=factors)

    def _take(self, rows: np.ndarray) -> Self:
        names = "scores", "y", "weights", "factors"
        return self._replace(**{name: getattr(self, name)[rows] for name in names})

    @classmethod
    def of_rows(cls, rows: Rows, least: np.ndarray | None) -> Self:
        """Compress rows, whose probabilities of zero were replaced by ``least`` (k,)."""
        scores, positive = np.asarray(rows.scores, float).reshape(rows.n, -1), np.empty(0)
        if least is not None:
            scores, positive = _mark_zeros(scores, least)
        weights = np.asarray(rows.weights, float)[:, None]
        exact, threshold = np.asarray(_EXACT), np.asarray(0.0)
        factors = np.ones_like(weights)
        return cls(scores, rows.y, weights, factors, exact, threshold, positive)._condense(rows.k)

    def join(self, other: Self, k: int) -> Self:
        """Add the rows of a history of k classes, whose weights count at all rates."""
        shape = len(other.y), self.weights.shape[1]
        weights, factors = (
            np.broadcast_to(columns[:, :1], shape) for columns in (other.weights, other.factors)
        )
        merged = self._replace(
            scores=np.concatenate([self.scores, other.scores]),
            y=np.concatenate([self.y, other.y]),
            weights=np.concatenate([self.weights, weights]),
            factors=np.concatenate([self.factors, factors]),
            exponent=np.maximum(self.exponent, other.exponent),
            threshold=np.maximum(self.threshold, other.threshold),
            positive=np.minimum(self.positive, other.positive),
        )
        return merged._condense(k)

    def _condense(self, k: int) -> Self:
        """Merge equal rows and, if there are too many, all rows in cells, or draw a sample."""
        if k > _MAX_CELL_CLASSES:
            merged = self._merge(self._cells(_EXACT))
            return merged._sample(max(_ROW_NUMBERS // k, _MIN_ROWS))
        most = _BINARY_CELLS if k == 2 else _CELLS
        exponent = int(self.exponent)
        cell = self._cells(exponent)
        if cell.max(initial=-1) >= most:
            # The number of cells decreases with their width: bracket the smallest one, then bisect.
            largest = np.abs(self.scores).max(where=np.isfinite(self.scores), initial=0.0)
            low, step = max(exponent, int(np.frexp(largest)[1]) - _INDEX_BITS - 1), 1
            high = low + step
            while (cell := self._cells(high)).max() >= most and high < _WIDEST:
                low, step = high, 2 * step
                high = min(high + step, _WIDEST)
            while high - low > 1:
                middle = (low + high) // 2
                tried = self._cells(middle)
                if tried.max() < most:
                    high, cell = middle, tried
                else:
                    low = middle
            exponent = high
        return self._replace(exponent=np.asarray(exponent))._merge(cell)

    def _sample(self, most: int) -> Self:
        """Keep the rows of highest priority; the next one is the threshold of their weights."""
        if len(self.y) <= most:
            return self
        uniform = ((self._codes(_EXACT) >> np.uint64(11)).astype(float) + 0.5) / 2.0**53
        priority = self.weights[:, 0] / uniform
        order = np.argpartition(-priority, most)
        threshold = np.maximum(self.threshold, priority[order[most]])
        return self._replace(threshold=threshold)._take(np.sort(order[:most]))

    def _cells(self, exponent: int) -> np.ndarray:
        """Return the numbers of the cells of rows (m,), if cells have this width."""
        return np.unique(self._codes(exponent), return_inverse=True)[1].ravel()

    def _codes(self, exponent: int) -> np.ndarray:
        """Compute random codes (m,) of the cells and labels of rows."""
        if exponent == _EXACT:
            index = (self.scores + 0.0).view(np.int64)  # no negative zeros
        else:
            with np.errstate(over="ignore", under="ignore"):
                scaled = np.trunc(np.ldexp(self.scores, -exponent))
            index = np.clip(scaled, -(2.0**_INDEX_BITS), 2.0**_INDEX_BITS).astype(np.int64)
        index = np.column_stack([index, self.y]).view(np.uint64)
        draw = np.random.default_rng(_SEED).integers
        factors = draw(0, 1 << 63, index.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
        return _mixed(_mixed(index) @ factors)

    def _merge(self, cell: np.ndarray) -> Self:
        """Merge rows with equal numbers of cells."""
        count = int(cell.max(initial=-1)) + 1
        if count == len(cell):
            return self
        totals = np.stack([np.bincount(cell, w, count) for w in self.weights.T], axis=1)
        factors = np.ones_like(totals)
        if self.threshold > 0:
            scaled = (self.weights * self.factors).T
            factors = np.stack([np.bincount(cell, w, count) for w in scaled], axis=1) / totals
        last = np.empty(count, int)
        last[cell] = np.arange(len(cell))
        scores = self.scores[last]
        if self.exponent != _EXACT:
            # The first rate forgets least.
            w, mass = self.weights[:, 0], totals[:, 0]
            means = [np.bincount(cell, w * column, count) / mass for column in self.scores.T]
            scores = np.stack(means, axis=1)
        return self._replace(scores=scores, y=self.y[last], weights=totals, factors=factors)

    def rows(self, domain: str, mix: np.ndarray | None = None) -> tuple[Rows, np.ndarray | None]:
        """Return the cells as rows in the domain of a calibrator, and the least probabilities.

        ``mix`` (q,) are weights of the rates of forgetting.
        """
        kept, weights = self._mixed_weights(mix)
        scores, least = self.filled(domain)
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        return Rows(scores[kept], self.y[kept], weights[kept]), least

    def filled(self, domain: str) -> tuple[np.ndarray, np.ndarray | None]:
        """Return finite scores (m, d) in a calibrator's domain, and the least probabilities."""
        scores, least = self.scores, None
        if self.positive.size:
            zeros = np.isinf(scores)
            lowest = np.where(zeros.any(), 0.0, self.positive)
            least = floors(lowest, self.positive)
            logs = np.log(least)
            if scores.shape[1] == 1:
                logs = np.where(scores < 0, logs[1], -logs[0])
            scores = np.where(zeros, logs, scores)
            if domain == "log_probabilities":
                scores = log_softmax(scores)
        return scores, least

    def given(self, inputs: str, columns: int, mix: np.ndarray | None = None) -> Rows:
        """Return the cells as rows of ``columns`` scores of the kind that the user passed."""
        kept, weights = self._mixed_weights(mix)
        scores = self.scores[kept]
        if columns == 1 and scores.shape[1] == 2:
            scores = scores[:, 1:] - scores[:, :1]
        if inputs == "probs":
            several = scores.shape[1] > 1
            scores = np.exp(scores) if several else sigmoid(np.column_stack([-scores, scores]))
            scores /= scores.sum(axis=1, keepdims=True)
            scores = scores[:, -columns:]
        elif columns == 2 and scores.shape[1] == 1:
            scores = np.column_stack([-scores / 2, scores / 2])
        return Rows(scores, self.y[kept], weights[kept])

    def represented(self) -> np.ndarray:
        """Compute the weights (m, q) of all rows that the rows stand for."""
        inflation = np.maximum(1.0, self.threshold / self.weights[:, 0])
        return self.weights * self.factors * inflation[:, None]

    def _mixed_weights(self, mix: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Average the weights over rates; also mark the rows that count."""
        weights = self.represented()
        weights = weights[:, 0] if mix is None else weights @ mix
        return weights > _NEGLIGIBLE * weights.sum(), weights


def _mixed(codes: np.ndarray) -> np.ndarray:
    """Mix the bits of unsigned integers, so that all bits depend on all bits."""
    codes = (codes ^ (codes >> np.uint64(30))) * _MIXER
    return codes ^ (codes >> np.uint64(31))


def _mark_zeros(scores: np.ndarray, least: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Replace logarithms of probabilities of zero by infinities.

    Also returns the smallest positive probability of each class (k,).
    """
    low, high = np.log(least) + _ROUNDING, -np.log(least[0]) - _ROUNDING
    if scores.shape[1] == 1:
        z = scores[:, 0]
        marked = np.where(z <= low[1], -np.inf, np.where(z >= high, np.inf, z))[:, None]
        inside = marked[np.isfinite(marked)]
        ends = np.array([-inside.max(initial=-np.inf), inside.min(initial=np.inf)])
        smallest = sigmoid(np.minimum(ends, 700.0))
        zeros = np.column_stack([np.isposinf(marked), np.isneginf(marked)])
    else:
        zeros = scores <= low
        marked = np.where(zeros, -np.inf, scores)
        if zeros.any():
            # Logarithms of normalized probabilities contain the replacements of zeros.
            marked -= np.logaddexp.reduce(marked, axis=1, keepdims=True)
        smallest = np.exp(np.minimum(marked.min(axis=0, where=~zeros, initial=np.inf), 0.0))
    if least[0] > FLOOR:
        # Rounding errors of zero may be above what replaces zeros: only the latter says what is
        # positive.
        return marked, 2 * least
    # What is at the floor may be positive.
    return marked, np.where(zeros.any(axis=0), FLOOR, smallest)
