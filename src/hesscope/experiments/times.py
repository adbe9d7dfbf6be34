"""How long experiments take on two cores of a laptop, in seconds: what is said before one starts.

Quick sizes were timed, and those of which there is an outcome (`seconds` in docs/outcomes, where a run was not stopped between:
older outcomes hold what the last start took, and then the longer time stands here); the others are reckoned from them, by the
number of epochs, examples, networks and products, and meant to tell minutes from hours from days.
"""

from __future__ import annotations

HOUR, DAY = 3600.0, 86400.0
SECONDS: dict[str, tuple[float, float, float]] = {
    "cracking.fig1": (1, 1, 4),
    "cracking.fig10_13": (2, 16, 120),
    "cracking.fig14_16": (6, 40, 6 * HOUR),
    "cracking.fig17_22": (10, 170, 10 * HOUR),
    "cracking.fig2": (2, 3, 5),
    "cracking.fig26": (4, 25, 4 * HOUR),
    "cracking.fig27": (3, 18, 36),
    "cracking.fig3": (1, 3, HOUR),
    "cracking.fig4": (4, 16, 3 * HOUR),
    "cracking.fig5": (9, 65, 100_000 * HOUR),
    "cracking.fig6": (20, 100, 5 * HOUR),
    "cracking.fig7": (1, 2, 2),
    "cracking.fig8": (1, 2, 2),
    "cracking.fig9": (1, 10, 20),
    "dong2025.deep": (15, 150, 2 * HOUR),
    "dong2025.fig1": (1, 35, 35),
    "dong2025.fig10": (6, 30, 30),
    "dong2025.fig11_12": (8, 30, HOUR),
    "dong2025.fig2_3": (7, 180, 4 * HOUR),
    "dong2025.fig4_7": (6, 56, 140),
    "dong2025.fig8": (3, 10, 240),
    "dong2025.fig9": (4, 11, 30),
    "dong2025.heuristics": (4, 12, 600),
    "dong2025.hidden_spectra": (2, 5, 120),
    "dong2025.language_model": (6, 40, 5 * HOUR),
    "dong2025.referee": (9, 15, HOUR),
    "dong2025.spectra": (1, 6, 23),
    "dong2025.stripes": (9, 18, 900),
    "dong2025.theorem2": (2, 7, 120),
    "dong2025.trained_cnn": (3, 60, 60),
    "dong2025.trained_transformer": (4, 600, 600),
    "edges.onset": (7, 300, HOUR),
    "edges.spikes": (2, 120, HOUR),
    "edges.training": (1, 120, 900),
    "liao2021.fig1": (3, 14, 90),
    "liao2021.fig2": (3, 14, 90),
    "liao2021.fig3": (2, 9, 60),
    "liao2021.fig4": (5, 15, 50),
    "liao2021.fig5": (8, 40, 1200),
    "liao2021.least_squares": (2, 9, 60),
    "liao2021.trimming": (3, 40, 80),
    "wu2022.bound_budgets": (8, 1300, 20 * DAY),
    "wu2022.bound_parts": (10, 700, 20 * DAY),
    "wu2022.fig11": (3, 35, DAY),
    "wu2022.fig16": (5, 23, 3 * DAY),
    "wu2022.fig19": (5, 38, DAY),
    "wu2022.fig2": (5, 140, 6 * HOUR),
    "wu2022.fig21": (3, 57, DAY),
    "wu2022.fig23": (6, 190, 5 * DAY),
    "wu2022.fig29": (3, 10, 4 * HOUR),
    "wu2022.fig3": (3, 30, 8 * HOUR),
    "wu2022.fig31": (14, 1200, 3 * DAY),
    "wu2022.fig4": (4, 270, 2 * DAY),
    "wu2022.fig5": (2, 19, 4 * DAY),
    "wu2022.fig6": (5, 2 * HOUR, 8 * DAY),
    "wu2022.fig7": (6, 310, 30 * DAY),
    "wu2022.lemmas": (5, 50, 400),
    "wu2022.reductions": (5, 300, 300),
    "wu2022.table10": (15, 2 * HOUR, 60 * DAY),
    "wu2022.table6": (4, 820, 60 * DAY),
    "wu2022.table8": (3, 400, 20 * DAY),
    "wu2022.table9": (4, 100, 6 * DAY),
    "wu2022.theorem4": (5, 80, 300),
    "wu2022.trained_resnets": (2, 55, 900),
}


def expected_seconds(name: str, size: str) -> float | None:
    """Of one seed; None where nothing is known."""
    found = SECONDS.get(name)
    return None if found is None else dict(zip(("quick", "default", "paper"), found, strict=True))[size]


def in_words(seconds: float) -> str:
    """For example "40 seconds", "12 minutes", "6 hours", "9 days"."""
    for unit, length, most in (("seconds", 1.0, 90.0), ("minutes", 60.0, 5400.0), ("hours", 3600.0, 172800.0)):
        if seconds < most:
            return f"{max(1, round(seconds / length))} {unit}"
    return f"{round(seconds / 86400)} days"
