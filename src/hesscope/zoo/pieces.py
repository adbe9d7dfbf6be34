"""Byte-pair encoding in small: pieces of words learnt from a text by joining its most frequent pairs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise

from ..errors import refuse

Pair = tuple[str, str]
_WORD = re.compile(r" ?\S+|\s")  # a word carries the space before it, and no pair crosses words


@dataclass(frozen=True)
class Pieces:
    """A vocabulary and the order in which its pieces were joined.

    >>> pieces = Pieces.learn("the cat the hat", 10)
    >>> pieces.decode(pieces.encode("the hat")) == "the hat"
    True
    """

    vocabulary: tuple[str, ...]
    joined: tuple[Pair, ...]

    @staticmethod
    def learn(text: str, size: int) -> Pieces:
        """The characters of the text, and pieces until there are `size`; of equally frequent pairs the first in order."""
        letters = sorted(set(text))
        if size < len(letters):
            refuse(
                f"a vocabulary must hold the {len(letters)} characters of the text", f"{size}", "Ask for more pieces."
            )
        words = Counter(_WORD.findall(text))
        joined = _most_frequent([[*word] for word in words], list(words.values()), size - len(letters))
        if len(letters) + len(joined) < size:
            refuse("the text must hold enough pairs to join", f"{size} pieces asked for", "Give more text.")
        return Pieces((*letters, *("".join(pair) for pair in joined)), tuple(joined))

    def encode(self, text: str) -> list[int]:
        """The text as numbers of pieces: in every word the pair that was joined first is joined first."""
        rank = {pair: place for place, pair in enumerate(self.joined)}
        # Two ways may lead to the same piece; the first number stands for it.
        number = {piece: place for place, piece in reversed([*enumerate(self.vocabulary)])}
        foreign = sorted(set(text) - set(number))
        if foreign:
            refuse("a text must be made of the characters that were learnt", f"{foreign[0]!r}", "Learn them, too.")
        known: dict[str, list[int]] = {}
        found: list[int] = []
        for word in _WORD.findall(text):
            if word not in known:
                known[word] = [number[piece] for piece in _cut(word, rank)]
            found += known[word]
        return found

    def decode(self, numbers: Sequence[int]) -> str:
        """The text again."""
        return "".join(self.vocabulary[number] for number in numbers)


def _most_frequent(words: list[list[str]], counts: list[int], wanted: int) -> list[Pair]:
    """Pairs in the order of joining; counts of pairs are kept up to date word by word."""
    total: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for place, word in enumerate(words):
        for pair in pairwise(word):
            total[pair] += counts[place]
            where[pair].add(place)
    heap = [(-count, pair) for pair, count in total.items()]
    heapify(heap)
    joined: list[Pair] = []
    while heap and len(joined) < wanted:
        count, best = heappop(heap)
        if -count != total[best] or count == 0:
            continue  # an old entry: the present count is in the heap, too
        joined.append(best)
        changed = set()
        for place in where.pop(best):
            before, after = words[place], _join(words[place], best)
            words[place] = after
            for pair in pairwise(before):
                total[pair] -= counts[place]
                changed.add(pair)
            for pair in pairwise(after):
                total[pair] += counts[place]
                where[pair].add(place)
                changed.add(pair)
        for pair in changed:
            if total[pair] > 0:
                heappush(heap, (-total[pair], pair))
    return joined


def _join(word: Sequence[str], pair: Pair) -> list[str]:
    found: list[str] = []
    place = 0
    while place < len(word):
        if place + 1 < len(word) and (word[place], word[place + 1]) == pair:
            found.append(pair[0] + pair[1])
            place += 2
        else:
            found.append(word[place])
            place += 1
    return found


def _cut(word: str, rank: dict[Pair, int]) -> list[str]:
    pieces = [*word]
    while len(pieces) > 1:
        best = min(pairwise(pieces), key=lambda pair: rank.get(pair, len(rank)))
        if best not in rank:
            break
        pieces = _join(pieces, best)
    return pieces
